"""The house's contract: which room may import which, how large a module may be, where a model's name may stand.

A test and no import-linter: the whole contract is the table below, which reads like docs/architecture.md, counts
imports inside functions as well, and needs no package.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from paraserve.formats.families import FORMATS

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "paraserve"

MAY_IMPORT = {
    # The ground.
    "secrets": "",
    "start_error": "",
    "watched_files": "",
    "settings": "",
    "protocol.error_codes": "",
    "protocol": "",
    "formats.events": "",
    "formats.types": "formats.events",
    "formats.templates": "",
    "formats.spec": "formats.events formats.types formats.templates",
    "formats.families": "formats.templates formats.spec formats.types",
    "formats.reading": "formats.events formats.types formats.templates formats.spec",
    "formats.declared": "formats.events formats.types formats.templates formats.spec formats.reading",
    "formats": "",
    "grammar": "formats.types formats.templates formats.spec",
    "tokenizers": "start_error",
    "store": "start_error",
    "engines.base": "start_error protocol.error_codes",
    "engines.relay": "engines.base",
    "engines.checks": "protocol.error_codes engines.base",
    "engines.scripted": "protocol.error_codes engines.base",
    "engines.http": "protocol.error_codes engines.base engines.checks",
    "engines.child": "protocol.error_codes engines.base engines.http",
    "engines.wire": "protocol.error_codes engines.base engines.checks engines.http",
    "engines.sglang": "protocol.error_codes engines.base engines.checks engines.http engines.child engines.wire",
    "engines.vllm": "protocol.error_codes engines.base engines.checks engines.http engines.child engines.wire",
    "engines.upkeep": "protocol.error_codes engines.base engines.child",
    "engines.llama_cpp": "protocol.error_codes engines.base engines.checks engines.http engines.child",
    "engines": "protocol.error_codes",
    "engines.build": "settings engines.base engines.balancer engines.child engines.http engines.llama_cpp "
    "engines.scripted engines.sglang engines.vllm engines.wire",
    "prompt": "start_error protocol formats.types formats.spec tokenizers engines.base",
    "generation": "protocol formats grammar tokenizers engines.base engines.relay",
    "policies": "secrets settings protocol prompt.thinking",
    "observability": "secrets settings protocol.error_codes generation policies.base",
    "admission": "settings protocol",
    "preparation": "",
    "deployment": "secrets settings protocol formats tokenizers store engines.base preparation prompt generation "
    "policies",
    "api": "secrets start_error watched_files settings protocol formats store engines.base prompt generation policies "
    "observability admission preparation deployment",
    "deploy": "secrets start_error settings protocol formats tokenizers store engines prompt generation policies "
    "deployment",
    "serving": "start_error watched_files settings protocol engines observability admission deployment api deploy",
    "cli": "settings serving",
    "__main__": "cli",
}
"""What each room may import beside itself, from the ground up; the longest name that fits is a module's room. A room
names only rooms that stand above it here or lie within it, so there are no circles."""

MOST_LINES = 400
LONGER: set[str] = set()
"""Modules that are longer today."""

PLACES_OF_MODEL_NAMES = ("formats.families", "formats.registry", "policies", "settings")
MODEL_NAMES = {
    "tokenizers.gguf_pretokenizers": "the values of a field of GGUF files, as llama.cpp lists them",
    "tokenizers.sentencepiece_files": "names of tokenizer classes in tokenizer_config.json",
    "tokenizers.gguf": "a value of a field of GGUF files",
    "engines.llama_cpp.embedded": "the package with the model of the first start",
}
"""Modules with names that are data of a file format or of a package, each with what they are."""


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, ast.Module]:
    return {name_of(path): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def room_of(module: str) -> str:
    return max((room for room in MAY_IMPORT if within(module, room)), key=len, default="")


def imports(tree: ast.Module) -> Iterator[str]:
    """Modules of ours that are imported anywhere in a module; what is only a name in a package is the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "an import that names no package"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("paraserve."):
                found = name.removeprefix("paraserve.")
                while found and found not in modules():
                    found = found.rpartition(".")[0]
                if found:  # else it is the version
                    yield found


def breaches() -> set[tuple[str, str]]:
    return {
        (module, imported)
        for module, tree in modules().items()
        for imported in imports(tree)
        if room_of(module) != room_of(imported)
        and not any(within(imported, room) for room in [room_of(module), *MAY_IMPORT[room_of(module)].split()])
    }


def test_rooms_import_only_what_the_contract_names() -> None:
    assert {module for module in modules() if module and not room_of(module)} == set(), "modules without a room"
    assert breaches() == set(), "imports against the contract"


def test_the_contract_has_no_circles() -> None:
    rooms = list(MAY_IMPORT)
    for at, room in enumerate(rooms):
        below = [
            other for other in MAY_IMPORT[room].split() if room_of(other) in rooms[:at] and not within(room, other)
        ]
        assert below == MAY_IMPORT[room].split(), f"{room} names a room that is not below it"


def test_a_supervisor_of_workers_reads_no_checkpoint_and_answers_no_request() -> None:
    reached: set[str] = set()
    ahead = {"serving.workers.supervisor"}
    while ahead:
        reached |= ahead
        ahead = {imported for module in ahead for imported in imports(modules()[module])} - reached
    rooms = {room_of(module) for module in reached}
    assert rooms & {"api", "prompt", "generation", "formats", "grammar", "tokenizers"} == set()


def test_the_map_has_every_room() -> None:
    page = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text()
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert {room for room in rooms if f"| `{room}/`" not in page} == set()


def test_a_module_is_short_enough_to_be_read() -> None:
    lines = {name_of(path): len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > MOST_LINES}.keys() <= LONGER


def code_of(tree: ast.Module) -> str:
    """A module without its comments and docstrings."""
    kept = ast.parse(ast.unparse(tree))
    for node in ast.walk(kept):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(body, list):
                body[:] = [line for line in body if not is_text(line)] or [ast.Pass()]
    return ast.unparse(kept)


def is_text(line: ast.AST) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


WORDS = {"dots", "llama", "plain", "pythonic", "seed", "step", "think"}
"""Names of formats that are words, or an engine."""
NAMES = {re.findall("[a-z]{2,}|[^_]+", format.name)[0] for format in FORMATS} - WORDS | {r"llama-?(?=\d)"}


def names_of_models(code: str) -> list[str]:
    parts = re.sub("([a-z])([A-Z])", r"\1 \2", code).lower()
    return re.findall(rf"(?<![a-z])(?:{'|'.join(sorted(NAMES))})(?![a-z])", parts)


def test_models_are_named_only_where_their_data_is() -> None:
    elsewhere = {
        module: names
        for module, tree in modules().items()
        if not any(within(module, place) for place in PLACES_OF_MODEL_NAMES)
        and (names := names_of_models(code_of(tree)))
    }
    assert elsewhere.keys() == set(MODEL_NAMES), elsewhere
