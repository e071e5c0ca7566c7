// Codex, and opencode with both of its providers: the programs, each with a home of its own.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { play, thought } from "./task.mjs";

const programs = join(import.meta.dirname, "node_modules", ".bin");

// A new directory with `files`, for one run of a program.
function home(program, files) {
  const directory = join(import.meta.dirname, program);
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text);
  return directory;
}

// What it prints, a line of JSON for each event.
async function run(directory, program, args, environment) {
  const env = { PATH: process.env.PATH, HOME: directory, NO_COLOR: "1", KEY: "none", ...environment };
  const running = promisify(execFile)(join(programs, program), args, { cwd: directory, env, timeout: 280_000 });
  running.child.stdin.end();
  try {
    return (await running).stdout.trim().split("\n").map((line) => JSON.parse(line));
  } catch (error) {
    error.message += `\n${error.stdout}\n${error.stderr}`;
    throw error;
  }
}

async function codex(url) {
  const config = `model = "scripted"
model_provider = "paraserve"
[model_providers.paraserve]
name = "paraserve"
base_url = "${url}/v1"
env_key = "KEY"
wire_api = "responses"
`;
  const directory = home("codex", { "config.toml": config, "otter.txt": "otter-17\n" });
  const flags = ["exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "--json"];
  const task = "Copy the word in otter.txt to copy.txt, in capitals.";
  const events = await run(directory, "codex", [...flags, task], { CODEX_HOME: directory });
  const done = events.filter(({ type }) => type === "item.completed").map(({ item }) => item);
  const of = (type) => done.filter((item) => item.type === type);
  assert.equal(readFileSync(join(directory, "copy.txt"), "utf8"), "OTTER-17\n");
  assert.deepEqual(of("agent_message").map(({ text }) => text), ["It is OTTER-17."]);
  assert.deepEqual(of("command_execution").map((item) => item.exit_code), [0, 0]);
}

const opencode = (npm, shown = {}) => async (url) => {
  const options = { baseURL: `${url}/v1`, apiKey: "none" };
  const provider = { paraserve: { npm, options, models: { scripted: { options: shown } } } };
  const directory = home("opencode", { "opencode.json": JSON.stringify({ provider }), "plover.txt": "plover-29\n" });
  const flags = ["run", "--format", "json", "--thinking", "--model", "paraserve/scripted"];
  const events = await run(directory, "opencode", [...flags, "Which word is in plover.txt?"], {});
  const of = (type) => events.map(({ part }) => part).filter((part) => part?.type === type);
  assert.deepEqual(of("text").map(({ text }) => text), ["It is plover-29, as I thought."]);
  assert.deepEqual(of("reasoning").map(({ text }) => text), [thought, thought]);
  assert.deepEqual(of("tool").map(({ tool, state }) => [tool, state.status, state.input]), [
    ["read", "completed", { filePath: join(directory, "plover.txt") }],
  ]);
};

// OpenAI's provider shows reasoning only as the summary that is asked for, and asks none of a model that is not known.
const summary = { reasoningSummary: "auto", forceReasoning: true };

await play({ codex });
// It takes ten seconds to start: only the form whose call ids clients respell.
const both = {
  "opencode messages": opencode("@ai-sdk/anthropic"),
  "opencode responses": opencode("@ai-sdk/openai", summary),
};
await play(both, "kimi_k2");
