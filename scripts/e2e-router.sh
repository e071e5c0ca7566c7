#!/usr/bin/env bash
# The real sglang-router from PyPI in front of fake SGLang workers, regular and prefill/decode (docs/engines.md).
#
#   scripts/e2e-router.sh [VERSION]
#
# Makes an environment of its own in ROUTER_ENV (default: a temporary directory, removed at the end). PYTHON is the
# interpreter that has paraserve and its test dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:-0.3.2}
python=${PYTHON:-python3}
if [[ -z ${ROUTER_ENV:-} ]]; then
  ROUTER_ENV=$(mktemp -d)
  trap 'rm -rf "$ROUTER_ENV"' EXIT
fi
if [[ ! -x $ROUTER_ENV/bin/python ]]; then
  "$python" -m venv "$ROUTER_ENV"
fi
"$ROUTER_ENV/bin/pip" install --quiet "sglang-router==$version"
echo "sglang-router $version, $(date -u +%F)"
"$python" scripts/router_check.py --router-python "$ROUTER_ENV/bin/python"
