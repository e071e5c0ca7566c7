#!/bin/sh
# Runs every file of examples/ against the real embedded model. The clients are installed under ${EXAMPLES_DIR:-a
# temporary directory}, never into the development environment. Exit code 75: a client could not be installed, so
# nothing was run.
set -eu
cd -- "$(dirname -- "$0")/.."
. scripts/clients.sh

home "${EXAMPLES_DIR:-}"
install examples
say "starting the server"
serve server
OPENAI_BASE_URL=$url/v1 OPENAI_API_KEY=none
# LiteLLM would fetch its list of prices.
LITELLM_LOCAL_MODEL_COST_MAP=True
export OPENAI_BASE_URL OPENAI_API_KEY LITELLM_LOCAL_MODEL_COST_MAP

for example in openai_client tool_loop langchain_client litellm_client; do
    python_client "examples/$example.py"
done
for example in openai_client ai_sdk_client; do
    node_client "$example.mjs"
done
say "all examples passed"
