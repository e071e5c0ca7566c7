"""Who may come in, from where, and under which path: the settings of access as middleware."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from paraserve.api.callers import KnownCallers
from paraserve.api.keys import ApiKeys, KeyRing
from paraserve.api.root_path import RootPath
from paraserve.settings import ServerSettings

SHOWN_TO_PAGES = ("x-request-id", "x-paraserve-policies", "x-paraserve-normalizations", "retry-after")
PREFLIGHT_SECONDS = 3600


def page_layers(settings: ServerSettings) -> list[Middleware]:
    """Which path is whose, and which pages may read what: for every answer that there is."""
    layers = []
    if settings.root_path:
        layers.append(Middleware(RootPath, root_path=settings.root_path))
    if settings.allowed_origins:
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=settings.allowed_origins,
                allow_methods=("GET", "POST", "DELETE"),
                allow_headers=("*",),
                allow_private_network=True,
                expose_headers=SHOWN_TO_PAGES,
                max_age=PREFLIGHT_SECONDS,
            )
        )
    return layers


def key_layer(settings: ServerSettings, open_paths: frozenset[str]) -> list[Middleware]:
    """What asks for a key, or without keys, what keeps web pages out.

    Args:
        open_paths: those that ask for no key.

    Raises:
        KeyFileError: the file of keys cannot be used.
    """
    keys = key_ring(settings)
    if keys is None:
        return [
            Middleware(KnownCallers, names=(settings.host, *settings.allowed_hosts), origins=settings.allowed_origins)
        ]
    return [Middleware(ApiKeys, keys=keys, open_paths=open_paths)]


def key_ring(settings: ServerSettings) -> KeyRing | None:
    """None where nobody is asked for a key. Raises `KeyFileError`."""
    if not settings.api_key and settings.api_key_file is None:
        return None
    return KeyRing((*settings.api_key, *settings.engine_fields_key), settings.api_key_file)
