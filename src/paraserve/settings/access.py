"""Which settings of the edge go together: access, TLS, traces. It must never read a file: that is the start's work."""

from __future__ import annotations

import importlib.util
import ipaddress
import re
from collections.abc import Mapping

from paraserve.settings.declare import ConfigurationError
from paraserve.settings.server import ServerSettings


def check_access(settings: ServerSettings, origins: Mapping[str, str]) -> None:
    """What could leave open a door that the operator means to be shut, or shut one for everybody.

    Raises `ConfigurationError`.
    """
    if "api_key" in origins and not settings.api_key:
        raise ConfigurationError(f"{origins['api_key']}: holds no key")
    for name, keys in (("api_key", settings.api_key), ("engine_fields_key", settings.engine_fields_key)):
        if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
            raise ConfigurationError(f"{origins[name]}: a key is visible ASCII characters without spaces")
    named = settings.engine_fields_from != "nobody" or settings.engine_fields_key
    if settings.engine_extra_fields and not named:
        source = origins["engine_extra_fields"]
        raise ConfigurationError(f"{source}: nobody may send them: --engine-fields-from proxies or anyone says who may")
    if settings.engine_fields_from == "proxies" and not settings.trusted_proxies:
        raise ConfigurationError(f"{origins['engine_fields_from']}: has no effect without --trusted-proxies")
    if settings.max_concurrent_requests_per_key and not settings.api_key and settings.api_key_file is None:
        source = origins["max_concurrent_requests_per_key"]
        raise ConfigurationError(f"{source}: has no effect without --api-key or --api-key-file")
    if settings.otlp_traces_endpoint is not None and not _can_trace():
        raise ConfigurationError(f"{origins['otlp_traces_endpoint']}: needs an extra: pip install 'paraserve[otel]'")
    if settings.ssl_keyfile is not None and settings.ssl_certfile is None:
        raise ConfigurationError(f"{origins['ssl_keyfile']}: has no effect without --ssl-certfile")
    if not re.fullmatch(r"|(/[^/\s]+)+", settings.root_path):
        raise ConfigurationError(
            f"{origins['root_path']}: {settings.root_path!r} is not valid: expected a path as /llm"
        )
    for origin in settings.allowed_origins:
        if origin != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+", origin):
            source = origins["allowed_origins"]
            raise ConfigurationError(f"{source}: {origin!r} is not valid: expected scheme://host[:port] or *")
    for proxy in settings.trusted_proxies:
        if proxy != "*" and not _is_network(proxy):
            source = origins["trusted_proxies"]
            raise ConfigurationError(f"{source}: {proxy!r} is not valid: expected an address, a network or *")


def access_warnings(settings: ServerSettings) -> list[str]:
    """What an operator may mean, and should know."""
    if settings.api_key or settings.api_key_file or is_loopback(settings.host):
        return []
    return [f"--host {settings.host} without --api-key: whoever reaches this address may use the model"]


def is_loopback(host: str) -> bool:
    """Whether a name or an address of an URL stands for this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def _can_trace() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False
