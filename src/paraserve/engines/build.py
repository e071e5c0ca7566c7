"""From settings to an engine: the one that we start, and the adapter for any.

Never knows checkpoints: what an adapter needs of the model is handed to it. One invariant: a flag that decides what is
decided here is refused, so that adapter and engine never disagree.
"""

from __future__ import annotations

import importlib.util
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from paraserve.engines.balancer import BalancedEngine
from paraserve.engines.base import Engine, EngineStartError
from paraserve.engines.child import ChildServer, EngineAddress, Program
from paraserve.engines.http.client import HTTPTimeouts
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.llama_cpp.embedded import EmbeddedOptions, default_model_path, embedded_program
from paraserve.engines.llama_cpp.engine import LlamaCppEngine
from paraserve.engines.scripted.script_file import scripted_engine
from paraserve.engines.sglang.engine import SGLangEngine
from paraserve.engines.sglang.headless import ORIGINAL_LOGPROBS, HeadlessSGLang, check_wire, schedulers_program
from paraserve.engines.vllm.engine import VLLMEngine
from paraserve.engines.vllm.installed import defers_constraints, wire_facts
from paraserve.engines.wire.refusals import NotByWire
from paraserve.settings import ServerSettings

log = logging.getLogger(__name__)

_OURS = ("--host", "--port", "--model-path", "--model")


class Vocabulary(Protocol):
    """What engines are told of the model's tokenizer."""

    def encode(self, text: str, /) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], /) -> str: ...

    def token_bytes(self, token_id: int, /) -> bytes: ...


def model_path_of(settings: ServerSettings) -> Path:
    """Raises `EngineStartError` where no model is named and the default one is not there."""
    if settings.model_path:
        return Path(settings.model_path)
    if settings.engine == "llama.cpp":
        return default_model_path()
    raise EngineStartError(
        f"--engine {settings.engine} needs --model-path: a directory with the checkpoint's tokenizer files"
    )


def engine_of_ours(settings: ServerSettings, flags: Sequence[str] = ()) -> ChildServer | None:
    """The server to start. None where the engine runs elsewhere, or inside of this process.

    Args:
        flags: SGLang's or vLLM's own.

    Raises:
        EngineStartError: a flag is not the operator's to set, or there is no model.
    """
    if settings.engine_url or settings.engine == "scripted":
        return None
    model_path = model_path_of(settings)
    if settings.engine == "llama.cpp":
        options = EmbeddedOptions(
            model_path=str(model_path),
            context_length=settings.context_length or 0,
            slots=settings.parallel,
            threads=settings.threads or 0,
            verbose=settings.log_level == "debug",
        )
        return ChildServer(embedded_program(options))
    _refuse_ours(flags)
    program = sglang_program if settings.engine == "sglang" else vllm_program
    return _by_wire(settings, model_path, flags) or ChildServer(program(str(model_path), free_port(), flags))


def _by_wire(settings: ServerSettings, model_path: Path, flags: Sequence[str]) -> ChildServer | None:
    """The engine without its HTTP server, where that is wanted and can be."""
    wanted = settings.engine_wire
    try:
        if wanted == "http":
            raise NotByWire("--engine-wire")
        if importlib.util.find_spec("zmq") is None:
            raise NotByWire("pyzmq is not installed: pip install 'paraserve[wire]'")
        if settings.engine_extra_fields:
            raise NotByWire("--engine-extra-fields are those of the engine's HTTP server")
        child, version = (_sglang if settings.engine == "sglang" else _vllm)(settings, model_path, flags)
    except NotByWire as reason:
        if wanted == "zmq":
            raise EngineStartError(f"--engine-wire zmq: {reason}; start with --engine-wire http") from reason
        log.info("engine wire: http (%s)", reason)
        return None
    log.info("engine wire: zmq (%s)", version)
    return child


def _vllm(settings: ServerSettings, model_path: Path, flags: Sequence[str]) -> tuple[ChildServer, str]:
    facts = wire_facts(model_path, flags, any_release=settings.engine_wire == "zmq")
    from paraserve.engines.vllm.headless import HeadlessVLLM, headless_program

    child = HeadlessVLLM(headless_program(str(model_path), facts, flags), settings.workers)
    return child, f"vLLM {facts['version']}"


def _sglang(settings: ServerSettings, model_path: Path, flags: Sequence[str]) -> tuple[ChildServer, str]:
    version = check_wire(model_path, flags, workers=settings.workers, any_release=settings.engine_wire == "zmq")
    return HeadlessSGLang(schedulers_program(str(model_path), _sleeping(flags))), f"SGLang {version}"


def sglang_program(model_path: str, port: int, flags: Sequence[str] = ()) -> Program:
    """``python -m sglang.launch_server`` with this interpreter; ``flags`` are SGLang's own."""
    # Events with what is new only: the default repeats the whole reply in each, which is quadratic on the wire.
    command = (
        sys.executable, "-m", "sglang.launch_server", "--model-path", model_path, "--host", "127.0.0.1",
        "--port", str(port), "--incremental-streaming-output", *_sleeping(flags),
    )  # fmt: skip
    return Program(
        name="sglang",
        command=command,
        address=EngineAddress(f"http://127.0.0.1:{port}"),
        environment=ORIGINAL_LOGPROBS,
        package=("sglang", "SGLang is not installed for this Python: install it, or name a running one: --engine-url"),
    )


def _sleeping(flags: Sequence[str]) -> list[str]:
    """SGLang's schedulers use a whole core each while there is nothing to do, unless they are told to sleep."""
    told = {"--sleep-on-idle", "--no-sleep-on-idle"}.intersection(flags)
    return ([] if told else ["--sleep-on-idle"]) + [flag for flag in flags if flag != "--no-sleep-on-idle"]


def vllm_program(model_path: str, port: int, flags: Sequence[str] = ()) -> Program:
    """``vllm serve`` with its token API open and its cached tokens told; ``flags`` are vLLM's own."""
    command = (
        "vllm", "serve", model_path, "--host", "127.0.0.1", "--port", str(port), "--enable-scale-out",
        "--enable-prompt-tokens-details", *flags,
    )  # fmt: skip
    return Program(
        name="vllm", command=command, address=EngineAddress(f"http://127.0.0.1:{port}", None, defers_constraints(flags))
    )


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


def build_engine(
    settings: ServerSettings,
    facts: ModelFacts,
    vocabulary: Vocabulary,
    on_phase: Callable[[str], None],
    ours: EngineAddress | None = None,
) -> Engine:
    """The adapter that the settings name, not started. Raises `EngineStartError`.

    Args:
        on_phase: told what its start is doing, in words for a person.
        ours: where the engine listens that we have started; else it is at the settings' URLs.
    """
    if settings.engine == "scripted":
        assert settings.engine_script is not None
        return scripted_engine(
            Path(settings.engine_script),
            encode=vocabulary.encode,
            decode=vocabulary.decode,
            vocab_size=facts.vocab_size,
            eos_token_ids=sorted(facts.eos_token_ids),
        )
    defers = settings.engine_reasoning_parser if ours is None else ours.defers_constraints
    engines = [
        _adapter(settings, address, facts, vocabulary, on_phase)
        for address in (
            [ours] if ours is not None else [EngineAddress(url, None, defers) for url in settings.engine_url]
        )
    ]
    if settings.engine == "llama.cpp" and len(engines) > 1:
        raise EngineStartError("--engine llama.cpp takes one --engine-url")
    return engines[0] if len(engines) == 1 else BalancedEngine(engines)


def _adapter(
    settings: ServerSettings,
    address: EngineAddress,
    facts: ModelFacts,
    vocabulary: Vocabulary,
    on_phase: Callable[[str], None],
) -> Engine:
    timeouts, api_key = HTTPTimeouts(idle=settings.engine_timeout), settings.engine_api_key
    if settings.engine == "llama.cpp":
        return LlamaCppEngine(
            vocabulary.token_bytes,
            address,
            timeouts=HTTPTimeouts(idle=settings.engine_timeout, call=120.0),
            api_key=api_key,
            on_phase=on_phase,
        )
    if address.wire is not None and settings.engine == "sglang":
        from paraserve.engines.sglang.wire import SGLangWireEngine

        return SGLangWireEngine(address, facts, timeouts=timeouts)
    if address.wire is not None:
        from paraserve.engines.vllm.wire import VLLMWireEngine

        return VLLMWireEngine(address, facts, timeouts=timeouts, max_logprobs=settings.engine_max_logprobs)
    if settings.engine == "sglang":
        return SGLangEngine(address.url, facts, timeouts=timeouts, api_key=api_key)
    return VLLMEngine(
        address.url,
        facts,
        timeouts=timeouts,
        api_key=api_key,
        defers_constraints=address.defers_constraints,
        max_logprobs=settings.engine_max_logprobs,
    )
