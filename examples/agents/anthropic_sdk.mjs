// @anthropic-ai/sdk: only base URL, key and model are its own.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { file, play, question, remembering, schema, thought } from "./task.mjs";

const declared = { name: "read_file", description: "Reads a file.", input_schema: schema };
const start = [{ role: "user", content: question }];
const client = (url) => new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });

// Turns until no tool is used any more; `turn` gives the message for a history.
async function loop(turn) {
  const { calls, read, wasReadOnce } = file();
  const messages = [...start];
  for (;;) {
    const message = await turn({ model: "scripted", max_tokens: 1000, tools: [declared], messages });
    const use = message.content.find((block) => block.type === "tool_use");
    assert.equal(message.content[0].thinking, thought);
    messages.push({ role: "assistant", content: message.content });
    if (message.stop_reason !== "tool_use") {
      assert.equal(message.stop_reason, "end_turn");
      assert.equal(message.content.at(-1).text, remembering);
      wasReadOnce();
      return;
    }
    assert.ok(calls.length < 2);
    const result = { type: "tool_result", tool_use_id: use.id, content: read(use.input) };
    messages.push({ role: "user", content: [result] });
  }
}

await play({
  create: (url) => loop((body) => client(url).messages.create(body)),
  stream: (url) => loop((body) => client(url).messages.stream(body).finalMessage()),
  toolRunner: async (url) => {
    for (const stream of [false, true]) {
      const { read, wasReadOnce } = file();
      const tool = betaTool({ name: "read_file", description: "Reads a file.", inputSchema: schema, run: read });
      const runner = client(url).beta.messages.toolRunner({
        model: "scripted", max_tokens: 1000, messages: start, tools: [tool], stream,
      });
      const last = await runner.runUntilDone();
      assert.equal(last.content.at(-1).text, remembering);
      wasReadOnce();
    }
  },
  countTokens: async (url) => {
    const asked = { model: "scripted", messages: start, tools: [declared] };
    const counted = await client(url).messages.countTokens(asked);
    const { usage } = await client(url).messages.create({ ...asked, max_tokens: 1000 });
    assert.equal(counted.input_tokens, usage.input_tokens + (usage.cache_read_input_tokens ?? 0));
  },
  models: async (url) => {
    assert.equal((await client(url).models.list()).data[0].id, "scripted");
  },
});
