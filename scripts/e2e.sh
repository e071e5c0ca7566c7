# What the runs against other people's engines have in common. Sourced by scripts/e2e-*.sh from the repository's root,
# after `set -euo pipefail`. Gives $work (removed at the end), $env's installation, servers, and counted tests.
. scripts/bootstrap.sh
bootstrap local,dev
find_python

work=$(mktemp -d)
servers=()
counts=()
failed=
export HF_HUB_OFFLINE=1

end() {
  for each in ${servers[@]+"${servers[@]}"}; do stop "$each"; done
  rm -rf "$work"
}
trap end EXIT

# install COMMAND…: with its output shown when it fails. 75 is what sysexits.h calls a failure that is not for good.
install() {
  "$@" > "$work/install.log" 2>&1 && return
  tail -20 "$work/install.log" >&2
  say "the packages cannot be had: nothing was tested"
  exit 75
}

# installed VERSION FUNCTION: makes $env by FUNCTION unless it has the VERSION. What was broken off is made again.
installed() {
  [[ $(cat "$env/version" 2> /dev/null) = "$1" ]] && return
  install "$python" -m venv --clear "$env"
  "$2"
  echo "$1" > "$env/version"
}

# checkpoint NAME [tiny]: the default model as float32 in $work/NAME, and what transformers replies in $work/NAME.json.
checkpoint() {
  gguf=$("$venv_python" -c 'from paraserve.engines.llama_cpp.embedded import default_model_path; print(default_model_path())')
  "$env/bin/python" scripts/greedy_reference.py "$gguf" "$work/$1" "$work/$1.json" "${@:2}" 2> "$work/reference.log" ||
    { tail -20 "$work/reference.log" >&2; fail "transformers gave no replies"; }
}

# start NAME SECONDS COMMAND…: a server in a session of its own, on $url. Its output is in $work/NAME.log, its id $server.
start() {
  local log=$work/$1.log deadline=$((SECONDS + $2))
  url=http://127.0.0.1:$port
  setsid "${@:3}" > "$log" 2>&1 &
  server=$!
  servers+=("$server")
  until "$venv_python" -c "import urllib.request as u; u.urlopen('$url/health', timeout=2)" 2> /dev/null; do
    if ! kill -0 "$server" 2> /dev/null || ((SECONDS > deadline)); then
      tail -40 "$log" >&2
      fail "$1 did not get ready"
    fi
    sleep 2
  done
}

stop() {
  kill -TERM -- "-$1" 2> /dev/null || true
  wait "$1" 2> /dev/null || true
  kill -KILL -- "-$1" 2> /dev/null || true
}

free_port() {
  port=$("$venv_python" -c 'from paraserve.engines.build import free_port; print(free_port())')
}

# by_wire LOG COMMAND…: an engine without its HTTP server; its address will be in $work/address.json, its id is $server.
by_wire() {
  rm -f "$work/address.json"
  setsid "${@:2}" > "$work/$1.log" 2>&1 &
  server=$!
  servers+=("$server")
  until [[ -s $work/address.json ]]; do
    kill -0 "$server" 2> /dev/null || { tail -40 "$work/$1.log" >&2; fail "$1 did not get ready"; }
    sleep 1
  done
}

# tested NAME PYTEST-ARGUMENT…: runs them and counts; a failure is told at the end.
tested() {
  say "$1"
  PYTHONPATH=.:scripts "$venv_python" -m pytest -p no:cacheprovider "${@:2}" | tee "$work/tests.log" || failed=1
  counts+=("$1 $("$venv_python" - "$work/tests.log" <<'PY'
import re, sys
found = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", open(sys.argv[1]).read().splitlines()[-1])}
print(found.get("passed", 0), "of", sum(found.values()))
PY
)")
}

# The server's own suite before an engine of these flags; without those tests whose servers have engines of their own.
suite() {
  PARASERVE_E2E_ENGINE=$2 tested "$1" -m "not slow" tests/e2e --ignore tests/e2e/test_workers.py
}

# The last line: every count, and a status that says whether all passed.
conclude() {
  (IFS=';'; say "$1, $(date -u +%F): ${counts[*]}")
  [[ -z $failed ]]
}
