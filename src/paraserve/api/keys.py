"""The keys that open the door, and the door.

It must never know what lies behind it. Invariants: a key is compared in constant time and never shown, logged or put
into an error; what cannot be compared is refused; a preflight of a browser carries no key and is answered before.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from paraserve.admission import Caller
from paraserve.api.errors import ErrorResponse
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError
from paraserve.secrets import keys_in_force, spellings
from paraserve.start_error import StartError
from paraserve.watched_files import WatchedFiles

_CALLER = "caller"

LOOK_SECONDS = 1.0
"""How often a file of keys is looked at, at most: a withdrawn key opens the door no longer than this."""

log = logging.getLogger(__name__)


class KeyFileError(StartError):
    """A file of keys cannot be used."""


class KeyRing:
    """The keys in force.

    Args:
        keys: from the command line, the environment or the configuration file.
        file: of further keys, one a line; read again when it changes. While it cannot be read, the keys that it had
            last stay in force; a file without keys admits nobody.

    Raises:
        KeyFileError: the file cannot be read, or there is no key at all.
    """

    def __init__(
        self, keys: Iterable[str], file: str | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._given = list(keys)
        self._file = Path(file) if file else None
        self._clock = clock
        self._digests: list[bytes] = []
        self.spellings: list[str] = []
        """What of the keys must not be shown. Kept as they are: they are in this process's memory either way."""
        self._looked = clock()
        if self._file is not None:
            self._watched = WatchedFiles(self._file)
            self._watched.changed()
            self._read(self._file)
            if len(self._digests) == len(self._given):
                raise KeyFileError(f"--api-key-file {self._file}: holds no key")
        else:
            self._admit(())

    def admits(self, key: bytes) -> bytes | None:
        """The digest of ``key`` if it is one of them, in a time that depends on their number only."""
        if self._file is not None and self._clock() - self._looked >= LOOK_SECONDS:
            self._look_again(self._file)
        sent = digest(key)
        matches = [hmac.compare_digest(sent, known) for known in self._digests]
        return sent if any(matches) else None

    def _look_again(self, file: Path) -> None:
        self._looked = self._clock()
        if not self._watched.changed():
            return
        try:
            self._read(file)
        except KeyFileError as error:
            log.warning("the file of API keys cannot be read, its last keys stay in force: %s", error)
        else:
            log.info("read the file of API keys again: %d keys", len(self._digests) - len(self._given))

    def _read(self, file: Path) -> None:
        try:
            text = file.read_text(encoding="ascii")
        except OSError as error:
            raise KeyFileError(f"--api-key-file {file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise KeyFileError(f"--api-key-file {file}: a key is visible ASCII characters without spaces") from error
        lines = [line.strip() for line in text.splitlines()]
        self._admit([line for line in lines if line and not line.startswith("#")])

    def _admit(self, from_file: Iterable[str]) -> None:
        keys = [*self._given, *from_file]
        self._digests = [digest(key.encode()) for key in keys]
        self.spellings = spellings(keys)


def digest(key: bytes) -> bytes:
    """Of one length for all, so that a comparison does not tell the length of a key."""
    return hashlib.sha256(key).digest()


class ApiKeys:
    """Asks for a key, as a bearer token or as `x-api-key`, on every path but the open ones."""

    def __init__(self, app: ASGIApp, keys: KeyRing, open_paths: frozenset[str]) -> None:
        self._app = app
        self._keys = keys
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        keys_in_force.set(self._keys.spellings)
        if _route_path(scope) in self._open_paths or self._admits(scope):
            await self._app(scope, receive, send)
            return
        error = RequestError(
            "A valid API key is needed: send it as `Authorization: Bearer KEY`.",
            status=401,
            code=ErrorCode.INVALID_API_KEY,
            headers={"www-authenticate": "Bearer"},
        )
        await ErrorResponse(scope, error)(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        caller = self._keys.admits(presented_key(scope))
        if caller is None:
            return False
        scope.setdefault("state", {})[_CALLER] = caller
        return True


def presented_key(scope: Scope) -> bytes:
    """What a request presents as its key: a bearer token, else ``x-api-key``; empty where it presents none."""
    headers = Headers(scope=scope)
    scheme, _, sent = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        sent = headers.get("x-api-key", "")
    return sent.strip(" \t").encode("latin-1", "replace")  # blanks of HTTP; those of Latin-1 are part of a key


def caller_of(scope: Scope) -> Caller:
    """Whose request it is, None where nobody is asked for a key."""
    caller: Caller = scope["state"].get(_CALLER)
    return caller


def party_of(scope: Scope) -> Hashable:
    """Who is behind a request, for what parties share: a key, or an address where nobody is asked for one."""
    client = scope.get("client")
    return caller_of(scope) or (client and client[0])


def _route_path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
