// @openai/agents in its default mode: the Responses API.
import assert from "node:assert/strict";
import { Agent, run, setDefaultOpenAIClient, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { file, play, question, remembering } from "./task.mjs";

function agent(url) {
  setDefaultOpenAIClient(new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 }));
  const { read, wasReadOnce } = file();
  const parameters = z.object({ path: z.string() });
  const tools = [tool({ name: "read_file", description: "Reads a file.", parameters, execute: read })];
  return { wasReadOnce, reader: new Agent({ name: "Reader", model: "scripted", instructions: "Be short.", tools }) };
}

await play({
  run: async (url) => {
    const { wasReadOnce, reader } = agent(url);
    assert.equal((await run(reader, question)).finalOutput, remembering);
    wasReadOnce();
  },
  stream: async (url) => {
    const { wasReadOnce, reader } = agent(url);
    const result = await run(reader, question, { stream: true });
    for await (const event of result) assert.ok(event.type);
    assert.equal(result.finalOutput, remembering);
    wasReadOnce();
  },
  typed: async (url) => {
    setDefaultOpenAIClient(new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 }));
    const teller = new Agent({ name: "Teller", model: "scripted", outputType: z.object({ word: z.string() }) });
    assert.deepEqual((await run(teller, "Say the word as JSON.")).finalOutput, { word: "heron-4711" });
  },
});
