"""Fields that chat and text completions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from paraserve.protocol.errors import RequestError
from paraserve.protocol.unserved import UnservedFields

MAX_STOP_STRINGS = 64
MAX_STOP_CHARS = 512

Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Bias = Annotated[float, msgspec.Meta(ge=-100, le=100)]


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class JsonSchemaFormat(msgspec.Struct, frozen=True, rename={"schema_": "schema"}):
    schema_: dict[str, Any] | bool
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class SamplingFields(UnservedFields, frozen=True, kw_only=True):
    """``None`` is unset everywhere; a value that was sent, 0 and 1.0 included, is set."""

    model: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=2)] | None = None
    seed: Seed | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Annotated[int, msgspec.Meta(ge=0)]] | None = None
    logit_bias: dict[str, Bias] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    skip_special_tokens: bool | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    regex: str | None = None
    ebnf: str | None = None
    user: str | None = None
    priority: int | None = None
    lora_path: str | None = None
    cache_salt: str | None = None
    data_parallel_rank: int | None = None
    bootstrap_host: str | None = None
    bootstrap_port: int | None = None
    bootstrap_room: int | None = None

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings in the order they were sent; empty ones say nothing and are dropped."""
        if self.stop is None:
            return ()
        return tuple(s for s in ([self.stop] if isinstance(self.stop, str) else self.stop) if s)


def check_sampling(request: SamplingFields) -> None:
    """The rules that reach over more than one field. Raises `RequestError`."""
    chosen = request.response_format
    if chosen is not None and chosen.type == "json_schema" and chosen.json_schema is None:
        raise RequestError(
            "response_format.json_schema: field required when type is json_schema",
            param="response_format",
            code="missing_required_parameter",
        )
    _check_stop_strings(request.stop_strings)
    constraints = [
        name
        for name, value in (
            ("response_format", chosen if chosen is not None and chosen.type != "text" else None),
            ("regex", request.regex),
            ("ebnf", request.ebnf),
        )
        if value is not None
    ]
    if len(constraints) > 1:
        raise RequestError(
            f"{constraints[1]}: cannot be combined with {constraints[0]}", param=constraints[1], code="invalid_value"
        )


def _check_stop_strings(strings: Sequence[str]) -> None:
    """Each of them is looked for at every token of the reply."""
    if len(strings) > MAX_STOP_STRINGS or any(len(string) > MAX_STOP_CHARS for string in strings):
        raise RequestError(
            f"stop: at most {MAX_STOP_STRINGS} strings of at most {MAX_STOP_CHARS} characters",
            param="stop",
            code="invalid_value",
        )


def check_stop_token_ids(token_ids: Sequence[int] | None, vocab_size: int) -> tuple[int, ...]:
    """``stop_token_ids``, which must be ids of the vocabulary. Raises `RequestError`."""
    if any(token_id >= vocab_size for token_id in token_ids or ()):
        raise RequestError(
            f"stop_token_ids: must be token ids from 0 to {vocab_size - 1}",
            param="stop_token_ids",
            code="invalid_value",
        )
    return tuple(token_ids or ())


def logit_bias_ids(bias: dict[str, float] | None, vocab_size: int) -> dict[int, float]:
    """``logit_bias`` with its keys as token ids. Raises `RequestError` for a key that is no id of the vocabulary."""
    ids: dict[int, float] = {}
    for key, value in (bias or {}).items():
        if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < vocab_size):
            raise RequestError(
                f"logit_bias: keys must be token ids from 0 to {vocab_size - 1}",
                param="logit_bias",
                code="invalid_value",
            )
        ids[int(key)] = value
    return ids
