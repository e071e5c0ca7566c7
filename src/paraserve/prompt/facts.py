"""What the server knows about its tokenizer and templates, as ``GET /server_info`` shows it."""

from __future__ import annotations

from typing import Any

import msgspec

from paraserve.prompt.capabilities import TemplateCapabilities


class TokenizerFacts(msgspec.Struct, frozen=True, kw_only=True):
    class_: str = msgspec.field(name="class")
    backend: str | None
    """The library that tokenizes, where there are several for one format."""
    vocab_size: int


class PromptFacts(msgspec.Struct, frozen=True, kw_only=True):
    tokenizer: TokenizerFacts
    history_normalization: str
    template_kwargs: dict[str, Any]
    """The server's own variables for the template."""
    templates: dict[str, TemplateCapabilities]
