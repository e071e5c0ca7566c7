"""Every word that ``error.code`` can have: with which statuses, when, and what a client can do.

Whoever raises an error names a member; the table of docs/errors.md is written from here (``scripts/error_table.py``).
Never knows how an error comes about. One invariant: a code of the wire is here, and what is here is raised somewhere.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorCode(StrEnum):
    """In the order of the statuses. Texts are Markdown."""

    statuses: tuple[int, ...]
    cause: str
    remedy: str

    def __new__(cls, code: str, statuses: int | tuple[int, ...], cause: str, remedy: str) -> ErrorCode:
        member = str.__new__(cls, code)
        member._value_ = code
        member.statuses = (statuses,) if isinstance(statuses, int) else statuses
        member.cause = cause
        member.remedy = remedy
        return member

    INVALID_JSON = "invalid_json", 400, "the body is no JSON, or nested too deeply", "send valid JSON in UTF-8"
    INVALID_VALUE = "invalid_value", 400, "a field has the wrong type or value", "see `param` and the message"
    MISSING_REQUIRED_PARAMETER = "missing_required_parameter", 400, "a field is missing", "see `param`"
    UNSUPPORTED_PARAMETER = (
        "unsupported_parameter",
        400,
        "this engine or endpoint cannot do it (`regex`, prompt log probabilities, `suffix`, …)",
        "leave it out, or use an engine that can",
    )
    UNSUPPORTED_SCHEMA = (
        "unsupported_schema",
        400,
        "a JSON schema uses a keyword that cannot be enforced exactly; the message names it and `param` its place",
        "rewrite the schema",
    )
    UNTRUSTED_CALLER = (
        "untrusted_caller",
        400,
        "only callers whom the operator names may send this field or header (`--engine-fields-from`)",
        "leave it out",
    )
    INVALID_CONSTRAINT = (
        "invalid_constraint",
        400,
        "the engine cannot compile a pattern, grammar or schema",
        "mend it; `param` is the field that asked for it",
    )
    CONTEXT_LENGTH_EXCEEDED = (
        "context_length_exceeded",
        (400, 413),
        "the input, or the input with the limit that was asked for, does not fit (413 for the input where a "
        "policy says so)",
        "shorten the input, or ask for less; both numbers are in the message",
    )
    TEMPLATE_ERROR = (
        "template_error",
        400,
        "the chat template refuses the messages; its own words are in the message",
        "mend the order or kind of messages",
    )
    TEMPLATE_LIMIT = "template_limit", 400, "rendering was stopped: too long or too large", "shorten the messages"
    UNSUPPORTED_CONTENT = (
        "unsupported_content",
        400,
        "the model's template or the engine cannot take a part, a call or a result",
        "see `param`",
    )
    UNSUPPORTED_VALUE = (
        "unsupported_value",
        400,
        "the model does not take this reasoning effort",
        "the message lists what it takes",
    )
    CHAT_TEMPLATE_MISSING = (
        "chat_template_missing",
        400,
        "the model has no chat template",
        "`/v1/completions`, or `--chat-template`",
    )
    THREAD_UNSUPPORTED = (
        "thread_unsupported",
        400,
        "a conversation that the server would keep was asked for (`/v1/messages`)",
        "send the whole history; Anthropic's SDKs do so by themselves",
    )
    INCOMPLETE_BODY = "incomplete_body", 400, "the connection broke before the body was whole", "send it again"
    INVALID_COMPRESSION = (
        "invalid_compression",
        400,
        "the body is not what its `Content-Encoding` says, or is cut",
        "mend the client",
    )
    INVALID_HTTP = (
        "invalid_http",
        (400, 501, 505),
        "what came is no request of HTTP/1.1 or 1.0, or not as RFC 9112 has it; the connection is closed",
        "mend the client, or speak TLS where the server does not",
    )
    INVALID_API_KEY = "invalid_api_key", 401, "no key, or a wrong one", "`Authorization: Bearer KEY`"
    UNKNOWN_HOST = (
        "unknown_host",
        403,
        "the server asks for no key, and was called by a name that a web page could have made up",
        "`--allowed-hosts NAME`, or a key",
    )
    FOREIGN_ORIGIN = (
        "foreign_origin",
        403,
        "the server asks for no key, and the request comes from a web page that it did not send",
        "`--allowed-origins ORIGIN`, or a key",
    )
    MODEL_NOT_FOUND = "model_not_found", 404, "the model is not served here", "`GET /v1/models` lists what is"
    RESPONSE_NOT_FOUND = (
        "response_not_found",
        404,
        "no response or conversation of this id was stored with this API key, one that it goes on from was deleted, or "
        "nothing is stored here",
        "send the whole history",
    )
    ENDPOINT_NOT_FOUND = "endpoint_not_found", 404, "no such path", "see [api.md](api.md)"
    METHOD_NOT_ALLOWED = "method_not_allowed", 405, "the path does not take this method", "`Allow` has the right one"
    REQUEST_TIMEOUT = (
        "request_timeout",
        408,
        "the request did not come: 30 s for its head, 60 between parts of its body, 120 for all of it",
        "send it at once",
    )
    REQUEST_TOO_LARGE = (
        "request_too_large",
        413,
        "the body is larger than `--max-body-size`, or holds too many items",
        "send less",
    )
    UNSUPPORTED_ENCODING = (
        "unsupported_encoding",
        415,
        "the body is compressed in another way than gzip, deflate or zstd",
        "send it plain, or as gzip",
    )
    RATE_LIMIT_EXCEEDED = (
        "rate_limit_exceeded",
        429,
        "the key has as many requests here as it may (`--max-concurrent-requests-per-key`), or one waited for its "
        "turn too long",
        "wait until one of them has ended; `Retry-After`",
    )
    HEAD_TOO_LARGE = "head_too_large", 431, "the head is larger than 64 KiB, or has more than 200 headers", "send less"
    INTERNAL_ERROR = "internal_error", 500, "a bug here; the log has its story", "report it with the `x-request-id`"
    ENGINE_ERROR = "engine_error", (500, 502), "the engine failed", "try again; look at the engine"
    ENGINE_ABORTED = "engine_aborted", 502, "the engine broke the generation off", "try again; look at the engine"
    ENGINE_DISCONNECTED = (
        "engine_disconnected",
        502,
        "the connection to the engine broke",
        "try again; look at the engine",
    )
    OVERLOADED = (
        "overloaded",
        503,
        "as many requests generate as may, and the queue is full or the wait in it was too long; or the server has no "
        "open file left for the request",
        "try again after `Retry-After`",
    )
    ENGINE_OVERLOADED = "engine_overloaded", (429, 503), "the engine has no room", "try again after `Retry-After`"
    ENGINE_UNREACHABLE = "engine_unreachable", 503, "the engine cannot be reached", "try again after `Retry-After`"
    ENGINE_UNHEALTHY = (
        "engine_unhealthy",
        503,
        "the engine gives no token, runs another model, or, started by the server, has died",
        "look at the engine",
    )
    STORE_UNAVAILABLE = (
        "store_unavailable",
        503,
        "the store of responses does not work, and the request needs it",
        "try again after `Retry-After`, or send the whole history with `store: false`",
    )
    SERVER_STOPPING = (
        "server_stopping",
        503,
        "the server is about to stop, and the request outlasted the time for it",
        "try again after `Retry-After`",
    )
    ENGINE_TIMEOUT = "engine_timeout", 504, "the engine has been silent too long", "try again; look at the engine"
