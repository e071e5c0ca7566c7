"""Files that may change while the server runs: keys, certificates. It must never know what is in them."""

from __future__ import annotations

from pathlib import Path

_Version = tuple[int, int, int] | None


class WatchedFiles:
    """Says of files whether they have changed. One that is not there has not, until it comes or goes."""

    def __init__(self, *paths: str | Path) -> None:
        self._paths = [Path(path) for path in paths]
        self._seen: list[_Version] | None = None

    def changed(self) -> bool:
        """Whether anything is other than at the last call. Ask before reading: what comes later is seen next time."""
        now = [_version(path) for path in self._paths]
        before, self._seen = self._seen, now
        return now != before


def _version(path: Path) -> _Version:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
