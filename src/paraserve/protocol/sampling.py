"""Fields that chat and text completions share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, field_error
from paraserve.protocol.models import ModelName
from paraserve.protocol.unserved import UnservedFields

MAX_STOP_STRINGS = 64
MAX_STOP_CHARS = 512

MAX_STOP_TOKEN_IDS = 128
"""vLLM's sampler has as many places (``MAX_NUM_STOP_TOKEN_IDS``), and fails beyond them."""
MAX_LOGIT_BIAS = 1024
"""vLLM's sampler has as many places (``MAX_NUM_LOGIT_BIAS_TOKENS``), and fails beyond them."""

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Rank = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Room = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Host = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:\[\]-]{1,253}$")]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Bias = Annotated[float, Meta(ge=-100, le=100)]


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class JsonSchemaFormat(msgspec.Struct, frozen=True, rename={"schema_": "schema"}):
    schema_: dict[str, Any] | bool
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"schema_": "schema"}):
    """OpenAI's; or with the schema beside the type, where llama.cpp, OpenAI's Responses API and others have it."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None
    schema_: dict[str, Any] | bool | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None

    @property
    def schema(self) -> dict[str, Any] | bool | None:
        """The schema, wherever it stands; None: any JSON object."""
        found = self.schema_ if self.json_schema is None else self.json_schema.schema_
        return None if self.type == "json_object" and found in ({}, True) else found

    @property
    def schema_field(self) -> str:
        return "response_format.schema" if self.json_schema is None else "response_format.json_schema.schema"


class SamplingFields(UnservedFields, frozen=True, kw_only=True):
    """``None`` is unset everywhere; a value that was sent, 0 and 1.0 included, is set."""

    model: Annotated[ModelName | None, Meta(description="A served name; may be left out.")] = None
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None,
        Meta(description="0 is greedy. Unset: the model's generation_config, else 1."),
    ] = None
    top_p: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        Meta(description="Nucleus sampling. Unset: the model's generation_config, else 1."),
    ] = None
    top_k: Annotated[
        Annotated[int, Meta(ge=-1)] | None, Meta(description="Most likely tokens to sample from; -1 and 0 are off.")
    ] = None
    min_p: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Meta(description="Least probability relative to the likeliest token's."),
    ] = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[
        Annotated[float, Meta(gt=0, le=2)] | None,
        Meta(description="Above 1 makes tokens that were there already less likely."),
    ] = None
    seed: Annotated[Seed | None, Meta(description="The same seed, request and server repeat a reply.")] = None
    stop: Annotated[str | list[str] | None, Meta(description="Strings that end the reply; they are not shown.")] = None
    stop_token_ids: Annotated[
        list[Annotated[int, Meta(ge=0)]] | None, Meta(description="Tokens that end the reply.")
    ] = None
    logit_bias: Annotated[dict[str, Bias] | None, Meta(description="Token id to what is added to its logit.")] = None
    ignore_eos: Annotated[bool | None, Meta(description="Go on after the end token.")] = None
    min_tokens: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="No end token before this many tokens.")
    ] = None
    skip_special_tokens: Annotated[bool | None, Meta(description="false shows special tokens in the text.")] = None
    n: Annotated[Annotated[int, Meta(ge=1, le=128)] | None, Meta(description="How many choices.")] = None
    stream: Annotated[bool | None, Meta(description="Send the reply as server-sent events.")] = None
    stream_options: StreamOptions | None = None
    response_format: Annotated[
        ResponseFormat | None, Meta(description="A JSON object, or JSON by a schema; enforced by the engine.")
    ] = None
    regex: Annotated[str | None, Meta(description="A regular expression that the whole reply matches.")] = None
    ebnf: Annotated[str | None, Meta(description="A grammar that the reply follows, in the engine's own syntax.")] = (
        None
    )
    user: str | None = None
    priority: Int32 | None = None
    lora_path: str | None = None
    cache_salt: Annotated[
        str | None,
        Meta(description="Share cached prompts only with requests of the same salt; refused where the engine cannot."),
    ] = None
    data_parallel_rank: Rank | None = None
    bootstrap_host: Host | None = None
    bootstrap_port: Port | None = None
    bootstrap_room: Room | None = None

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings in the order they were sent; empty ones say nothing and are dropped."""
        if self.stop is None:
            return ()
        return tuple(s for s in ([self.stop] if isinstance(self.stop, str) else self.stop) if s)


def check_sampling(request: SamplingFields) -> None:
    """The rules that reach over more than one field. Raises `RequestError`."""
    chosen = request.response_format
    if chosen is not None:
        _check_response_format(chosen)
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
        raise field_error(constraints[1], f"cannot be combined with {constraints[0]}")


def _check_response_format(chosen: ResponseFormat) -> None:
    """One schema where one is needed, and none that would not be obeyed."""
    twice = chosen.json_schema is not None and chosen.schema_ is not None
    if twice or (chosen.type == "text" and chosen.schema is not None):
        raise RequestError(
            "response_format: a second schema" if twice else "response_format: type text has no schema",
            param="response_format",
            code=ErrorCode.INVALID_VALUE,
        )
    if chosen.type == "json_schema" and chosen.schema is None:
        raise RequestError(
            "response_format.json_schema: field required when type is json_schema",
            param="response_format",
            code=ErrorCode.MISSING_REQUIRED_PARAMETER,
        )


def _check_stop_strings(strings: Sequence[str]) -> None:
    """Each of them is looked for at every token of the reply."""
    if len(strings) > MAX_STOP_STRINGS or any(len(string) > MAX_STOP_CHARS for string in strings):
        raise field_error("stop", f"at most {MAX_STOP_STRINGS} strings of at most {MAX_STOP_CHARS} characters")


def check_token_ids(token_ids: Iterable[int], vocab_size: int, param: str) -> None:
    """Every id must be one of the vocabulary: an engine may die of another. Raises `RequestError`."""
    if not all(0 <= token_id < vocab_size for token_id in token_ids):
        raise field_error(param, f"must be token ids from 0 to {vocab_size - 1}")


def stop_ids(token_ids: Iterable[int] | None, vocab_size: int) -> tuple[int, ...]:
    """``stop_token_ids``, each once. Raises `RequestError`."""
    ids = tuple(dict.fromkeys(token_ids or ()))
    check_token_ids(ids, vocab_size, "stop_token_ids")
    if len(ids) > MAX_STOP_TOKEN_IDS:
        raise field_error("stop_token_ids", f"at most {MAX_STOP_TOKEN_IDS} different ones")
    return ids


def logit_bias_ids(bias: Mapping[str, float] | None, vocab_size: int) -> dict[int, float]:
    """``logit_bias`` with its keys as token ids. Raises `RequestError` for a key that is no id of the vocabulary."""
    ids = {
        int(key) if key.isascii() and key.isdigit() and len(key) < 10 else -1: value
        for key, value in (bias or {}).items()
    }
    check_token_ids(ids, vocab_size, "logit_bias")
    if len(ids) > MAX_LOGIT_BIAS:
        raise field_error("logit_bias", f"at most {MAX_LOGIT_BIAS} token ids")
    return ids
