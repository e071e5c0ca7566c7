"""Whether the installed vLLM can be spoken to without its HTTP server, and what its adapter has to know of it.

Never runs vLLM and never imports it. Invariant: what nobody has run by these messages is refused here, with the reason,
and served over HTTP.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paraserve.engines.vllm.messages import SOURCES, Messages
from paraserve.engines.wire.layout import Layout, UnknownLayout, declared
from paraserve.engines.wire.refusals import NotByWire, refuse_media, vocab_size

RUN_WITH = "0.32."
"""The releases that `auto` takes this way: those that the whole contract was run against."""
NOT_BY_WIRE = (
    "--data-parallel", "-dp", "--api-server-count", "-asc", "--nnodes", "--node-rank", "--master-addr", "--headless",
    "--config", "--kv-transfer-config", "--ec-transfer-config", "--spec", "-sc",
    "--structured-outputs-config", "-so", "--guided-decoding-backend", "--skip-tokenizer-init", "--tokens-only",
    "--watermark-config", "--logits-processors", "--runner", "--grpc",
)  # fmt: skip
"""vLLM's flags, or how they begin, that ask for what was not run by these messages."""
_FIND = (
    "import importlib.metadata as m, importlib.util as u; spec = u.find_spec('vllm'); "
    "print(m.version('vllm')); print(spec.submodule_search_locations[0])"
)


def wire_facts(model_path: Path, flags: Sequence[str], *, any_release: bool) -> dict[str, Any]:
    """What the adapter is told: ``version``, ``layout``, ``loras``, ``vocab_size``. Raises `NotByWire`.

    Args:
        any_release: whether one is taken with which nobody has run this yet.
    """
    for name in (flag.partition("=")[0].replace("_", "-") for flag in flags):  # vLLM takes either
        if name.startswith(NOT_BY_WIRE):
            raise NotByWire(f"vLLM with {name} is reached over HTTP")
    refuse_media(model_path)
    command = shutil.which("vllm")
    if command is None:
        raise NotByWire("there is no vllm command")
    version, package = _package(Path(command).resolve().parent)
    if not any_release and not version.startswith(RUN_WITH):
        raise NotByWire(f"vLLM {version} was not run by these messages yet: --engine-wire zmq tries it")
    try:
        layout: Layout = {
            name: fields
            for file, names in SOURCES.items()
            for name, fields in declared((package / file).read_text(), names).items()
        }
        Messages(layout)
    except (UnknownLayout, OSError, SyntaxError) as error:
        raise NotByWire(f"the messages of vLLM {version} are not known ({error})") from error
    return {"layout": layout, "loras": loras(flags), "vocab_size": vocab_size(model_path), "version": version}


def defers_constraints(flags: Sequence[str]) -> bool:
    """Whether a vLLM that is started with these holds constraints back until the reasoning has ended."""
    return any(flag.split("=", 1)[0] == "--reasoning-parser" for flag in flags)


def _package(directory: Path) -> tuple[str, Path]:
    """Release and place of the vLLM whose command lies in a directory."""
    python = next((path for name in ("python", "python3") if (path := directory / name).exists()), None)
    if python is None:
        raise NotByWire("there is no Python beside the vllm command")
    try:
        told = subprocess.run(
            [python, "-P", "-c", _FIND], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        version, package = told.split("\n")[:2]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise NotByWire("the Python beside the vllm command does not say which vLLM it has") from error
    return version, Path(package)


def loras(flags: Sequence[str]) -> dict[str, str]:
    """The adapters of ``--lora-modules``: name to path, each ``name=path`` or JSON with both. Raises `NotByWire`."""
    words, taking = list[str](), False
    for flag in flags:
        if flag.startswith("-"):
            name, given, value = flag.partition("=")
            taking = name.replace("_", "-") == "--lora-modules"
            words += [value] if taking and given else []
        elif taking:
            words.append(flag)
    found = {}
    for word in words:
        try:
            told = json.loads(word) if word.startswith("{") else _named(word)
            found[str(told["name"])] = str(told["path"])
        except (ValueError, LookupError, TypeError) as error:
            raise NotByWire(f"{word!r} of --lora-modules cannot be read") from error
    return found


def _named(word: str) -> dict[str, str]:
    name, _, path = word.partition("=")
    return {"name": name, "path": path}
