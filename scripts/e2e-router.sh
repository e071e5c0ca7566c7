#!/usr/bin/env bash
# The real sglang-router, regular and prefill/decode (docs/engines.md): SGLang's adapter and the failures of either leg
# in front of scripted workers, and the server's e2e suite in front of workers that have llama.cpp behind them.
#
#   scripts/e2e-router.sh [VERSION]
#
# Makes what it needs: paraserve's own environment as ./test does, and one for the router.
# ROUTER_ENV  where the router's is kept (default: a temporary directory, removed at the end)
# PYTHON      interpreter to make them with, 3.11 or newer
set -euo pipefail
cd -- "$(dirname -- "$0")/.."
. scripts/bootstrap.sh
bootstrap local,dev
find_python

version=${1:-0.3.2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
env=${ROUTER_ENV:-$work/env}
if [ "$(cat "$env/version" 2>/dev/null)" != "$version" ]; then
  say "installing sglang-router $version into $env"
  "$python" -m venv --clear "$env"
  "$env/bin/pip" install --quiet "sglang-router==$version" > "$work/pip.log" 2>&1 ||
    { tail -20 "$work/pip.log" >&2; fail "sglang-router $version could not be installed"; }
  echo "$version" > "$env/version"
fi
export PARASERVE_ROUTER_PYTHON=$env/bin/python PYTHONPATH=.:scripts
say "sglang-router $version, $(date -u +%F): the adapter's contract, and either leg's failures"
"$venv_python" -m pytest -p no:cacheprovider scripts/router_contract.py
# Without the suite of --workers, whose servers have engines of their own.
"$venv_python" scripts/router_e2e.py -m "not slow" tests/e2e --ignore tests/e2e/test_workers.py
say "all passed: sglang-router $version, $(date -u +%F)"
