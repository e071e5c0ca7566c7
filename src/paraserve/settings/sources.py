"""The three places that options are read from: a command line, the environment, a YAML or TOML file.

A source must never know of another one or of precedence: it gives what it holds. Invariant: every refusal names the
flag, the variable, or the file and its key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paraserve.settings.declare import ConfigurationError, Option, convert, suggestion

_PREFIX = "PARASERVE_"
_SERVICE_LINK = re.compile(r"PARASERVE_(?:PORT(?:_.*)?|SERVICE_.*)")
"""What Kubernetes sets in every pod of a namespace that has a service named ``paraserve``."""


@dataclass(slots=True)
class Given:
    """What a source says: option name to typed value, and where it stood. ``warnings`` are lines for the operator."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def put(self, option: Option, value: object, source: str) -> None:
        self.values[option.name] = convert(option, value, source)
        self.origins[option.name] = source


def read_arguments(options: Sequence[Option], arguments: Sequence[str]) -> Given:
    """Flags as ``--flag value``, ``--flag=value``, ``--switch`` or ``--no-switch``; ``_`` and ``-`` mean the same.

    A flag that is repeated adds to a list and replaces anything else. Raises `ConfigurationError`.
    """
    by_key = {option.key: option for option in options}
    off_keys = {"no-" + option.key: option for option in options if option.kind == "switch"}
    given = Given()
    lists: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--") or argument == "--":
            raise ConfigurationError(f"unexpected argument {argument!r}: every option is a --flag (see --help)")
        written, equals, value = argument.partition("=")
        key = written[2:].replace("_", "-")
        if key in off_keys and key not in by_key:
            if equals:
                raise ConfigurationError(f"{written} takes no value")
            given.put(off_keys[key], False, written)
            continue
        option = by_key.get(key)
        if option is None:
            hint = suggestion("--" + key, ["--" + known for known in (*by_key, *off_keys)])
            raise ConfigurationError(f"unknown flag {written}{hint or ' (see --help)'}")
        if option.kind == "switch":
            if not equals and rest and not rest[0].startswith("-"):
                raise ConfigurationError(f"{written} takes no value: write {option.flag} or --no-{option.key}")
            given.put(option, value if equals else True, written)
            continue
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise ConfigurationError(f"{written} needs a value: {option.flag} {option.value_text}")
            value = rest.pop(0)
        if option.kind == "list":
            lists.setdefault(option.name, []).append(value)
            given.put(option, lists[option.name], written)
        else:
            given.put(option, value, written)
    return given


def read_environment(options: Sequence[Option], environment: Mapping[str, str]) -> Given:
    """Variables ``PARASERVE_…``. An empty one counts as unset (but `_check_door`); an unknown one that resembles an
    option is a warning.

    Raises `ConfigurationError`.
    """
    by_variable = {option.variable: option for option in options}
    given = Given()
    for variable, text in environment.items():
        if not variable.startswith(_PREFIX):
            continue
        if not text:
            _check_door(by_variable.get(variable), variable)
            continue
        if _SERVICE_LINK.fullmatch(variable) and (variable not in by_variable or "://" in text):
            continue
        option = by_variable.get(variable)
        if option is not None:
            given.put(option, text, variable)
        elif hint := suggestion(variable.removeprefix(_PREFIX), [option.name.upper() for option in options]):
            given.warnings.append(f"environment variable {variable} is not an option and is ignored{hint}")
    return given


def read_file(options: Sequence[Option], path: Path) -> Given:
    """A flat YAML (``.yaml``, ``.yml``, ``.json``) or TOML (``.toml``) file whose keys are flag names without dashes
    in front; ``_`` and ``-`` mean the same. Raises `ConfigurationError`.
    """
    by_key = {option.key: option for option in options}
    given = Given()
    for key, value in _load(path).items():
        source = f"{path}: {key}"
        option = by_key.get(str(key).replace("_", "-"))
        if option is not None and option.name in given.origins:
            raise ConfigurationError(f"{source}: stands there twice")
        if option is None:
            raise ConfigurationError(f"{source}: unknown key{suggestion(str(key).replace('_', '-'), by_key)}")
        if value is not None:
            given.put(option, value, source)
        else:
            _check_door(option, source)
    return given


def _check_door(option: Option | None, source: str) -> None:
    """What is empty counts as not given, but not where a server would be open that was meant to be shut."""
    if option is not None and option.door:
        raise ConfigurationError(f"{source}: is empty, and the server would ask for no key: give one, or take it out")


def _load(path: Path) -> dict[Any, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigurationError(f"cannot read configuration file {path}: {reason}") from error
    match path.suffix.lower():
        case ".toml":
            content = _parse_toml(path, text)
        case ".yaml" | ".yml" | ".json":
            content = _parse_yaml(path, text)
        case other:
            raise ConfigurationError(
                f"configuration file {path}: {other or 'no suffix'} is not .yaml, .yml, .json or .toml"
            )
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationError(f"configuration file {path}: expected option names with values at the top level")
    return content


def _parse_toml(path: Path, text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"configuration file {path} is not TOML: {error}") from error


def _parse_yaml(path: Path, text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key that stands twice, of which the language's own takes the last without a word."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            twice = next((key for place, key in enumerate(keys) if key in keys[:place]), None)
            if twice is not None:
                raise ConfigurationError(f"{path}: {twice}: stands there twice")
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise ConfigurationError(f"configuration file {path} is not YAML: {problem}") from error
