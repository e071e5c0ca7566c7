"""What a proxy says of the client is believed of the proxies that the operator named, and of nobody else."""

from __future__ import annotations

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paraserve.serving.server import HTTPServer
from paraserve.settings import ServerSettings

SAYS = {"x-forwarded-proto": "https", "x-forwarded-for": "198.51.100.7"}
DEFAULT = ("127.0.0.1", "::1")


@pytest.mark.parametrize(
    ("trusted", "peer", "believed"),
    [
        (DEFAULT, "127.0.0.1", True),
        (DEFAULT, "::1", True),
        (DEFAULT, "203.0.113.9", False),
        (("10.0.0.0/8",), "10.1.2.3", True),
        (("10.0.0.0/8",), "127.0.0.1", False),
        (("*",), "203.0.113.9", True),
        ((), "127.0.0.1", False),
    ],
)
async def test_what_a_proxy_tells_of_the_client(trusted: tuple[str, ...], peer: str, believed: bool) -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)
        await Response()(scope, receive, send)

    config = HTTPServer(app, ServerSettings(trusted_proxies=trusted), None).config
    config.load()
    transport = httpx.ASGITransport(config.loaded_app, client=(peer, 1234))
    async with httpx.AsyncClient(transport=transport, base_url="http://toy") as http:
        await http.get("/", headers=SAYS)
    (scope,) = seen
    assert scope["scheme"] == ("https" if believed else "http")
    assert scope["client"][0] == (SAYS["x-forwarded-for"] if believed else peer)
