"""Who may come in: keys, files of keys, origins of pages, and the path under which a proxy shows the server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from paraserve.api.app import create_app
from paraserve.api.endpoints import ENDPOINTS, Endpoint
from paraserve.api.keys import LOOK_SECONDS, KeyFileError, KeyRing
from tests.api.wire import CHAT, post
from tests.toy import client, deployment, engine

OPEN = {"/health", "/health_generate", "/metrics", "/", "/docs", "/openapi.json"}

ORIGIN = "https://app.example"
ASKS = {"origin": ORIGIN, "access-control-request-method": "POST"}


def served(**settings: Any) -> httpx.AsyncClient:
    return client(deployment(engine(), **settings))


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_every_key_opens_and_nothing_else_does() -> None:
    async with served(api_key=("sesame", "thyme")) as http:
        for key in ("sesame", "thyme"):
            assert (await http.get("/v1/models", headers=bearer(key))).status_code == 200
        wrong = ["", "sesam", "sesamee", "sesame,thyme", "SESAME", "sésame"]
        for headers in [{}, *({"authorization": f"Bearer {key}".encode("latin-1")} for key in wrong)]:
            assert (await http.get("/v1/models", headers=headers)).status_code == 401, headers
        for scheme in ("Basic", "Token", ""):
            response = await http.get("/v1/models", headers={"authorization": f"{scheme} sesame"})
            assert response.status_code == 401, scheme


async def test_a_refusal_has_the_shape_of_every_error_and_shows_no_key() -> None:
    async with served(api_key=("sesame",)) as http:
        response = await post(http, CHAT)
        wrong = await http.post(CHAT, json={}, headers=bearer("guess-1"))
    assert response.status_code == wrong.status_code == 401
    error = response.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("authentication_error", None, "invalid_api_key")
    assert response.headers["www-authenticate"] == "Bearer"
    for text in (response.text, wrong.text, str(wrong.headers)):
        assert "sesame" not in text
        assert "guess-1" not in text


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.path)
async def test_only_the_pages_probes_and_metrics_are_open(endpoint: Endpoint) -> None:
    """An endpoint that is added later is shut unless it is named here."""
    path = endpoint.path.replace("{model:path}", "toy")
    async with served(api_key=("sesame",)) as http:
        response = await http.request(endpoint.method, path)
    assert (response.status_code == 401) == (path not in OPEN)


async def test_probes_and_metrics_are_shut_where_the_operator_says_so() -> None:
    async with served(api_key=("sesame",), open_health=False, open_metrics=False) as http:
        for path in ("/health", "/health_generate", "/metrics"):
            assert (await http.get(path)).status_code == 401, path
        assert (await http.get("/health", headers=bearer("sesame"))).status_code == 200


@pytest.mark.parametrize("path", ["/v1/models/", "//v1/models", "/v1/%6dodels", "/health/../v1/models", "/nothing"])
async def test_no_spelling_of_a_path_gets_around_the_key(path: str) -> None:
    async with served(api_key=("sesame",), root_path="/llm") as http:
        for prefix in ("", "/llm", "/llm/llm"):
            assert (await http.get(prefix + path)).status_code == 401


class TestFileOfKeys:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "keys"
        path.write_text("# the night shift\nsesame\n\n  thyme  \n")
        return path

    async def test_its_keys_open_beside_those_given(self, file: Path) -> None:
        async with served(api_key=("basil",), api_key_file=str(file)) as http:
            for key in ("sesame", "thyme", "basil"):
                assert (await http.get("/v1/models", headers=bearer(key))).status_code == 200
            for key in ("# the night shift", "the", ""):
                assert (await http.get("/v1/models", headers=bearer(key))).status_code == 401

    def test_a_change_is_in_force_within_a_second(self, file: Path) -> None:
        now = 0.0
        ring = KeyRing([], str(file), clock=lambda: now)
        file.write_text("parsley\n")
        assert ring.admits(b"sesame"), "the file is not looked at for every request"
        now += LOOK_SECONDS
        assert not ring.admits(b"sesame")
        assert ring.admits(b"parsley")

    def test_a_file_that_cannot_be_read_leaves_the_last_keys_in_force(
        self, file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        now = 0.0
        ring = KeyRing([], str(file), clock=lambda: now)
        for spoil in (file.unlink, lambda: file.write_bytes(b"\xff")):
            spoil()
            now += LOOK_SECONDS
            assert ring.admits(b"sesame")
            assert "stay in force" in caplog.text
            assert "sesame" not in caplog.text
            caplog.clear()

    def test_a_file_that_was_emptied_admits_nobody(self, file: Path) -> None:
        now = 0.0
        ring = KeyRing([], str(file), clock=lambda: now)
        file.write_text("# all withdrawn\n")
        now += LOOK_SECONDS
        assert not ring.admits(b"sesame")
        assert not ring.admits(b"")

    @pytest.mark.parametrize("content", [None, b"", b"# none\n\n", b"k\xc3\xa9y\n"])
    def test_a_file_without_a_usable_key_is_refused_at_start(self, tmp_path: Path, content: bytes | None) -> None:
        path = tmp_path / "keys"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(KeyFileError, match=r"--api-key-file .*keys: "):
            KeyRing([], str(path))

    def test_a_file_swapped_for_another_of_the_same_size_and_time_is_seen(self, file: Path) -> None:
        now = 0.0
        ring = KeyRing([], str(file), clock=lambda: now)
        before = file.stat()
        other = file.with_name("new")
        other.write_bytes(file.read_bytes().replace(b"sesame", b"nutmeg"))
        os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        other.replace(file)
        now += LOOK_SECONDS
        assert ring.admits(b"nutmeg")
        assert not ring.admits(b"sesame")


class TestPagesOfOtherOrigins:
    async def test_none_may_call_by_default(self) -> None:
        async with served() as http:
            response = await http.get("/v1/models", headers={"origin": ORIGIN})
            preflight = await http.options(CHAT, headers=ASKS)
        assert preflight.status_code == 405
        for answer in (response, preflight):
            assert not [name for name in answer.headers if name.startswith("access-control-allow")]

    async def test_a_named_origin_may_and_its_preflight_needs_no_key(self) -> None:
        async with served(allowed_origins=(ORIGIN,), api_key=("sesame",)) as http:
            wants = {**ASKS, "access-control-request-headers": "authorization, content-type, x-stainless-os"}
            preflight = await http.options(CHAT, headers=wants)
            assert preflight.status_code == 200
            assert preflight.headers["access-control-allow-origin"] == ORIGIN
            assert "authorization" in preflight.headers["access-control-allow-headers"]
            origin = {"origin": ORIGIN}
            answer = await http.get("/v1/models", headers={**origin, **bearer("sesame")})
            assert answer.headers["access-control-allow-origin"] == ORIGIN
            assert "x-request-id" in answer.headers["access-control-expose-headers"].lower()
            refused = await http.get("/v1/models", headers=origin)
            assert refused.status_code == 401
            assert refused.headers["access-control-allow-origin"] == ORIGIN, "a page may read why"
            other = await http.options(CHAT, headers={**ASKS, "origin": "https://evil.example"})
            assert "access-control-allow-origin" not in other.headers

    @pytest.mark.parametrize("allowed", [ORIGIN, "*"])
    async def test_an_allowed_origin_on_the_internet_may_call_a_server_on_a_private_network(self, allowed: str) -> None:
        wants = {**ASKS, "access-control-request-private-network": "true"}
        async with served(allowed_origins=(allowed,)) as http:
            preflight = await http.options(CHAT, headers=wants)
            assert preflight.status_code == 200
            assert preflight.headers["access-control-allow-private-network"] == "true"

    @pytest.mark.parametrize("path", [CHAT, "/v1/models", "/nowhere"])
    async def test_a_page_may_read_every_answer_that_an_application_gives(
        self, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The one to a bug, and the one to the stop, like any other."""

        async def fail(*_: object) -> None:
            raise failure

        monkeypatch.setattr("paraserve.api.app.answer", fail)
        answers = {}
        for failure in (ValueError("a bug"), asyncio.CancelledError()):
            served_app = create_app(deployment(engine(), allowed_origins=(ORIGIN,)))
            head: dict[str, Any] = {}
            scope = {
                "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "root_path": "",
                "query_string": b"", "headers": [(b"origin", ORIGIN.encode())], "http_version": "1.1",
            }  # fmt: skip

            async def send(message: Any, head: dict[str, Any] = head) -> None:
                if message["type"] == "http.response.start":
                    head.update(message)

            with contextlib.suppress(asyncio.CancelledError):
                await served_app(scope, None, send)
            names = dict(head["headers"])
            assert names[b"access-control-allow-origin"] == ORIGIN.encode()
            assert b"x-request-id" in names
            answers[type(failure)] = head["status"]
        assert answers == {ValueError: 500, asyncio.CancelledError: 503}

    async def test_a_star_is_every_origin_without_credentials(self) -> None:
        async with served(allowed_origins=("*",)) as http:
            answer = await http.get("/v1/models", headers={"origin": ORIGIN})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("prefix", ["", "/llm"])
async def test_a_root_path_is_answered_with_it_and_without_it(prefix: str) -> None:
    async with served(root_path="/llm", api_key=("sesame",)) as http:
        assert (await http.get(f"{prefix}/health")).status_code == 200
        assert (await http.get(f"{prefix}/v1/models")).status_code == 401
        assert (await http.post(prefix + CHAT, json={}, headers=bearer("sesame"))).status_code == 400
        unknown = await http.get(f"{prefix}/v1/nothing", headers=bearer("sesame"))
        assert unknown.json()["error"]["code"] == "endpoint_not_found"


async def test_a_path_that_only_begins_like_the_root_path_is_not_under_it() -> None:
    async with served(root_path="/v1") as http:
        assert (await http.get("/v1/models")).status_code == 404, "all of it is the proxy's, /v1/v1/models is ours"
        assert (await http.get("/v1/v1/models")).status_code == 200
        assert (await http.get("/v1x/models")).status_code == 404
