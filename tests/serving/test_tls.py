"""HTTPS: a certificate from files, followed when they change, never half loaded."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from paraserve.serving.tls import Certificate, CertificateError
from tests.waiting import PATIENCE


class Files:
    """A certificate and its key as an operator has them, signed by an authority that the client trusts."""

    def __init__(self, directory: Path) -> None:
        self.chain, self.key = directory / "cert.pem", directory / "key.pem"
        self.authority = trustme.CA()
        self.renew("first.example")

    def renew(self, name: str, *, only_chain: bool = False) -> None:
        issued = self.authority.issue_cert(name)
        self.chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        if not only_chain:
            self.key.write_bytes(issued.private_key_pem.bytes())

    def lock_key(self) -> None:
        key = serialization.load_pem_private_key(self.key.read_bytes(), None)
        lock = serialization.BestAvailableEncryption(b"sesame")
        form = serialization.PrivateFormat.PKCS8
        self.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, lock))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@asynccontextmanager
async def listening(certificate: Certificate) -> AsyncIterator[int]:
    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=certificate.context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def name_shown(port: int, files: Files) -> str:
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    files.authority.configure_trust(trusting)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    shown = writer.get_extra_info("peercert")
    writer.close()
    return str(shown["subjectAltName"][0][1])


async def test_new_connections_get_the_new_certificate(files: Files) -> None:
    certificate = Certificate(str(files.chain), str(files.key))
    async with listening(certificate) as port:
        assert await name_shown(port, files) == "first.example"
        files.renew("second.example")
        follower = asyncio.create_task(certificate.follow(every=0.01))
        async with asyncio.timeout(PATIENCE):
            while await name_shown(port, files) != "second.example":
                pass
        follower.cancel()


async def test_a_pair_that_does_not_fit_changes_nothing_until_it_does(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = Certificate(str(files.chain), str(files.key))
    async with listening(certificate) as port:
        files.renew("half.example", only_chain=True)
        certificate.look()
        assert await name_shown(port, files) == "first.example"
        assert "the last one stays in use" in caplog.text
        files.key.unlink()
        certificate.look()
        assert await name_shown(port, files) == "first.example"
        files.renew("whole.example")
        certificate.look()
        assert await name_shown(port, files) == "whole.example"


def test_files_that_did_not_change_are_not_loaded_again(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    certificate = Certificate(str(files.chain), str(files.key))
    certificate.look()
    assert caplog.text == ""


async def test_one_file_may_hold_both(files: Files, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(files.key.read_bytes() + files.chain.read_bytes())
    async with listening(Certificate(str(both))) as port:
        assert await name_shown(port, files) == "first.example"


@pytest.mark.parametrize("spoil", ["no chain", "no key", "another key", "no PEM", "locked key"])
def test_files_that_cannot_be_used_are_refused_in_one_line(files: Files, tmp_path: Path, spoil: str) -> None:
    if spoil == "no chain":
        files.chain.unlink()
    elif spoil == "no key":
        files.key.unlink()
    elif spoil == "another key":
        files.renew("other.example", only_chain=True)
    elif spoil == "no PEM":
        files.chain.write_text("hello")
    else:
        files.lock_key()
    with pytest.raises(CertificateError, match="--ssl-certfile, --ssl-keyfile: ") as caught:
        Certificate(str(files.chain), str(files.key))
    assert "\n" not in str(caught.value)
