// The task of every client here: one tool, one question, the answer that the played model gives.
import assert from "node:assert/strict";

export const question = "Which word is in heron.txt?";
// What the model says if it reads its own thought, call and id again.
export const remembering = "It is heron-4711, as I thought.";
export const thought = "I have to read the file first.";
export const schema = {
  type: "object",
  properties: { path: { type: "string" } },
  required: ["path"],
  additionalProperties: false,
};

// The tool, and what it was called with.
export function file() {
  const calls = [];
  return {
    calls,
    read: (input) => {
      calls.push(input);
      return "heron-4711";
    },
    wasReadOnce: () => assert.deepEqual(calls, [{ path: "heron.txt" }]),
  };
}

// Runs `cases`, functions of a server's address, against each server, or the one of the form `only`.
export async function play(cases, only) {
  for (const entry of process.env.AGENTS_SERVERS.trim().split(" ")) {
    const [form, url] = entry.split("=");
    if (only && form !== only) continue;
    for (const [name, run] of Object.entries(cases)) {
      try {
        await run(url);
      } catch (error) {
        console.error(`${form}, ${name}:`);
        throw error;
      }
    }
    console.log(`${form}: ${Object.keys(cases).join(", ")}`);
  }
}
