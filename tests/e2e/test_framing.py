"""The framing kit against servers as they are started: one process, several, and HTTPS."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from paraserve.engines.llama_cpp.embedded import default_model_path
from tests.e2e.conftest import Server
from tests.serving.framing import CASES, cuts, try_case

WAYS = {"one process": (), "workers": ("--workers", "2"), "HTTPS": ("--ssl-certfile",)}


@pytest.fixture(params=WAYS.values(), ids=list(WAYS), scope="module")
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, ssl.SSLContext | None]]:
    """A server whose replies are scripted, and what trusts it."""
    directory: Path = tmp_path_factory.mktemp("framing")
    script = directory / "script.json"
    script.write_text(json.dumps({"replies": [{"text": "Hello."}], "context_length": 8192}))
    flags, trusting = list(request.param), None
    if "--ssl-certfile" in flags:
        authority = trustme.CA()
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(directory / "both.pem"))
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        flags.append(str(directory / "both.pem"))
    engine = ("--engine", "scripted", "--engine-script", str(script), "--model-path", str(default_model_path()))
    server = Server(*engine, *flags)
    try:
        server.wait_until_ready()
        yield server, trusting
        assert "Traceback" not in server.log.read_text()
    finally:
        server.stop()


@pytest.mark.parametrize("way", ["whole", "behind the head", "odd", "byte by byte"])
async def test_requests_are_framed_alike_on_every_way_to_a_server(
    served: tuple[Server, ssl.SSLContext | None], way: str
) -> None:
    server, trusting = served
    tried = {name: (case, cuts(case.sent)[way]) for name, case in CASES.items() if way in cuts(case.sent)}
    came = await asyncio.gather(*(try_case(server.url, case, pieces, trusting) for case, pieces in tried.values()))
    differs = {
        name: answers
        for (name, (case, _)), answers in zip(tried.items(), came, strict=True)
        if answers != (case.answers, case.goes_on)
    }
    assert differs == {}
