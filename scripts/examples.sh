#!/bin/sh
# Runs every file of examples/ against the real embedded model. Each client is installed into an environment of its own
# under ${EXAMPLES_DIR:-a temporary directory}, never into the development one. Exit code 75: a client could not be
# installed, so nothing was run.
set -eu
cd -- "$(dirname -- "$0")/.."
. scripts/bootstrap.sh
bootstrap local

home=${EXAMPLES_DIR:-$(mktemp -d)}
log=$home/server.log
server=
finish() {
    [ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null || true
    [ -n "${EXAMPLES_DIR:-}" ] || rm -rf "$home"
}
trap finish EXIT
mkdir -p "$home"

say "installing the clients into $home"
find_python
[ -x "$home/venv/bin/python" ] || run "$python" -m venv "$home/venv"
cp examples/*.mjs examples/package.json "$home"
{
    run "$home/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r examples/requirements.txt &&
        (cd "$home" && run npm install --silent --no-audit --no-fund)
} || {
    say "the clients could not be installed"
    exit 75
}

say "starting the server"
: >"$log"
"$venv_python" -m paraserve serve --port 0 2>"$log" &
server=$!
url=
for _ in $(seq 1 120); do
    url=$(sed -n 's/.*ready on \(http:[^" ]*\).*/\1/p' "$log" | head -n 1)
    [ -z "$url" ] || break
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; fail "the server did not start"; }
    sleep 0.5
done
[ -n "$url" ] || fail "the server did not get ready"
OPENAI_BASE_URL=$url/v1 OPENAI_API_KEY=none
# LiteLLM would fetch its list of prices.
LITELLM_LOCAL_MODEL_COST_MAP=True
export OPENAI_BASE_URL OPENAI_API_KEY LITELLM_LOCAL_MODEL_COST_MAP

for example in openai_client tool_loop langchain_client litellm_client; do
    say "$example.py"
    timeout 120 "$home/venv/bin/python" "examples/$example.py"
done
for example in openai_client ai_sdk_client; do
    say "$example.mjs"
    (cd "$home" && timeout 120 node "$example.mjs")
done
say "all examples passed"
