"""HTTPS: the certificate from its files, and again when they change.

It must never know what is served. Invariant: new connections get the newest certificate that could be loaded whole;
a pair that does not fit (half written, wrong key) is told in the log and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl

from paraserve.start_error import StartError
from paraserve.watched_files import WatchedFiles

LOOK_SECONDS = 5.0
"""How often the files are looked at."""

log = logging.getLogger(__name__)


class CertificateError(StartError):
    """Certificate or key cannot be used."""


class Certificate:
    """A server's certificate.

    Args:
        chain: PEM file of the certificate and its chain.
        key: PEM file of the private key; the chain's own file by default.

    Raises:
        CertificateError: the files cannot be used.
    """

    def __init__(self, chain: str, key: str | None = None) -> None:
        self._chain, self._key = chain, key or chain
        self._files = WatchedFiles(self._chain, self._key)
        self._files.changed()
        self.context = self._fresh()

    async def follow(self, every: float = LOOK_SECONDS) -> None:
        """Load the files again whenever they change, until cancelled."""
        while True:
            await asyncio.sleep(every)
            self.look()

    def look(self) -> None:
        """Load the files again if they changed."""
        if not self._files.changed():
            return
        try:
            self._fresh()
            # The context that the listening socket has: connections copy its certificate when they begin.
            self.context.load_cert_chain(self._chain, self._key, _no_password)
        except (CertificateError, OSError) as error:
            log.warning("the new certificate is not usable, the last one stays in use: %s", error)
        else:
            log.info("loaded the new certificate from %s", self._chain)

    def _fresh(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._chain, self._key, _no_password)
        except OSError as error:
            missing = next((path for path in (self._chain, self._key) if not os.access(path, os.R_OK)), None)
            reason = _reason(error) if missing is None else f"{missing}: {error.strerror}"
            raise CertificateError(f"--ssl-certfile, --ssl-keyfile: {reason}") from error
        return context


def _no_password() -> str:
    """Instead of OpenSSL's question on the terminal."""
    return ""


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return "no certificate in PEM form with the private key that belongs to it (a key must have no password)"
    return error.strerror or str(error)
