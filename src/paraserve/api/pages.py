"""The pages for a person with a browser, and the description that they are made from.

Each page is one file of the package that asks for nothing from outside. A page holds nothing of this server but the
path that it is shown under: what it shows it asks the API for, with the key that its reader has typed in.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable, Sequence
from importlib.resources import files

import msgspec
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from paraserve.api.openapi import openapi_document
from paraserve.settings import ServerSettings

DESCRIPTION = "/openapi.json"
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def page_routes(settings: ServerSettings) -> Sequence[Route]:
    """``/`` is missing where the operator wants no playground."""
    root = settings.root_path
    routes = [
        Route(DESCRIPTION, _Once(lambda: description(root)), methods=["GET"]),
        Route("/docs", _Once(lambda: page("docs.html", root)), methods=["GET"]),
    ]
    if settings.playground:
        routes.append(Route("/", _Once(lambda: page("playground.html", root)), methods=["GET"]))
    return routes


class _Once:
    """An endpoint whose answer is made when it is first asked for, and kept."""

    def __init__(self, make: Callable[[], Response]) -> None:
        self._make = make
        self._made: Response | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._made is None:
            self._made = self._make()
        await self._made(scope, receive, send)


def description(root_path: str) -> Response:
    """The OpenAPI document as JSON."""
    return Response(msgspec.json.encode(openapi_document(root_path)), media_type="application/json")


def page(name: str, root_path: str) -> Response:
    """A file of ``paraserve/pages`` with its base address.

    Its policy lets the browser run the page's own script and style and nothing else, and call this server only.
    """
    source = files("paraserve").joinpath("pages", name).read_text(encoding="utf-8")
    hashes = {kind: f"'sha256-{_hash(text)}'" for kind, text in _INLINE.findall(source)}
    policy = (
        f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; connect-src 'self'; "
        "img-src data:; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
    )
    return Response(
        source.replace('<base href="/">', f'<base href="{html.escape(root_path)}/">', 1),
        media_type="text/html",
        headers={
            "content-security-policy": policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-cache",
        },
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
