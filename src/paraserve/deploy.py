"""From settings to a `Deployment`: find the model, read its files, connect to the engine, and say what goes on.

Everything that can be wrong at start is a `StartError`: one line that says what to do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from paraserve.deployment import Deployment
from paraserve.engines.base import Engine, EngineInfo, EngineStartError
from paraserve.engines.build import build_engine, model_path_of
from paraserve.engines.child import EngineAddress
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.llama_cpp.embedded import default_model_path
from paraserve.engines.llama_cpp.engine import LlamaCppEngine
from paraserve.formats.families.in_text import with_calls_in_text
from paraserve.formats.families.tool_texts import DEFAULT_TOOL_TEXT, TOOL_TEXTS
from paraserve.formats.output import checkpoint_format
from paraserve.formats.registry import FormatPart, get_format
from paraserve.formats.spec import PLAIN, Format, ToolText, compose
from paraserve.generation.constraint import ConstraintBuilder
from paraserve.generation.detokenize import reply_vocabulary
from paraserve.generation.sampling import model_defaults
from paraserve.policies.table import Policies
from paraserve.prompt.bound import PromptBound
from paraserve.prompt.chat import ChatPrompt, PromptSettings
from paraserve.prompt.state import StartMarkers
from paraserve.prompt.template import ChatTemplate
from paraserve.settings import ServerSettings
from paraserve.start_error import StartError
from paraserve.store.build import build_store
from paraserve.tokenizers.base import reading
from paraserve.tokenizers.checkpoint import DEFAULT_TEMPLATE, Checkpoint, load_checkpoint
from paraserve.tokenizers.gguf import difference_from_llama_cpp

RETRY_SECONDS = 0.5
"""Between two questions whether an engine that is waited for is there."""

log = logging.getLogger(__name__)


async def deploy(
    settings: ServerSettings,
    step: Callable[[str], None],
    ours: Callable[[], Awaitable[EngineAddress]] | None = None,
) -> Deployment:
    """Read the checkpoint, connect to the engine, and join them. The caller closes the deployment.

    Args:
        step: told what goes on, in words for a person.
        ours: gives the address of an engine of ours when it has been started.
    """
    model_path = model_path_of(settings)
    step(f"reading {model_path.name}")
    checkpoint = load_checkpoint(
        model_path,
        tokenizer_path=Path(settings.tokenizer_path) if settings.tokenizer_path else None,
        chat_template=settings.chat_template,
    )
    _check_templates(checkpoint)
    format = choose_format(settings, checkpoint)
    facts = ModelFacts(
        vocab_size=checkpoint.tokenizer.vocab_size,
        context_length=settings.context_length or checkpoint.context_length,
        eos_token_ids=checkpoint.eos_token_ids,
    )
    if ours is None:
        step(f"starting the engine ({settings.engine})")
    address = await ours() if ours is not None else None
    engine = build_engine(settings, facts, checkpoint.tokenizer, step, address)
    try:
        await _start(engine, settings, step)
        if isinstance(engine, LlamaCppEngine):
            await _check_tokenizer(settings, checkpoint, engine)
        return join(settings, checkpoint, format, engine, model_path=model_path)
    except BaseException:
        await engine.stop()
        raise


def _check_templates(checkpoint: Checkpoint) -> None:
    """Raises `CheckpointError` for one that is no template, with the file where it stands."""
    for name, text in checkpoint.templates.items():
        with reading(checkpoint.template_files[name]):
            ChatTemplate.compile(text, name)


async def _start(engine: Engine, settings: ServerSettings, step: Callable[[str], None]) -> None:
    """Connect, as soon as the engine is there. Raises `EngineStartError` when the operator's patience ends."""
    deadline = time.monotonic() + (settings.wait_for_engine if settings.engine_url else 0.0)
    told = ""
    while True:
        try:
            await engine.start()
            return
        except EngineStartError as error:
            if time.monotonic() >= deadline:
                raise
            if told != (told := str(error)):
                step(f"waiting for the engine: {told}")
        await asyncio.sleep(RETRY_SECONDS)


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


def choose_format(settings: ServerSettings, checkpoint: Checkpoint) -> Format:
    """How the model spells reasoning and calls: as the operator says, else as its template and tokens show."""
    template = checkpoint.templates.get(DEFAULT_TEMPLATE)
    found = checkpoint_format(template, checkpoint.tokenizer.added_tokens, checkpoint.response_template)
    named = settings.reasoning_parser and settings.tool_call_parser
    if found is None and not named and template and "tools" in ChatTemplate.compile(template).variables:
        log.warning(
            "the model's output format is not known: replies are plain text; name one with --reasoning-parser and "
            "--tool-call-parser"
        )
    text = choose_tool_text(settings, checkpoint)
    default = found or PLAIN
    try:
        reasoning = _named(settings.reasoning_parser, "reasoning", default)
        tools = _named(settings.tool_call_parser, "tools", text.format if text else default)
        format = compose(reasoning, tools)
        return with_calls_in_text(format) if settings.calls_in_text else format
    except ValueError as error:
        raise StartError(f"--reasoning-parser, --tool-call-parser: {error}") from error


def choose_tool_text(settings: ServerSettings, checkpoint: Checkpoint) -> ToolText | None:
    """How tools are said where the chat template knows none: as the operator says, and for our own default model."""
    named = settings.tool_template
    if named == "off" or any("tools" in ChatTemplate.compile(each).variables for each in checkpoint.templates.values()):
        return None
    if named != "auto":
        return TOOL_TEXTS[named]
    return TOOL_TEXTS[DEFAULT_TOOL_TEXT] if _is_default(settings, checkpoint) else None


def _is_default(settings: ServerSettings, checkpoint: Checkpoint) -> bool:
    """The model that is served where none is named."""
    if settings.model_path is not None or settings.engine != "llama.cpp":
        return False
    try:
        return checkpoint.path == default_model_path()
    except EngineStartError:
        return False


def _named(name: str | None, part: FormatPart, default: Format) -> Format:
    if name is None:
        return default
    return PLAIN if name == "none" else get_format(name, part)


def join(
    settings: ServerSettings, checkpoint: Checkpoint, format: Format, engine: Engine, *, model_path: Path
) -> Deployment:
    """A deployment of an engine that has been started."""
    tokenizer, info = checkpoint.tokenizer, engine.info
    limits = [n for n in (settings.context_length, info.context_length, checkpoint.context_length) if n]
    bound = PromptBound.of(tokenizer, min(limits))
    with reading(checkpoint.path):  # its templates are tried
        chat = _chat_prompt(settings, checkpoint, format, info, bound) if checkpoint.templates else None
    format = _with_lead(format, chat)
    return Deployment(
        settings=settings,
        policies=Policies(settings, str(model_path)),
        engine=engine,
        tokenizer=tokenizer,
        vocabulary=reply_vocabulary(tokenizer, format, info.eos_token_ids | checkpoint.eos_token_ids),
        bound=bound,
        chat=chat,
        format=format,
        markers=StartMarkers.of(format),
        constraints=ConstraintBuilder(
            format, info, tokenizer.added_tokens, lenient=settings.unsupported_schema_keywords == "drop"
        ),
        names=settings.served_model_name or (model_path.stem if model_path.suffix == ".gguf" else model_path.name,),
        context_length=bound.context_length,
        sampling_defaults=model_defaults(checkpoint.generation_config),
        store=build_store(
            settings.response_store, max_bytes=settings.response_store_size, max_age=settings.response_store_age
        ),
    )


def _with_lead(format: Format, chat: ChatPrompt | None) -> Format:
    """The format with the blanks that the template writes in front of answers, where the family's has none."""
    takes = chat.capabilities.get(DEFAULT_TEMPLATE) if chat is not None else None
    return replace(format, lead=takes.content_lead) if takes is not None and not format.lead else format


def _chat_prompt(
    settings: ServerSettings, checkpoint: Checkpoint, format: Format, info: EngineInfo, bound: PromptBound
) -> ChatPrompt:
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
        ids=format.ids,
        bound=bound,
        tool_text=choose_tool_text(settings, checkpoint),
    )
