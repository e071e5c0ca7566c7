#!/bin/sh
# Agents' own clients of /v1/messages and /v1/responses (examples/agents/): the loop of a tool call to its answer against
# a model that is played, in three models' forms, and what the small real model can do. The clients are installed under
# ${AGENTS_DIR:-a temporary directory}, never into the development environment; AGENTS_CLIENTS names some of them. Exit
# code 75: a client could not be installed, so nothing was run.
set -eu
cd -- "$(dirname -- "$0")/.."
. scripts/clients.sh

home "${AGENTS_DIR:-}"
install examples/agents
# No traces to OpenAI, no list of prices for LiteLLM, no lists of models and updates for opencode.
OPENAI_AGENTS_DISABLE_TRACING=1 LITELLM_LOCAL_MODEL_COST_MAP=True OPENCODE_DISABLE_MODELS_FETCH=1
OPENCODE_DISABLE_AUTOUPDATE=1
export OPENAI_AGENTS_DISABLE_TRACING LITELLM_LOCAL_MODEL_COST_MAP OPENCODE_DISABLE_MODELS_FETCH
export OPENCODE_DISABLE_AUTOUPDATE
# A package may be there without the program of this machine, or beside one of its own that broke it.
loads "a Python client" "$home/venv/bin/python" -c \
    "import agents, anthropic, langchain.agents, langchain_anthropic, langchain_openai, litellm, openai, pydantic_ai"
loads "an npm client" node --input-type=module -e \
    "for (const name of Object.keys((await import('./package.json', { with: { type: 'json' } })).default.dependencies)) \
     if (!['@openai/codex', 'opencode-ai'].includes(name)) await import(name)"
for program in codex opencode; do
    loads "$program" env HOME="$home" "$home/node_modules/.bin/$program" --version
done

say "starting the servers"
"$venv_python" examples/agents/scripted.py "$home"
model=$("$venv_python" -c 'from paraserve.engines.llama_cpp.embedded import default_model_path as f; print(f())')
# play FORM TOOL_CALL_PARSER REASONING_PARSER TEMPLATE_ARGUMENTS
play() {
    serve "$1" --engine scripted --engine-script "$home/$1.json" --model-path "$model" \
        --served-model-name scripted --chat-template "$home/chat.jinja" --chat-template-kwargs "$4" \
        --tool-call-parser "$2" --reasoning-parser "$3" --response-store "$home/responses.db"
    played="$played $1=$url"
}
played=
play qwen3 hermes qwen3 '{}'
play kimi_k2 kimi_k2 kimi_k2 '{"ids": true}'
play glm glm47 glm47 '{}'
serve smollm2 --served-model-name smollm2 --response-store memory
real="smollm2=$url"

export AGENTS_SERVERS
for client in ${AGENTS_CLIENTS:-anthropic_sdk openai_sdk openai_agents frameworks real_model}; do
    AGENTS_SERVERS=$played
    [ "$client" != real_model ] || AGENTS_SERVERS=$real
    python_client "examples/agents/$client.py"
done
for client in ${AGENTS_CLIENTS:-anthropic_sdk openai_sdk openai_agents ai_sdk command_line real_model}; do
    AGENTS_SERVERS=$played
    [ "$client" != real_model ] || AGENTS_SERVERS=$real
    node_client "$client.mjs"
done
say "all agents came to their answer"
