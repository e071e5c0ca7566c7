// Every client on the small real model: an answer, the same as a stream, and a tool that is forced by name.
// Such a model calls a tool when it must, and then once; what it makes of the result is its own.
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { Agent, run, setDefaultOpenAIClient, tool as agentTool } from "@openai/agents";
import { generateText, isStepCount, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";
import { play } from "./task.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const model = "smollm2";
const helpful = "You are a helpful assistant.";
const france = "What is the capital of France?";
const about = "The weather of a city.";
const city = { type: "string", maxLength: 20 };
const schema = { type: "object", properties: { city }, required: ["city"], additionalProperties: false };
const place = z.object({ city: z.string().max(20) });
const sunny = "Sunny.";
const few = 24; // tokens of what it makes of the result

const told = (text) => assert.match(text, /\S/); // its words depend on what the cache holds of others' prompts

async function anthropic(url) {
  const { messages } = new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
  const asked = [{ role: "user", content: france }];
  const common = { model, system: helpful, temperature: 0 };
  told((await messages.create({ ...common, max_tokens: 200, messages: asked })).content[0].text);
  told(await messages.stream({ ...common, max_tokens: 200, messages: asked }).finalText());
  const tools = [{ name: "get_weather", description: about, input_schema: schema }];
  const forced = { tools, tool_choice: { type: "tool", name: "get_weather" }, max_tokens: 200, messages: asked };
  const turn = await messages.stream({ ...common, ...forced }).finalMessage();
  const uses = turn.content.filter(({ type }) => type === "tool_use");
  assert.deepEqual(uses.map(({ input }) => Object.keys(input)), [["city"]]);
  const result = { type: "tool_result", tool_use_id: uses[0].id, content: sunny };
  const history = [...asked, { role: "assistant", content: turn.content }, { role: "user", content: [result] }];
  assert.ok(await messages.create({ ...common, tools, max_tokens: few, messages: history }));
}

async function openai(url) {
  const { responses } = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const common = { model, instructions: helpful, temperature: 0 };
  told((await responses.create({ ...common, input: france })).output_text);
  told((await responses.stream({ ...common, input: france }).finalResponse()).output_text);
  const tools = [{ type: "function", name: "get_weather", description: about, parameters: schema, strict: true }];
  const forced = { tools, tool_choice: { type: "function", name: "get_weather" }, input: france };
  const first = await responses.stream({ ...common, ...forced }).finalResponse();
  const calls = first.output.filter(({ type }) => type === "function_call");
  assert.equal(calls.length, 1);
  const input = [{ type: "function_call_output", call_id: calls[0].call_id, output: sunny }];
  const more = { tools, input, previous_response_id: first.id, max_output_tokens: few };
  assert.ok((await responses.create({ ...common, ...more })).output.length);
}

async function agents(url) {
  setDefaultOpenAIClient(new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 }));
  const plain = { name: "A", model, instructions: helpful, modelSettings: { temperature: 0 } };
  told((await run(new Agent(plain), france)).finalOutput);
  const streamed = await run(new Agent(plain), france, { stream: true });
  for await (const event of streamed) assert.ok(event.type);
  told(streamed.finalOutput);
  const tools = [agentTool({ name: "get_weather", description: about, parameters: place, execute: () => sunny })];
  const modelSettings = { temperature: 0, toolChoice: "get_weather" };
  const caller = new Agent({ ...plain, tools, modelSettings, toolUseBehavior: "stop_on_first_tool" });
  assert.equal((await run(caller, france)).finalOutput, sunny);
}

const aiSdk = (provider) => async (url) => {
  const common = { model: provider(url), system: helpful, temperature: 0, maxRetries: 0 };
  told((await generateText({ ...common, prompt: france })).text);
  told(await streamText({ ...common, prompt: france }).text);
  const tools = { get_weather: tool({ description: about, inputSchema: place, execute: () => sunny }) };
  const forced = { tools, toolChoice: { type: "tool", toolName: "get_weather" }, stopWhen: isStepCount(1) };
  const { toolCalls, response } = await generateText({ ...common, ...forced, prompt: france });
  assert.deepEqual(toolCalls.map(({ input }) => Object.keys(input)), [["city"]]);
  const messages = [{ role: "user", content: france }, ...response.messages];
  assert.ok((await generateText({ ...common, messages, maxOutputTokens: few })).finishReason);
};

await play({
  anthropic,
  openai,
  agents,
  "ai sdk, anthropic": aiSdk((url) => createAnthropic({ baseURL: `${url}/v1`, apiKey: "none" })(model)),
  "ai sdk, openai": aiSdk((url) => createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" })(model)),
});
