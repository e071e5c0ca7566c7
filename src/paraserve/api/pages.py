"""The pages for a person with a browser.

Each page is one file of the package that asks for nothing from outside. A page holds nothing of this server but the
path that it is shown under: what it shows it asks the API for, with the key that its reader has typed in.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from paraserve.api.body import deployment_of

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


async def docs(request: Request) -> Response:
    return page("docs.html", deployment_of(request).settings.root_path)


async def playground(request: Request) -> Response:
    return page("playground.html", deployment_of(request).settings.root_path)


def page(name: str, root_path: str) -> Response:
    """A file of ``paraserve/pages`` with its base address.

    Its policy lets the browser run the page's own script and style and nothing else, and call this server only.
    """
    source, policy = _read(name)
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


@cache
def _read(name: str) -> tuple[str, str]:
    """A file and its policy."""
    source = files("paraserve").joinpath("pages", name).read_text(encoding="utf-8")
    hashes = {kind: f"'sha256-{_hash(text)}'" for kind, text in _INLINE.findall(source)}
    policy = (
        f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; connect-src 'self'; "
        "img-src data:; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
    )
    return source, policy


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
