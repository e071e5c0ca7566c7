// Vercel's AI SDK with its providers for both APIs.
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { Output, generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";
import { file, play, question, remembering, thought } from "./task.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const messages = (url) => createAnthropic({ baseURL: `${url}/v1`, apiKey: "none" })("scripted");
const responses = (url) => createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" })("scripted");

function asked(model, options = {}) {
  const { read, wasReadOnce } = file();
  const inputSchema = z.object({ path: z.string() });
  const tools = { read_file: tool({ description: "Reads a file.", inputSchema, execute: read }) };
  return { wasReadOnce, body: { model, tools, prompt: question, stopWhen: isStepCount(4), maxRetries: 0, ...options } };
}

const whole = async (model, options, reasoning = thought) => {
  const { wasReadOnce, body } = asked(model, options);
  const { text, finishReason, reasoningText } = await generateText(body);
  assert.deepEqual([text, finishReason, reasoningText ?? ""], [remembering, "stop", reasoning]);
  wasReadOnce();
};

const streamed = async (model, options) => {
  const { wasReadOnce, body } = asked(model, options);
  const parts = [];
  for await (const part of streamText({ ...body, onError: () => {} }).fullStream) {
    if (part.type === "error") throw part.error;
    parts.push(part);
  }
  const joined = (type) => parts.filter((part) => part.type === type).map((part) => part.text).join("");
  assert.equal(joined("reasoning-delta"), thought + thought);
  assert.equal(joined("text-delta"), remembering);
  wasReadOnce();
};

const object = async (model) => {
  const output = Output.object({ schema: z.object({ word: z.string() }) });
  const { output: word } = await generateText({ model, prompt: "Say the word as JSON.", output });
  assert.deepEqual(word, { word: "heron-4711" });
};

// OpenAI's provider shows reasoning only as the summary that is asked for, and asks none of a model that is not known.
const summary = { reasoningSummary: "auto", forceReasoning: true };
const shown = { providerOptions: { openai: summary } };
const stateless = { providerOptions: { openai: { ...summary, store: false } } };

await play({
  "anthropic whole": (url) => whole(messages(url)),
  "anthropic streamed": (url) => streamed(messages(url)),
  "anthropic object": (url) => object(messages(url)),
  "openai unasked": (url) => whole(responses(url), {}, ""),
  "openai whole": (url) => whole(responses(url), shown),
  "openai streamed": (url) => streamed(responses(url), shown),
  "openai without a store": (url) => streamed(responses(url), stateless),
  "openai object": (url) => object(responses(url)),
});
