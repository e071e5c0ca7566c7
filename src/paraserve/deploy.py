"""From settings to a `Deployment`: find the model, read its files, start the engine, and say what goes on.

Everything that can be wrong at start is one line that says what to do (`StartError`, `CheckpointError`,
`EngineStartError`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from paraserve.deployment import Deployment
from paraserve.engine_choice import NOT_SHARED, SharedEngine, embedded_options, model_path_of
from paraserve.engines.balancer import BalancedEngine
from paraserve.engines.base import Engine, EngineInfo
from paraserve.engines.http.client import HTTPTimeouts
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.launch import launch
from paraserve.engines.llama_cpp.engine import LlamaCppEngine
from paraserve.engines.scripted.script_file import scripted_engine
from paraserve.engines.sglang.engine import SGLangEngine
from paraserve.engines.vllm.engine import VLLMEngine
from paraserve.formats.registry import FormatPart, detect, get_format
from paraserve.formats.spec import PLAIN, Format, compose
from paraserve.generation.constraint import ConstraintBuilder
from paraserve.generation.detokenize import reply_vocabulary
from paraserve.generation.sampling import model_defaults
from paraserve.policies.table import Policies
from paraserve.prompt.chat import ChatPrompt, PromptSettings
from paraserve.prompt.state import StartMarkers
from paraserve.serving.progress import StartError
from paraserve.settings import ServerSettings
from paraserve.tokenizers.checkpoint import DEFAULT_TEMPLATE, Checkpoint, load_checkpoint
from paraserve.tokenizers.gguf import difference_from_llama_cpp

log = logging.getLogger(__name__)


async def deploy(
    settings: ServerSettings,
    step: Callable[[str], None],
    engine_flags: Sequence[str] = (),
    *,
    shared: Awaitable[SharedEngine] | None = None,
) -> Deployment:
    """Read the checkpoint, start the engine, and join them. The caller stops the engine.

    Args:
        step: told what goes on, in words for a person.
        engine_flags: for an engine that is started by us.
        shared: where several processes have one engine of ours: the one that is started elsewhere.
    """
    model_path = model_path_of(settings)
    step(f"reading {model_path.name}")
    checkpoint = load_checkpoint(
        model_path,
        tokenizer_path=Path(settings.tokenizer_path) if settings.tokenizer_path else None,
        chat_template=settings.chat_template,
    )
    format = choose_format(settings, checkpoint)
    if shared is None:
        engine = build_engine(settings, model_path, checkpoint, step, engine_flags)
        step(f"starting the engine ({settings.engine})")
    else:
        engine = build_engine(settings, model_path, checkpoint, step, shared=await shared)
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


def build_engine(
    settings: ServerSettings,
    model_path: Path,
    checkpoint: Checkpoint,
    on_phase: Callable[[str], None],
    engine_flags: Sequence[str] = (),
    shared: SharedEngine = NOT_SHARED,
) -> Engine:
    """The adapter that the settings name, not started. One to an engine that is ``shared`` starts none."""
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
        return _llama_cpp(settings, model_path, checkpoint, on_phase, shared)
    facts = ModelFacts(
        vocab_size=tokenizer.vocab_size,
        model=model_path.name,
        context_length=settings.context_length or checkpoint.context_length,
        eos_token_ids=checkpoint.eos_token_ids,
    )
    timeouts = HTTPTimeouts(idle=settings.engine_timeout)
    if shared.url is None and settings.starts_engine:
        return launch(settings.engine, str(model_path), facts, engine_flags, timeouts=timeouts)
    if shared.url is not None:
        settings = replace(settings, engine_url=(shared.url,), engine_reasoning_parser=shared.defers_constraints)
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
    settings: ServerSettings,
    model_path: Path,
    checkpoint: Checkpoint,
    on_phase: Callable[[str], None],
    shared: SharedEngine,
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
    if shared.unix_socket is not None:
        return LlamaCppEngine(token_bytes, unix_socket=shared.unix_socket, model=model_path.stem, on_phase=on_phase)
    return LlamaCppEngine(token_bytes, options=embedded_options(settings, model_path), on_phase=on_phase)


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


def _named(name: str | None, part: FormatPart, default: Format) -> Format:
    if name is None:
        return default
    return PLAIN if name == "none" else get_format(name, part)


def join(
    settings: ServerSettings, checkpoint: Checkpoint, format: Format, engine: Engine, *, model_path: Path
) -> Deployment:
    """A deployment of an engine that has been started."""
    tokenizer, info = checkpoint.tokenizer, engine.info
    chat = _chat_prompt(settings, checkpoint, format, info) if checkpoint.templates else None
    format = _with_lead(format, chat)
    limits = [n for n in (settings.context_length, info.context_length, checkpoint.context_length) if n]
    return Deployment(
        settings=settings,
        policies=Policies(settings, str(model_path)),
        engine=engine,
        tokenizer=tokenizer,
        vocabulary=reply_vocabulary(tokenizer, format, info.eos_token_ids | checkpoint.eos_token_ids),
        chat=chat,
        format=format,
        markers=StartMarkers.of(format),
        constraints=ConstraintBuilder(
            format, info, tokenizer.added_tokens, lenient=settings.unsupported_schema_keywords == "drop"
        ),
        names=settings.served_model_name or (model_path.stem if model_path.suffix == ".gguf" else model_path.name,),
        context_length=min(limits),
        sampling_defaults=model_defaults(checkpoint.generation_config),
    )


def _with_lead(format: Format, chat: ChatPrompt | None) -> Format:
    """The format with the blanks that the template writes in front of answers, where the family's has none."""
    takes = chat.capabilities.get(DEFAULT_TEMPLATE) if chat is not None else None
    return replace(format, lead=takes.content_lead) if takes is not None and not format.lead else format


def _chat_prompt(settings: ServerSettings, checkpoint: Checkpoint, format: Format, info: EngineInfo) -> ChatPrompt:
    return ChatPrompt(
        checkpoint,
        settings=PromptSettings(
            template_kwargs=settings.chat_template_kwargs,
            normalization=settings.history_normalization,
            lenient_arguments=settings.history_arguments == "lenient",
            ignored_tools=settings.ignored_tools,
        ),
        markers=StartMarkers.of(format),
        media=info.media,
    )
