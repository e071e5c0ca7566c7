"""A model's name in a request, and ``GET /v1/models``."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

ModelName = Annotated[str, Meta(max_length=1024, description="A served name; may be left out.")]
"""No model has a longer one, and it is looked at and shown in many places."""


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """A model as OpenAI's clients and Anthropic's read it: each looks at fields of its own."""

    id: str
    type: Literal["model"] = "model"
    display_name: str
    created_at: Annotated[str, Meta(description="``created`` as RFC 3339 writes it.")]
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["paraserve"] = "paraserve"
    root: str
    max_model_len: int


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ModelCard]
    has_more: Literal[False] = False
    first_id: str
    last_id: str
