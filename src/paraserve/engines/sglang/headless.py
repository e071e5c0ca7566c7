"""SGLang started without its front end: what stands against it, its command, and its start.

Never knows requests. Invariant: what nobody has run by these messages is refused here, with the reason, and served over
HTTP.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraserve.engines.base import EngineStartError
from paraserve.engines.child import ChildServer, EngineAddress, Program, WireAddress, socket_directory
from paraserve.engines.sglang import launcher
from paraserve.engines.sglang.messages import Messages
from paraserve.engines.wire.layout import UnknownLayout
from paraserve.engines.wire.refusals import NotByWire, refuse_media, vocab_size

RUN_WITH = "0.5.23"
NOT_BY_WIRE = (
    "--dp", "--data-parallel", "--enable-dp", "--load-balance", "--nnodes", "--node-rank", "--dist-init", "--config",
    "--disaggregation", "--tokenizer-worker", "--detokenizer-worker", "--skip-tokenizer", "--speculative", "--grpc",
    "--smg", "--lora", "--enable-lora", "--preferred-sampling", "--enable-custom-logit", "--pp", "--pipeline",
    "--elastic", "--ep-join", "--is-embedding", "--enable-metrics", "--weight-cache", "--model-impl", "--watermark",
    "--beam", "--return-sampling", "--enable-mis",
)  # fmt: skip
"""SGLang's flags, or how they begin, that ask for what was not run by these messages."""
ORIGINAL_LOGPROBS = {"SGLANG_RETURN_ORIGINAL_LOGPROB": "1"}
"""Log probabilities of the model itself, not of the temperature: what the other engines give."""
_POLL_SECONDS = 0.1


def check_wire(model_path: Path, flags: Sequence[str], *, workers: int, any_release: bool) -> str:
    """The installed release. Raises `NotByWire`.

    Args:
        any_release: whether one is taken with which nobody has run this yet.
    """
    if workers > 1:
        raise NotByWire("SGLang has one front end, and --workers would be several")
    for flag in flags:
        if flag.startswith(NOT_BY_WIRE):
            raise NotByWire(f"SGLang with {flag.partition('=')[0]} is reached over HTTP")
    refuse_media(model_path)
    if importlib.util.find_spec("sglang") is None:
        raise NotByWire("SGLang is not installed for this Python")
    version = importlib.metadata.version("sglang")
    if not any_release and version != RUN_WITH:
        raise NotByWire(f"SGLang {version} was not run by these messages yet: --engine-wire zmq tries it")
    return version


def schedulers_program(model_path: str, flags: Sequence[str] = ()) -> Program:
    """SGLang's schedulers with this interpreter; ``flags`` are SGLang's own."""
    directory = socket_directory()
    command = (sys.executable, str(Path(launcher.__file__)), directory, "--model-path", model_path, *flags)
    facts = {"vocab_size": vocab_size(Path(model_path))}
    return Program(
        name="sglang",
        command=command,
        address=EngineAddress(wire=WireAddress(directory, facts=facts)),
        environment=ORIGINAL_LOGPROBS,
    )


class HeadlessSGLang(ChildServer):
    """The launcher's process."""

    def __init__(self, program: Program, **timeouts: float) -> None:
        super().__init__(program, **timeouts)
        assert program.address.wire is not None
        self._place = program.address.wire

    @property
    def address(self) -> EngineAddress:
        return replace(self._program.address, wire=self._place)

    async def stop(self) -> None:
        await super().stop()
        shutil.rmtree(self._place.directory, ignore_errors=True)

    async def _spawn(self, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
        os.makedirs(self._place.directory, mode=0o700, exist_ok=True)
        self._told.unlink(missing_ok=True)
        return await super()._spawn(environment)

    @property
    def _told(self) -> Path:
        return Path(self._place.directory) / "ready.json"

    async def _until_healthy(self, process: asyncio.subprocess.Process) -> None:
        ended = asyncio.ensure_future(process.wait())
        try:
            while not self._told.exists():
                await asyncio.wait({ended}, timeout=_POLL_SECONDS)
                if ended.done():
                    raise EngineStartError(await self._reason(ended.result()))
        finally:
            ended.cancel()
        told: dict[str, Any] = json.loads(self._told.read_text())
        try:
            Messages(told["layout"])
        except UnknownLayout as error:
            why = f"the messages of SGLang {told['version']} are not known ({error}); start with --engine-wire http"
            raise EngineStartError(why) from error
        self._place = replace(self._place, facts={**self._place.facts, **told})
