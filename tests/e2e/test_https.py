"""A server with a certificate and a file of keys, as an operator starts it."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest
import trustme

from tests.e2e.conftest import ENGINE, Server
from tests.waiting import PATIENCE


def test_https_with_a_key_under_a_root_path(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain, key, keys = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "keys"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    keys.write_text("sesame\n")
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    server = Server(
        *("--ssl-certfile", str(chain), "--ssl-keyfile", str(key), "--api-key-file", str(keys), "--root-path", "/llm"),
        *ENGINE,
    )
    try:
        server.wait_until_ready()
        assert server.url.startswith("https://")
        with httpx.Client(base_url=server.url, verify=trusting, timeout=PATIENCE) as http:
            assert http.get("/llm/health").status_code == 200
            assert http.get("/llm/v1/models").status_code == 401
            http.headers["authorization"] = "Bearer sesame"
            body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "stream": True}
            assert http.post("/llm/v1/chat/completions", json=body).text.endswith("data: [DONE]\n\n")
        with pytest.raises(httpx.RemoteProtocolError), httpx.Client() as plain:
            plain.get(server.url.replace("https", "http") + "/health")
        assert "sesame" not in server.log.read_text()
        assert "Traceback" not in server.log.read_text()
    finally:
        server.stop()


@pytest.mark.parametrize(
    "flags", [("--ssl-certfile", "no/cert.pem"), ("--api-key-file", "no/keys")], ids=["certificate", "keys"]
)
def test_files_that_are_not_there_are_told_before_the_model_loads(flags: tuple[str, str]) -> None:
    server = Server(*flags, *ENGINE)
    try:
        assert server.wait_for_exit() == 1
        log = server.log.read_text()
        assert all(word in log for word in flags)
        assert "loading" not in log
        assert "Traceback" not in log
    finally:
        server.stop()
