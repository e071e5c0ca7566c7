// The Vercel AI SDK with its OpenAI-compatible provider: plain, streamed, a forced tool call, an object by a schema.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, streamText, tool } from "ai";
import { z } from "zod";

const baseURL = process.env.OPENAI_BASE_URL ?? "http://127.0.0.1:30000/v1";
const apiKey = process.env.OPENAI_API_KEY ?? "none";
const listed = await fetch(`${baseURL}/models`, { headers: { authorization: `Bearer ${apiKey}` } });
const provider = createOpenAICompatible({
  name: "paraserve",
  baseURL,
  apiKey,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const model = provider((await listed.json()).data[0].id);
const system = "You are a helpful assistant.";
const prompt = "What is the capital of France?";

const plain = await generateText({ model, system, prompt, temperature: 0, maxOutputTokens: 20 });
assert.match(plain.text, /Paris/);
assert.equal(plain.finishReason, "stop");
assert.ok(plain.usage.outputTokens > 1);
console.log("plain:", plain.text);

const stream = streamText({ model, system, prompt, temperature: 0, maxOutputTokens: 20 });
let pieces = 0;
let text = "";
for await (const piece of stream.textStream) {
  pieces += 1;
  text += piece;
}
assert.equal(text, plain.text);
assert.ok((await stream.usage).outputTokens > 1);
console.log("streamed:", text, `in ${pieces} pieces`);

const weather = tool({ description: "The weather of a city.", inputSchema: z.object({ city: z.string().max(20) }) });
const asked = {
  model,
  prompt: "What is the weather in Paris?",
  temperature: 0,
  tools: { get_weather: weather },
  toolChoice: { type: "tool", toolName: "get_weather" },
  // One call: a small model that may make several goes on and on.
  providerOptions: { paraserve: { parallel_tool_calls: false } },
};
const called = await generateText(asked);
assert.equal(called.finishReason, "tool-calls");
assert.equal(typeof called.toolCalls[0].input.city, "string");
const streamedCall = streamText(asked);
assert.deepEqual((await streamedCall.toolCalls)[0].input, called.toolCalls[0].input);
console.log("forced call:", called.toolCalls[0].toolName, JSON.stringify(called.toolCalls[0].input));

const structured = await generateText({
  model,
  system,
  prompt,
  temperature: 0,
  output: Output.object({ schema: z.object({ city: z.string() }) }),
});
assert.deepEqual(Object.keys(structured.output), ["city"]);
console.log("object by a schema:", JSON.stringify(structured.output));
