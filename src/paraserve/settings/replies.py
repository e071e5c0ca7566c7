"""Options of what makes a reply: the engine, and how its output is read. See `paraserve.settings.server`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from paraserve.settings.declare import BYTES, SECONDS, Count, FilePath, Positive, Seconds, setting

ENGINE = "Engine"
FORMATS = "Reasoning and tool calls"
REQUESTS = "Requests and replies"


@dataclass(frozen=True, kw_only=True)
class ReplySettings:
    """Flag names follow SGLang's where SGLang has the flag."""

    engine: Literal["llama.cpp", "sglang", "vllm", "scripted"] = setting(
        "llama.cpp",
        group=ENGINE,
        help="What makes the tokens. llama.cpp is embedded unless --engine-url names a running llama-server; "
        "scripted replays a file, for tests.",
    )
    engine_url: tuple[str, ...] = setting(
        (),
        group=ENGINE,
        metavar="URL",
        help="Where a running engine listens; repeat it, or separate with commas, for several.",
    )
    engine_wire: Literal["auto", "zmq", "http"] = setting(
        "auto",
        group=ENGINE,
        help="How an SGLang or a vLLM that is started here is spoken to: zmq is its scheduler's own messages, without "
        "its HTTP server; auto takes that where it can, and the log says which and why.",
    )
    engine_api_key: str | None = setting(
        None,
        group=ENGINE,
        secret=True,
        metavar="KEY",
        default_note="none",
        help="Key that the engine at the URL asks for.",
    )
    engine_timeout: Annotated[float, Meta(ge=1, extra=SECONDS)] = setting(
        600.0,
        group=ENGINE,
        help="How long an engine may be silent within a reply before the request fails with 504.",
    )
    wait_for_engine: Seconds = setting(
        0.0,
        group=ENGINE,
        help="How long a start waits for an engine at a URL that is not there yet: the server listens meanwhile, and "
        "answers 503. 0 is not at all.",
    )
    engine_restart: bool = setting(
        True,
        group=ENGINE,
        help="Start an engine that the server has started again when it dies; without, the server ends with it.",
    )
    engine_max_logprobs: Count = setting(
        20, group=ENGINE, help="The most alternatives a token that a vLLM engine gives (its --max-logprobs)."
    )
    engine_reasoning_parser: bool = setting(
        False,
        group=ENGINE,
        help="A vLLM engine at a URL runs with a --reasoning-parser, so that it holds constraints back until the "
        "reasoning has ended. SGLang tells it by itself.",
    )
    engine_extra_fields: tuple[str, ...] = setting(
        (),
        group=ENGINE,
        metavar="NAME",
        help="Fields of a request that go to the engine as they are, from those whom --engine-fields-from names; "
        "repeat it, or separate with commas.",
    )
    engine_script: FilePath | None = setting(None, group=ENGINE, help="The replies that the scripted engine replays.")
    parallel: Positive = setting(4, group=ENGINE, help="Sequences that the embedded engine runs at the same time.")
    threads: Positive | None = setting(
        None, group=ENGINE, default_note="all cores but one", help="CPU threads of the embedded engine."
    )

    reasoning_parser: str | None = setting(
        None,
        group=FORMATS,
        metavar="NAME",
        default_note="chosen from the model",
        help="How the model spells its reasoning; none turns the parser off.",
    )
    tool_call_parser: str | None = setting(
        None,
        group=FORMATS,
        metavar="NAME",
        default_note="chosen from the model",
        help="How the model spells tool calls; none turns the parser off.",
    )
    tool_strictness: Literal["off", "requested", "always"] = setting(
        "requested",
        group=FORMATS,
        help="Whose argument schemas the engine is made to obey when the model may choose to call: nobody's, those of "
        "tools with strict: true, every tool's.",
    )
    unsupported_schema_keywords: Literal["reject", "drop"] = setting(
        "reject",
        group=FORMATS,
        help="What a JSON schema gets that uses a keyword which no grammar can express: a 400 that names it, or "
        "enforcement without that keyword.",
    )
    calls_in_text: bool = setting(
        False,
        group=FORMATS,
        help="Read a call that no marker announces (Llama, xLAM, pythonic) behind text and in a ```json block too. "
        "An answer that shows such a call is one then.",
    )
    undeclared_tools: Literal["content", "call"] = setting(
        "content",
        group=FORMATS,
        help="What a call to a tool that the request did not declare becomes: content as it was written, or a call.",
    )
    named_tool_finish_reason: Literal["tool_calls", "stop"] = setting(
        "tool_calls",
        group=FORMATS,
        help="finish_reason of a reply that calls the function which tool_choice names; OpenAI says stop.",
    )
    history_normalization: Literal["auto", "off"] = setting(
        "auto",
        group=FORMATS,
        help="Bring the messages into the shape that the model's chat template takes (roles it does not know, null "
        "content, arguments as objects), or hand them over as they came.",
    )
    history_arguments: Literal["strict", "lenient"] = setting(
        "lenient",
        group=FORMATS,
        help="What arguments of calls in the history are that are no JSON object: a 400, or handed on as they came.",
    )
    ignored_tools: Literal["allow", "refuse"] = setting(
        "allow",
        group=FORMATS,
        help="What declared tools get that the model's chat template does not put into the prompt: service without "
        "them in the prompt, or a 400.",
    )

    enable_cache_report: bool = setting(
        False, group=REQUESTS, help="Report cached prompt tokens in usage.prompt_tokens_details."
    )
    stream_options_without_stream: Literal["reject", "ignore"] = setting(
        "reject",
        group=REQUESTS,
        help="What stream_options in a request that does not stream means: 400 as OpenAI answers, or nothing.",
    )

    response_store: str | None = setting(
        None,
        group=REQUESTS,
        secret=True,
        metavar="PATH|URL",
        default_note="responses.db in paraserve's directory of $XDG_STATE_HOME",
        help="Where /v1/responses keeps what clients may go on from: a file of SQLite, postgresql://…, memory (of one "
        "process), or off.",
    )
    response_store_size: Annotated[int, Meta(ge=0, extra=BYTES)] = setting(
        2**30, group=REQUESTS, help="Most that the store keeps; what was used least lately is deleted first."
    )
    response_store_age: Annotated[float, Meta(ge=0, extra=SECONDS)] = setting(
        30 * 86_400.0, group=REQUESTS, help="How long a response is kept after it was last used."
    )

    @property
    def starts_engine(self) -> bool:
        """Whether SGLang or vLLM is started by us, instead of running elsewhere."""
        return self.engine in ("sglang", "vllm") and not self.engine_url

    @property
    def store_password(self) -> str | None:
        """The one in the URL of the store, for logs to leave out."""
        return urlsplit(self.response_store or "").password
