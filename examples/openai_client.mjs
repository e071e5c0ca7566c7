// The official npm client: plain, streamed, tools, a reply by a JSON schema, usage.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: process.env.OPENAI_BASE_URL ?? "http://127.0.0.1:30000/v1",
  apiKey: process.env.OPENAI_API_KEY ?? "none",
});
const messages = [
  { role: "system", content: "You are a helpful assistant." },
  { role: "user", content: "What is the capital of France?" },
];
const model = (await client.models.list()).data[0].id;
const common = { model, messages, temperature: 0, max_tokens: 20 };

const plain = await client.chat.completions.create(common);
assert.match(plain.choices[0].message.content, /Paris/);
assert.equal(plain.usage.total_tokens, plain.usage.prompt_tokens + plain.usage.completion_tokens);
console.log("plain:", plain.choices[0].message.content);

let text = "";
let usage = null;
const options = { stream: true, stream_options: { include_usage: true } };
for await (const chunk of await client.chat.completions.create({ ...common, ...options })) {
  text += chunk.choices[0]?.delta.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.match(text, /Paris/);
assert.ok(usage.completion_tokens > 1);
console.log("streamed:", text);

const final = await client.chat.completions.stream(common).finalChatCompletion();
assert.match(final.choices[0].message.content, /Paris/);
console.log("stream helper:", final.choices[0].finish_reason);

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const asked = {
  model,
  temperature: 0,
  messages: [{ role: "user", content: "What is the weather in Paris?" }],
  tools: [{ type: "function", function: { name: "get_weather", description: "The weather of a city.", parameters } }],
  tool_choice: "required",
  parallel_tool_calls: false,
};
const called = await client.chat.completions.create(asked);
const [call] = called.choices[0].message.tool_calls;
assert.equal(called.choices[0].finish_reason, "tool_calls");
assert.equal(typeof JSON.parse(call.function.arguments).city, "string");
const streamedCall = await client.chat.completions.stream(asked).finalChatCompletion();
assert.equal(streamedCall.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
console.log("forced call:", call.function.name, call.function.arguments.replaceAll("\n", " "));

const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const structured = await client.chat.completions.create({
  ...common,
  max_tokens: 100,
  response_format: { type: "json_schema", json_schema: { name: "city", schema, strict: true } },
});
assert.deepEqual(Object.keys(JSON.parse(structured.choices[0].message.content)), ["city"]);
console.log("JSON schema:", structured.choices[0].message.content);
