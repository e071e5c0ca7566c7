"""Wire types of the endpoints that tell about the server itself. Nothing in them is a secret or a path."""

from __future__ import annotations

from typing import Literal

import msgspec

from paraserve.prompt.facts import PromptFacts


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


class Versions(msgspec.Struct, frozen=True):
    version: str
    engine: str


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    constraints: list[str]
    """What it can be made to write: kinds of grammars."""
    defers_constraints: bool
    """It leaves the reply alone until its reasoning is over."""
    prompt_logprobs: bool
    max_logprobs: int
    logit_bias: bool
    cache_salts: bool
    seeds: bool
    """A seed makes a reply repeatable."""
    media: list[str]


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    models: list[str]
    context_length: int
    """Tokens of prompt and reply."""
    format: str
    """The family whose reasoning and tool calls are read."""
    sampling_defaults: dict[str, float]
    """Of the model's generation_config."""
    policies: list[str]
    """Those in force."""
    engine: EngineFacts
    prompt: PromptFacts | None
    """None where the checkpoint has no chat template."""
