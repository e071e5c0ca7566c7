// Codex, and opencode with both of its providers: the programs, each with a home of its own.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { play, thought } from "./task.mjs";

const programs = join(import.meta.dirname, "node_modules", ".bin");

// A new directory with `files`, for one run of a program.
function home(files) {
  const directory = mkdtempSync(join(import.meta.dirname, "home-"));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text);
  return directory;
}

async function run(directory, program, args, environment) {
  const env = { PATH: process.env.PATH, HOME: directory, NO_COLOR: "1", KEY: "none", ...environment };
  const running = promisify(execFile)(join(programs, program), args, { cwd: directory, env, timeout: 60_000 });
  running.child.stdin.end();
  try {
    return await running;
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
  const directory = home({ "config.toml": config, "otter.txt": "otter-17\n" });
  const flags = ["exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "--json"];
  const task = "Copy the word in otter.txt to copy.txt, in capitals.";
  const { stdout } = await run(directory, "codex", [...flags, task], { CODEX_HOME: directory });
  const items = stdout.trim().split("\n").map((line) => JSON.parse(line));
  const done = items.filter(({ type }) => type === "item.completed").map(({ item }) => item);
  const of = (type) => done.filter((item) => item.type === type);
  assert.equal(readFileSync(join(directory, "copy.txt"), "utf8"), "OTTER-17\n");
  assert.deepEqual(of("agent_message").map(({ text }) => text), ["It is OTTER-17."], stdout);
  assert.deepEqual(of("command_execution").map((item) => item.exit_code), [0, 0], stdout);
  rmSync(directory, { recursive: true });
}

const opencode = (npm) => async (url) => {
  const options = { baseURL: `${url}/v1`, apiKey: "none" };
  const provider = { paraserve: { npm, options, models: { scripted: {} } } };
  const directory = home({ "opencode.json": JSON.stringify({ provider }), "plover.txt": "plover-29\n" });
  const args = ["run", "--format", "json", "--thinking", "--model", "paraserve/scripted", "Which word is in plover.txt?"];
  const { stdout } = await run(directory, "opencode", args, {});
  const parts = stdout.trim().split("\n").map((line) => JSON.parse(line).part);
  console.log(JSON.stringify(parts, null, 1), thought);
  rmSync(directory, { recursive: true });
};

await play({
  codex,
  "opencode messages": opencode("@ai-sdk/anthropic"),
  "opencode responses": opencode("@ai-sdk/openai"),
});
