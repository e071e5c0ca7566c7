"""What a running server serves: one model behind one engine, and everything that a request needs of it.

Built once at start and read by every request; it holds no state of a request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paraserve.engines.base import Availability, Engine
from paraserve.formats.spec import Format
from paraserve.formats.types import ReplyStart
from paraserve.generation.constraint import ConstraintBuilder
from paraserve.generation.detokenize import ReplyVocabulary
from paraserve.policies.table import Policies
from paraserve.preparation import Preparation
from paraserve.prompt.bound import PromptBound
from paraserve.prompt.chat import ChatPrompt
from paraserve.prompt.state import StartMarkers, reply_start
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError
from paraserve.secrets import client_text
from paraserve.settings import ServerSettings
from paraserve.store.base import ResponseStore
from paraserve.tokenizers.base import Tokenizer

_LONGEST_MODEL = 200
"""Characters of a model's name that are shown."""
_TAIL = 64
"""Tokens at a prompt's end in which a marker decides where the reply starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Args:
    names: what clients may call the model; the first is shown where the request named none.
    bound: of the prompts that may fit.
    chat: None where the model has no chat template.
    context_length: tokens of prompt and reply together.
    sampling_defaults: of the model's ``generation_config``.
    """

    settings: ServerSettings
    policies: Policies
    engine: Engine
    tokenizer: Tokenizer
    vocabulary: ReplyVocabulary
    bound: PromptBound
    chat: ChatPrompt | None
    format: Format
    markers: StartMarkers
    constraints: ConstraintBuilder
    names: tuple[str, ...]
    context_length: int
    sampling_defaults: Mapping[str, float] = field(default_factory=dict)
    created: int = field(default_factory=lambda: int(time.time()))
    availability: Availability = field(default_factory=Availability)
    store: ResponseStore | None = None
    """Of responses; None: nothing is kept."""
    background: set[asyncio.Task[None]] = field(default_factory=set)
    """Replies that run without a client."""
    preparation: Preparation = field(default_factory=Preparation)

    def asked_model(self, requested: str | None) -> str:
        """The model that a request is for, by name or by default, as log and trace show it: a name that is not served
        without keys that went to the wrong place, and cut."""
        if not requested:
            return self.names[0]
        return requested if requested in self.names else client_text(requested)[:_LONGEST_MODEL]

    def model_name(self, requested: str | None) -> str:
        """The name to show for a request. Raises `RequestError` (404) for a model that is not served here."""
        if not requested:
            return self.names[0]
        if requested in self.names or self.settings.allow_any_model:
            return requested
        raise RequestError(
            f"The model `{requested[:_LONGEST_MODEL]}` does not exist. Served here: {', '.join(self.names)}.",
            status=404,
            param="model",
            code=ErrorCode.MODEL_NOT_FOUND,
        )

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a plain prompt. Raises `PromptError` for one that cannot fit."""
        self.bound.check(text, "prompt")
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def start_of_text(self, token_ids: Sequence[int]) -> ReplyStart:
        """Where a plain prompt leaves the model."""
        return reply_start(self.tokenizer.decode(token_ids[-_TAIL:]), self.markers)

    async def close(self) -> None:
        """Break off replies in the background, stop the engine and let the threads end."""
        for task in self.background:
            task.cancel()
        await asyncio.gather(*self.background, return_exceptions=True)
        await self.engine.stop()
        if self.store is not None:
            await asyncio.to_thread(self.store.close)
        self.preparation.close()
