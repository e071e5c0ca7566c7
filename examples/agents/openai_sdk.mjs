// The openai npm client on the Responses API.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { file, play, question, remembering, schema, thought } from "./task.mjs";

const described = { name: "read_file", description: "Reads a file." };
const declared = { type: "function", ...described, parameters: schema, strict: true };
const client = (url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });

// Turns until nothing is called any more; `turn` gives the response to a body.
async function loop(turn) {
  const { calls, read, wasReadOnce } = file();
  const input = [{ role: "user", content: question }];
  for (;;) {
    const response = await turn({ model: "scripted", tools: [declared], input });
    assert.equal(response.status, "completed");
    assert.equal(response.output[0].content[0].text, thought);
    const call = response.output.find((item) => item.type === "function_call");
    if (!call) {
      assert.equal(response.output_text, remembering);
      wasReadOnce();
      return;
    }
    assert.ok(calls.length < 2);
    const output = read(JSON.parse(call.arguments));
    input.push(...response.output, { type: "function_call_output", call_id: call.call_id, output });
  }
}

await play({
  create: (url) => loop((body) => client(url).responses.create(body)),
  stream: (url) => loop((body) => client(url).responses.stream(body).finalResponse()),
  // The server keeps the history, thought included.
  previous_response_id: async (url) => {
    const asked = { model: "scripted", tools: [declared] };
    const first = await client(url).responses.create({ ...asked, input: question });
    const { call_id } = first.output.find((item) => item.type === "function_call");
    const input = [{ type: "function_call_output", call_id, output: "heron-4711" }];
    const second = await client(url).responses.create({ ...asked, input, previous_response_id: first.id });
    assert.equal(second.output_text, remembering);
    assert.equal((await client(url).responses.retrieve(second.id)).output_text, remembering);
  },
  parse: async (url) => {
    const text = { format: zodTextFormat(z.object({ word: z.string() }), "word") };
    const body = { model: "scripted", input: "Say the word as JSON.", text };
    assert.deepEqual((await client(url).responses.parse(body)).output_parsed, { word: "heron-4711" });
  },
});
