"""Which pages may call a server that asks for no key, and by which names it is called."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from paraserve.api.endpoints import ENDPOINTS
from tests.api.wire import CHAT, USER
from tests.toy import client, deployment, engine

BODY = {"messages": USER}
OWN = [
    "toy", "localhost", "localhost:8000", "LOCALHOST", "api.localhost", "127.0.0.1:8000", "127.8.9.1", "[::1]:8000",
    "192.168.1.7", "10.0.0.1:80", "[fe80::1]", "gpu-box", "paraserve:8000", "paraserve.default.svc",
    "paraserve.default.svc.cluster.local", "host.docker.internal", "localhost.",
]  # fmt: skip
FOREIGN = [
    "evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example.", "1.2.3",
    "evil.localhost.example", "127.0.0.1.nip.io", "x" * 5000 + ".example",
]  # fmt: skip


def served(**settings: Any) -> httpx.AsyncClient:
    return client(deployment(engine(), **settings))


@pytest.mark.parametrize("host", OWN)
async def test_names_that_no_stranger_can_own_are_answered(host: str) -> None:
    async with served() as http:
        assert (await http.post(CHAT, json=BODY, headers={"host": host})).status_code == 200


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_name_that_a_page_may_have_made_up_is_refused_with_the_flag_that_admits_it(host: str) -> None:
    async with served() as http:
        for endpoint in ENDPOINTS:
            path = endpoint.path.replace("{model:path}", "toy")
            response = await http.request(endpoint.method, path, headers={"host": host}, json=BODY)
            assert response.status_code == 403, path
            assert "unknown_host" in response.text or "permission_error" in response.text
            assert "--allowed-hosts" in response.text
            assert len(response.text) < 1000


@pytest.mark.parametrize(
    "settings",
    [
        {"allowed_hosts": ("llm.example",)},
        {"allowed_hosts": ("*",)},
        {"host": "llm.example"},
        {"api_key": ("sesame-street",)},
    ],
    ids=str,
)
async def test_a_name_is_answered_where_the_operator_says_so_or_a_key_is_asked_for(settings: dict[str, Any]) -> None:
    headers = {"host": "LLM.example:8080", "authorization": "Bearer sesame-street"}
    async with served(**settings) as http:
        assert (await http.post(CHAT, json=BODY, headers=headers)).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://toy:8000", "http://localhost:3000", ""])
async def test_no_foreign_page_has_a_post_served(origin: str) -> None:
    async with served() as http:
        response = await http.post(CHAT, json=BODY, headers={"origin": origin})
        assert (response.status_code, response.json()["error"]["code"]) == (403, "foreign_origin")
        assert "--allowed-origins" in response.text
        assert (await http.get("/health", headers={"origin": origin})).status_code == 200


@pytest.mark.parametrize(
    ("origin", "settings"),
    [
        ("http://toy", {}),
        ("https://toy", {}),
        ("https://app.example", {"allowed_origins": ("https://app.example",)}),
        ("https://app.example", {"allowed_origins": ("*",)}),
        ("https://app.example", {"api_key": ("sesame-street",)}),
    ],
)
async def test_own_and_allowed_pages_and_holders_of_keys_are_served(origin: str, settings: dict[str, Any]) -> None:
    headers = {"origin": origin, "authorization": "Bearer sesame-street"}
    async with served(**settings) as http:
        assert (await http.post(CHAT, json=BODY, headers=headers)).status_code == 200


async def test_a_name_that_passed_does_not_let_another_pass() -> None:
    async with served() as http:
        for host, status in (("toy", 200), ("evil.example", 403), ("toy", 200), ("evil.example", 403)):
            assert (await http.get("/v1/models", headers={"host": host})).status_code == status


@pytest.mark.parametrize("blank", ["\xa0", "\x85", "\x1c", "\x0b"])
@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
async def test_blanks_of_latin_1_are_part_of_a_key(blank: str, header: str) -> None:
    scheme = "Bearer " if header == "authorization" else ""
    async with served(api_key=("sesame-street",)) as http:
        for sent, status in (("sesame-street", 200), (f"sesame-street{blank}", 401), (f"{blank}sesame-street", 401)):
            value = (scheme + sent).encode("latin-1")
            assert (await http.get("/v1/models", headers={header: value})).status_code == status
