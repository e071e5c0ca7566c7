"""SGLang and vLLM started by us: which command, on which port, with which adapter.

Never knows models: what an engine needs beyond the model's path is given in its own flags. One invariant: a flag that
decides what is decided here is refused, so that the adapter and the child never disagree.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from paraserve.engines.base import EngineStartError
from paraserve.engines.child import ChildEngine, ChildServer
from paraserve.engines.http.client import HTTPTimeouts
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.sglang.engine import SGLangEngine
from paraserve.engines.vllm.engine import VLLMEngine

_OURS = ("--host", "--port", "--model-path", "--model")


@dataclass(frozen=True, slots=True)
class Launch:
    """An engine that is not started yet.

    Args:
        defers_constraints: whether it will hold constraints back until the reasoning has ended.
    """

    server: ChildServer
    defers_constraints: bool = False


def prepare(engine: Literal["sglang", "vllm"], model_path: str, flags: Sequence[str] = ()) -> Launch:
    """How the engine is started on a free port. Raises `EngineStartError` for a flag that is not its to set."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    if engine == "sglang":
        # Log probabilities of the model itself, not of the temperature: what the other engines give.
        environment = {"SGLANG_RETURN_ORIGINAL_LOGPROB": "1"}
        return Launch(ChildServer(sglang_command(model_path, port, flags), url, environment=environment))
    defers = any(flag.split("=", 1)[0] == "--reasoning-parser" for flag in flags)
    return Launch(ChildServer(vllm_command(model_path, port, flags), url), defers)


def launch(
    engine: Literal["sglang", "vllm"],
    model_path: str,
    facts: ModelFacts,
    flags: Sequence[str] = (),
    *,
    timeouts: HTTPTimeouts | None = None,
) -> ChildEngine:
    """The engine as a child process with its adapter, not started yet. Raises `EngineStartError` as `prepare`."""
    prepared = prepare(engine, model_path, flags)
    url = prepared.server.base_url
    if engine == "sglang":
        return ChildEngine(prepared.server, SGLangEngine(url, facts, timeouts=timeouts))
    adapter = VLLMEngine(url, facts, timeouts=timeouts, defers_constraints=prepared.defers_constraints)
    return ChildEngine(prepared.server, adapter)


def sglang_command(model_path: str, port: int, flags: Sequence[str] = ()) -> list[str]:
    """``python -m sglang.launch_server`` with this interpreter; ``flags`` are SGLang's own."""
    _refuse_ours(flags)
    # Events with what is new only: the default repeats the whole reply in each, which is quadratic on the wire.
    return [
        sys.executable, "-m", "sglang.launch_server", "--model-path", model_path, "--host", "127.0.0.1",
        "--port", str(port), "--incremental-streaming-output", *flags,
    ]  # fmt: skip


def vllm_command(model_path: str, port: int, flags: Sequence[str] = ()) -> list[str]:
    """``vllm serve`` with its token API open and its cached tokens told; ``flags`` are vLLM's own."""
    _refuse_ours(flags)
    return [
        "vllm", "serve", model_path, "--host", "127.0.0.1", "--port", str(port), "--enable-scale-out",
        "--enable-prompt-tokens-details", *flags,
    ]  # fmt: skip


def free_port() -> int:
    """A TCP port of this machine on which nothing listened just now."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
        return port


def _refuse_ours(flags: Sequence[str]) -> None:
    for flag in flags:
        name = flag.split("=", 1)[0]
        if name in _OURS:
            raise EngineStartError(f"{name} is chosen by the server: leave it out after --")
