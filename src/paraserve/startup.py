"""From settings to a `Deployment`: find the model, read its files, start the engine, and say what goes on.

Everything that can be wrong at start is one line that says what to do (`StartError`, `CheckpointError`,
`EngineStartError`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TextIO

from paraserve.deployment import Deployment
from paraserve.engines.balancer import BalancedEngine
from paraserve.engines.base import Engine, EngineInfo
from paraserve.engines.embedded import EmbeddedOptions, default_model_path
from paraserve.engines.http import HTTPTimeouts
from paraserve.engines.launch import launch
from paraserve.engines.llama_cpp import LlamaCppEngine
from paraserve.engines.remote import ModelFacts
from paraserve.engines.script_file import scripted_engine
from paraserve.engines.sglang import SGLangEngine
from paraserve.engines.vllm import VLLMEngine
from paraserve.formats.registry import Part, detect, get_format
from paraserve.formats.spec import PLAIN, Format, compose
from paraserve.generation.constraint import ConstraintBuilder
from paraserve.generation.detokenize import reply_vocabulary
from paraserve.generation.sampling import model_defaults
from paraserve.observability.logs import FIELDS
from paraserve.policies.table import Policies
from paraserve.prompt.chat import ChatPrompt, PromptSettings
from paraserve.prompt.checkpoint import DEFAULT_TEMPLATE, Checkpoint, load_checkpoint
from paraserve.prompt.gguf import difference_from_llama_cpp
from paraserve.prompt.state import Markers
from paraserve.settings import ServerSettings

log = logging.getLogger(__name__)


class StartError(Exception):
    """The server cannot start as configured. One line for the operator."""


class Progress:
    """Start-up as a person watches it: one line a step, with its time.

    Args:
        as_json: the log is read by machines, so that the steps are lines of the log instead.
    """

    def __init__(self, stream: TextIO, *, as_json: bool = False) -> None:
        self._stream = stream
        self._as_json = as_json
        self._began = time.monotonic()

    def step(self, text: str, facts: Mapping[str, str] = MappingProxyType({})) -> None:
        """Show a step, and below it what it found out."""
        seconds = time.monotonic() - self._began
        if self._as_json:
            log.info("%s", text, extra={FIELDS: {"seconds": round(seconds, 1), **facts}})
            return
        lines = [f"[{seconds:5.1f} s] {text}", *(f"         {name:<9} {value}" for name, value in facts.items())]
        self._stream.write("\n".join(lines) + "\n")
        self._stream.flush()

    def fail(self, reason: str) -> None:
        if self._as_json:
            log.critical("%s", reason)
            return
        self._stream.write(f"error: {reason}\n")
        self._stream.flush()


async def deploy(settings: ServerSettings, progress: Progress, engine_flags: Sequence[str] = ()) -> Deployment:
    """Read the checkpoint, start the engine, and join them. The caller stops the engine."""
    model_path = _model_path(settings)
    progress.step(f"reading {model_path.name}")
    checkpoint = load_checkpoint(
        model_path,
        tokenizer_path=Path(settings.tokenizer_path) if settings.tokenizer_path else None,
        chat_template=settings.chat_template,
    )
    format = choose_format(settings, checkpoint)
    engine = build_engine(settings, model_path, checkpoint, progress.step, engine_flags)
    progress.step(f"starting the engine ({settings.engine})")
    await engine.start()
    try:
        if isinstance(engine, LlamaCppEngine):
            await _check_tokenizer(settings, checkpoint, engine)
        return join(settings, checkpoint, format, engine, model_path=model_path)
    except BaseException:
        await engine.stop()
        raise


async def _check_tokenizer(settings: ServerSettings, checkpoint: Checkpoint, engine: LlamaCppEngine) -> None:
    """llama.cpp has the model's vocabulary too: a text that it reads differently means that ours is a wrong one.

    A tokenizer that the operator gave may normalize text, which llama.cpp never does: then the operator has the say.
    """
    difference = await difference_from_llama_cpp(checkpoint.tokenizer, engine.tokenize)
    if difference is None:
        return
    if settings.tokenizer_path:
        log.warning("the tokenizer differs from the engine's on %r", difference)
        return
    raise StartError(
        f"the tokenizer made from the GGUF file differs from the engine's on {difference!r}: give the model's own "
        "tokenizer files with --tokenizer-path"
    )


def _model_path(settings: ServerSettings) -> Path:
    if settings.model_path:
        return Path(settings.model_path)
    if settings.engine == "llama.cpp":
        return default_model_path()
    raise StartError(
        f"--engine {settings.engine} needs --model-path: a directory with the checkpoint's tokenizer files"
    )


def build_engine(
    settings: ServerSettings,
    model_path: Path,
    checkpoint: Checkpoint,
    on_phase: Callable[[str], None],
    engine_flags: Sequence[str] = (),
) -> Engine:
    """The adapter that the settings name, not started."""
    tokenizer = checkpoint.tokenizer
    if settings.engine == "scripted":
        assert settings.engine_script is not None
        return scripted_engine(
            Path(settings.engine_script),
            encode=tokenizer.encode,
            decode=tokenizer.decode,
            vocab_size=tokenizer.vocab_size,
            eos_token_ids=sorted(checkpoint.eos_token_ids),
        )
    if settings.engine == "llama.cpp":
        return _llama_cpp(settings, model_path, checkpoint, on_phase)
    facts = ModelFacts(
        vocab_size=tokenizer.vocab_size,
        model=model_path.name,
        context_length=settings.context_length or checkpoint.context_length,
        eos_token_ids=checkpoint.eos_token_ids,
    )
    timeouts = HTTPTimeouts(idle=settings.engine_timeout)
    if settings.starts_engine:
        return launch(settings.engine, str(model_path), facts, engine_flags, timeouts=timeouts)
    engines = [_remote_engine(settings, url, facts, timeouts) for url in settings.engine_url]
    return engines[0] if len(engines) == 1 else BalancedEngine(engines)


def _remote_engine(settings: ServerSettings, url: str, facts: ModelFacts, timeouts: HTTPTimeouts) -> Engine:
    if settings.engine == "sglang":
        return SGLangEngine(url, facts, timeouts=timeouts, api_key=settings.engine_api_key)
    return VLLMEngine(
        url,
        facts,
        timeouts=timeouts,
        api_key=settings.engine_api_key,
        defers_constraints=settings.engine_reasoning_parser,
        max_logprobs=settings.engine_max_logprobs,
    )


def _llama_cpp(
    settings: ServerSettings, model_path: Path, checkpoint: Checkpoint, on_phase: Callable[[str], None]
) -> Engine:
    if len(settings.engine_url) > 1:
        raise StartError("--engine llama.cpp takes one --engine-url")
    token_bytes = checkpoint.tokenizer.token_bytes
    if settings.engine_url:
        return LlamaCppEngine(
            token_bytes,
            url=settings.engine_url[0],
            model=model_path.name,
            api_key=settings.engine_api_key,
            timeouts=HTTPTimeouts(idle=settings.engine_timeout),
            on_phase=on_phase,
        )
    options = EmbeddedOptions(
        model_path=str(model_path),
        context_length=settings.context_length or 0,
        slots=settings.parallel,
        threads=settings.threads or 0,
        verbose=settings.log_level == "debug",
    )
    return LlamaCppEngine(token_bytes, options=options, on_phase=on_phase)


def choose_format(settings: ServerSettings, checkpoint: Checkpoint) -> Format:
    """How the model spells reasoning and calls: as the operator says, else as its template and tokens show."""
    template = checkpoint.templates.get(DEFAULT_TEMPLATE)
    found = detect(
        template.source if template else None, checkpoint.tokenizer.added_tokens, checkpoint.response_template
    )
    named = settings.reasoning_parser and settings.tool_call_parser
    if found is None and not named and template is not None and "tools" in template.variables:
        log.warning(
            "the model's output format is not known: replies are plain text; name one with --reasoning-parser and "
            "--tool-call-parser"
        )
    default = found or PLAIN
    try:
        reasoning = _named(settings.reasoning_parser, "reasoning", default)
        tools = _named(settings.tool_call_parser, "tools", default)
        return compose(reasoning, tools)
    except ValueError as error:
        raise StartError(f"--reasoning-parser, --tool-call-parser: {error}") from error


def _named(name: str | None, part: Part, default: Format) -> Format:
    if name is None:
        return default
    return PLAIN if name == "none" else get_format(name, part)


def join(
    settings: ServerSettings, checkpoint: Checkpoint, format: Format, engine: Engine, *, model_path: Path
) -> Deployment:
    """A deployment of an engine that has been started."""
    tokenizer, info = checkpoint.tokenizer, engine.info
    markers = [(format.reasoning.open, format.reasoning.close)] if format.reasoning else []
    limits = [n for n in (settings.context_length, info.context_length, checkpoint.context_length) if n]
    return Deployment(
        settings=settings,
        policies=Policies(settings, str(model_path)),
        engine=engine,
        tokenizer=tokenizer,
        vocabulary=reply_vocabulary(tokenizer, format, info.eos_token_ids | checkpoint.eos_token_ids),
        chat=_chat_prompt(settings, checkpoint, format, markers, info) if checkpoint.templates else None,
        format=format,
        markers=markers,
        constraints=ConstraintBuilder(
            format, info, tokenizer.added_tokens, lenient=settings.unsupported_schema_keywords == "drop"
        ),
        names=settings.served_model_name or (model_path.stem if model_path.suffix == ".gguf" else model_path.name,),
        context_length=min(limits),
        sampling_defaults=model_defaults(checkpoint.generation_config),
    )


def _chat_prompt(
    settings: ServerSettings, checkpoint: Checkpoint, format: Format, markers: Markers, info: EngineInfo
) -> ChatPrompt:
    return ChatPrompt(
        checkpoint,
        settings=PromptSettings(
            template_kwargs=settings.chat_template_kwargs,
            normalization=settings.history_normalization,
            lenient_arguments=settings.history_arguments == "lenient",
            ignored_tools=settings.ignored_tools,
        ),
        reasoning_markers=markers,
        content_openers=[format.content_open] if format.content_open else [],
        media=info.media,
    )
