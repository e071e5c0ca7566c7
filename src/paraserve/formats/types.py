"""What a parser is told about the reply it is going to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

TextEnd = Literal["stop", "length", "abort"]
"""Why the text ended: the model's own end (or a stop string), the token limit, or somebody broke it off."""


class ReplyStart(Enum):
    """Where the rendered prompt leaves the model. Read from the prompt's tail, never from a model's name."""

    HEADER = "header"
    """A bare assistant header: the model may open its reasoning itself."""
    REASONING = "reasoning"
    """Inside reasoning: the template wrote the opening marker."""
    CONTENT = "content"
    """Past reasoning: the template closed the block (or there is none); reasoning markers are text."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A declared function. ``parameters`` is its JSON schema (an object schema; empty means: no arguments known)."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
