# What the runs of other people's clients have in common. Sourced by scripts/examples.sh and scripts/agents.sh from the
# repository's root. A client that cannot be had is no fault of the code: exit code 75 (sysexits.h), and nothing was run.
# How long something may take is what only a fault uses up, however busy the machine is.
. scripts/bootstrap.sh
bootstrap local

INSTALL_SECONDS=900
START_SECONDS=300
CLIENT_SECONDS=300
servers=

# home DIRECTORY: $home is the DIRECTORY, or a temporary one that is removed at the end, and servers end with the script.
home() {
    kept=$1
    home=${kept:-$(mktemp -d)}
    mkdir -p "$home"
    trap finish EXIT
}

finish() {
    for server in $servers; do
        { kill "$server" && wait "$server"; } 2>/dev/null || true
    done
    [ -n "$kept" ] || rm -rf "$home"
}

lacking() {
    say "$1: nothing was run"
    exit 75
}

# install EXAMPLES: the packages that the directory lists, in an environment of their own below $home.
install() {
    say "installing the clients into $home"
    find_python
    [ -x "$home/venv/bin/python" ] || run "$python" -m venv "$home/venv" || lacking "no environment could be made"
    cp "$1"/*.mjs "$1/package.json" "$home"
    run timeout "$INSTALL_SECONDS" "$home/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        -r "$1/requirements.txt" || lacking "the Python clients could not be installed"
    (cd "$home" && run timeout "$INSTALL_SECONDS" npm install --loglevel error --no-audit --no-fund) ||
        lacking "the npm clients could not be installed"
}

# loads NAME COMMAND...: that what was installed can be started at all.
loads() {
    name=$1
    shift
    (cd "$home" && timeout "$START_SECONDS" "$@" >"$home/loads.log" 2>&1 </dev/null) ||
        { tail -n 20 "$home/loads.log" >&2; lacking "$name was installed and cannot be started"; }
}

# serve NAME FLAGS...: a server; its address is $url.
serve() {
    log=$home/$1.log
    shift
    : >"$log"
    "$venv_python" -m paraserve serve --port 0 "$@" 2>"$log" &
    server=$!
    servers="$servers $server"
    for _ in $(seq 1 $((START_SECONDS * 2))); do
        url=$(sed -n 's/.*ready on \(http:[^" ]*\).*/\1/p' "$log" | head -n 1)
        [ -z "$url" ] || return 0
        kill -0 "$server" 2>/dev/null || { cat "$log" >&2; fail "the server did not start"; }
        sleep 0.5
    done
    cat "$log" >&2
    fail "the server did not get ready"
}

# python_client FILE, node_client FILE: one run of it.
python_client() {
    say "$(basename "$1")"
    timeout --kill-after 10 "$CLIENT_SECONDS" "$home/venv/bin/python" "$1" || fail "$(basename "$1") failed ($?)"
}

node_client() {
    say "$1"
    (cd "$home" && timeout --kill-after 10 "$CLIENT_SECONDS" node "$1") || fail "$1 failed ($?)"
}
