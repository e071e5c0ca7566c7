"""The command line: ``paraserve serve``, ``paraserve options``, ``paraserve completion``.

Reads arguments and prints; it must never know how serving works, and imports what a command needs only when that
command runs, so that help answers at once. Invariant: a wrong configuration is one line on standard error and exit
code 2.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from paraserve import __version__

if TYPE_CHECKING:
    import argparse

USAGE_ERROR = 2

_HELP = """\
usage: paraserve COMMAND [--flag value ...]

OpenAI-compatible serving of open-weight models.

commands:
  serve      serve a model over HTTP (paraserve serve --help lists the flags)
  options    print the reference of all flags as Markdown
  completion print shell completion: paraserve completion bash|zsh|fish

  --version  print the version
  --help     print this
"""

_COMMANDS = {
    "serve": "serve a model over HTTP",
    "options": "print the reference of all flags as Markdown",
    "completion": "print shell completion",
}

_SHELLS = ("bash", "zsh", "fish")

_SERVE_HELP = """\
usage: paraserve serve [--config FILE] [--flag value ...] [-- ENGINE FLAGS]

Serve a model over the OpenAI API. Without flags: a small model on this CPU.

Every flag can also be an environment variable (--port: PARASERVE_PORT) or a key
of a YAML or TOML file (port: 30000) that --config FILE or PARASERVE_CONFIG
names. The command line wins over the environment, which wins over the file.

With --engine sglang or vllm and no --engine-url, the engine is started with the
flags after --, and stopped again.
"""

_OPTIONS_HEAD = """\
# Configuration

Every option of `paraserve serve`. This page is made by `paraserve options`, from the declarations in
`src/paraserve/settings/`.

An option can be given in three places. The command line wins over the environment, which wins over the file.

| Where | How | Example |
|---|---|---|
| command line | the flag; `_` may stand for `-` | `--port 30000` |
| environment | `PARASERVE_` and the name in capitals, `_` for `-` | `PARASERVE_PORT=30000` |
| file | the name; YAML (`.yaml`, `.yml`), JSON (`.json`) or TOML (`.toml`), named by `--config FILE` or \
`PARASERVE_CONFIG` | `port: 30000` |

- A switch is turned on by `--flag` and off by `--no-flag`; elsewhere it is `true` or `false`.
- A list is repeated or separated with commas; in a file it may be a list. Its sources are not added up: the winning
  one is taken whole.
- A preset (`--openai-compat`) fills in values that the same source does not give itself, whatever the order.
- An unknown flag or file key, a value that is not valid and options that do not go together end the start with one
  line that names the source, and exit code 2.
- An empty environment variable counts as unset, and so does an empty key of a file; where they are for API keys, they
  end the start. A key that stands twice in a file does, too.
- The variables that Kubernetes sets for a service named `paraserve` (`PARASERVE_PORT=tcp://…`,
  `PARASERVE_SERVICE_HOST`, …) are ignored.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit code of the process."""
    match list(sys.argv[1:] if arguments is None else arguments):
        case ["serve", *rest]:
            return _serve(rest)
        case ["options"]:
            _print(configuration_page())
            return 0
        case ["completion", *shell]:
            return _completion(shell)
        case ["--version" | "-V" | "version"]:
            _print(f"paraserve {__version__}")
            return 0
        case ["--help" | "-h" | "help"]:
            _print(_HELP)
            return 0
        case []:
            _print(_HELP, sys.stderr)
            return USAGE_ERROR
        case words:
            return _refuse_command(words[0])


def configuration_page() -> str:
    """What ``docs/configuration.md`` holds."""
    from paraserve.settings import ServerSettings
    from paraserve.settings.declare import options_of
    from paraserve.settings.reference import markdown_reference

    return _OPTIONS_HEAD + "\n" + markdown_reference(options_of(ServerSettings))


def _serve(arguments: list[str]) -> int:
    from paraserve.settings import ServerSettings, load_settings
    from paraserve.settings.declare import ConfigurationError, options_of
    from paraserve.settings.reference import terminal_reference

    if "--help" in arguments or "-h" in arguments:
        width = min(shutil.get_terminal_size().columns, 100)
        _print(f"{_SERVE_HELP}\n{terminal_reference(options_of(ServerSettings), width)}")
        return 0
    try:
        ours, engine_flags = _split_engine_flags(arguments)
        config, rest = _split_config(ours)
        loaded = load_settings(rest, os.environ, config=config or os.environ.get("PARASERVE_CONFIG"))
        if engine_flags and not loaded.settings.starts_engine:
            raise ConfigurationError("--: flags for an engine go with --engine sglang or vllm and without --engine-url")
    except ConfigurationError as error:
        _print(f"paraserve serve: {error}", sys.stderr)
        return USAGE_ERROR
    for warning in loaded.warnings:
        _print(f"paraserve serve: warning: {warning}", sys.stderr)

    if loaded.settings.workers > 1:
        from paraserve.serving.workers.supervisor import supervise

        return supervise(loaded.settings, engine_flags)

    from paraserve.serving.server import serve

    return serve(loaded.settings, engine_flags)


def _split_engine_flags(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before ``--``, and the engine's own flags after it."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _split_config(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of ``--config`` and all other arguments."""
    from paraserve.settings.declare import ConfigurationError

    config: str | None = None
    others: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        flag, equals, value = argument.partition("=")
        if flag != "--config":
            others.append(argument)
        elif equals:
            config = value
        elif rest and not rest[0].startswith("--"):
            config = rest.pop(0)
        else:
            raise ConfigurationError("--config needs a value: --config FILE")
    return config, others


def _completion(shell: Sequence[str]) -> int:
    import shtab

    if len(shell) != 1 or shell[0] not in _SHELLS:
        _print(f"paraserve completion: name a shell: {', '.join(_SHELLS)}", sys.stderr)
        return USAGE_ERROR
    _print(shtab.complete(_parser(), shell[0]))
    return 0


def _parser() -> argparse.ArgumentParser:
    """What may be written, for completion alone: the command line itself is read by `paraserve.settings`."""
    import argparse

    import shtab

    from paraserve.settings import ServerSettings
    from paraserve.settings.declare import options_of

    parser = argparse.ArgumentParser("paraserve")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers()
    serve, _, completion = (commands.add_parser(name, help=text) for name, text in _COMMANDS.items())
    completion.add_argument("shell", choices=_SHELLS)
    files = [serve.add_argument("--config", metavar="FILE", help="read options from a file")]
    for option in options_of(ServerSettings):
        said = option.help.split(". ")[0].rstrip(".").replace("%", "%%")
        if option.kind == "switch":
            for flag in (option.flag, f"--no-{option.key}"):
                serve.add_argument(flag, action="store_true", help=said)
            continue
        added = serve.add_argument(option.flag, choices=option.choices or None, metavar=option.value_text, help=said)
        files += [added] if option.metavar == "PATH" else []
    for each in files:
        each.complete = shtab.FILE  # type: ignore[attr-defined]
    return parser


def _refuse_command(word: str) -> int:
    from paraserve.settings.declare import suggestion

    hint = f"; to serve with it: paraserve serve {word} ..." if word.startswith("--") else suggestion(word, _COMMANDS)
    _print(f"paraserve: unknown command {word}{hint} (see paraserve --help)", sys.stderr)
    return USAGE_ERROR


def _print(text: str, stream: TextIO | None = None) -> None:
    (stream or sys.stdout).write(text.rstrip("\n") + "\n")
