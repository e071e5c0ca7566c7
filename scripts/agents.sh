#!/bin/sh
# Agents' own clients of /v1/messages and /v1/responses against a model that is played (examples/agents/): the loop of a
# tool call to its answer, in three models' forms. Each client is installed into an environment of its own under
# ${AGENTS_DIR:-a temporary directory}, never into the development one. Exit code 75: a client could not be installed,
# so nothing was run.
set -eu
cd -- "$(dirname -- "$0")/.."
. scripts/bootstrap.sh
bootstrap local

home=${AGENTS_DIR:-$(mktemp -d)}
servers=
finish() {
    for server in $servers; do
        { kill "$server" && wait "$server"; } 2>/dev/null || true
    done
    [ -n "${AGENTS_DIR:-}" ] || rm -rf "$home"
}
trap finish EXIT
mkdir -p "$home"

say "installing the clients into $home"
find_python
[ -x "$home/venv/bin/python" ] || run "$python" -m venv "$home/venv"
cp examples/agents/*.mjs examples/agents/package.json "$home"
{
    run "$home/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r examples/agents/requirements.txt &&
        (cd "$home" && run npm install --silent --no-audit --no-fund)
} || {
    say "the clients could not be installed"
    exit 75
}

say "starting the servers"
"$venv_python" examples/agents/scripted.py "$home"
model=$("$venv_python" -c 'from paraserve.engines.llama_cpp.embedded import default_model_path as f; print(f())')
# start FORM TOOL_CALL_PARSER REASONING_PARSER TEMPLATE_ARGUMENTS
start() {
    : >"$home/$1.log"
    "$venv_python" -m paraserve serve --port 0 --engine scripted --engine-script "$home/$1.json" --model-path "$model" \
        --served-model-name scripted --chat-template "$home/chat.jinja" --chat-template-kwargs "$4" \
        --tool-call-parser "$2" --reasoning-parser "$3" --response-store "$home/responses.db" 2>"$home/$1.log" &
    server=$!
    servers="$servers $server"
    for _ in $(seq 1 120); do
        url=$(sed -n 's/.*ready on \(http:[^" ]*\).*/\1/p' "$home/$1.log" | head -n 1)
        [ -z "$url" ] || break
        kill -0 "$server" 2>/dev/null || { cat "$home/$1.log" >&2; fail "the server did not start"; }
        sleep 0.5
    done
    [ -n "$url" ] || fail "the server did not get ready"
    AGENTS_SERVERS="${AGENTS_SERVERS:-} $1=$url"
}
AGENTS_SERVERS=
start qwen3 hermes qwen3 '{}'
start kimi_k2 kimi_k2 kimi_k2 '{"ids": true}'
start glm glm47 glm47 '{}'
# No traces to OpenAI, no list of prices for LiteLLM, no lists of models and updates for opencode.
OPENAI_AGENTS_DISABLE_TRACING=1 LITELLM_LOCAL_MODEL_COST_MAP=True OPENCODE_DISABLE_MODELS_FETCH=1
OPENCODE_DISABLE_AUTOUPDATE=1
export AGENTS_SERVERS OPENAI_AGENTS_DISABLE_TRACING LITELLM_LOCAL_MODEL_COST_MAP OPENCODE_DISABLE_MODELS_FETCH
export OPENCODE_DISABLE_AUTOUPDATE

for client in ${AGENTS_CLIENTS:-anthropic_sdk openai_sdk openai_agents frameworks}; do
    say "$client.py"
    timeout 120 "$home/venv/bin/python" "examples/agents/$client.py"
done
for client in ${AGENTS_CLIENTS:-anthropic_sdk openai_sdk openai_agents ai_sdk command_line}; do
    say "$client.mjs"
    (cd "$home" && timeout 120 node "$client.mjs")
done
say "all agents came to their answer"
