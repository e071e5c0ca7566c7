"""Server-sent events, read incrementally: bytes in, whole ``data`` payloads out.

Never knows what the payloads mean, and does no I/O. Two invariants: any split of the same bytes gives the same
payloads, and each byte is searched once, so that an event which arrives in many pieces costs its length and no more.
"""

from __future__ import annotations


class SSEOverflow(Exception):
    """An event is longer than the reader was told to hold."""


class SSEReader:
    """One stream of events (WHATWG HTML, section 9.2), of which engines use the ``data`` field alone.

    Args:
        max_event_bytes: the longest event to hold before `SSEOverflow`; there for a peer that never ends a line, or
            an event of many lines, empty ones among them.
    """

    __slots__ = ("_data", "_held", "_max", "_pending", "_skip_lf")

    def __init__(self, max_event_bytes: int = 16 << 20) -> None:
        self._max = max_event_bytes
        self._pending: list[bytes] = []  # pieces of a line that has not ended
        self._held = 0
        self._data: list[bytes] = []  # data lines of an event that has not ended
        self._skip_lf = False  # the last piece ended in CR: an LF right after it is the same line end

    def feed(self, chunk: bytes) -> list[bytes]:
        """Payloads of the events that ``chunk`` completes, in order."""
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        events: list[bytes] = []
        for line in lines:
            if self._pending:
                self._held -= sum(map(len, self._pending))
                self._pending.append(line)
                line = b"".join(self._pending)
                self._pending.clear()
            self._line(line, events)
        if rest:
            self._pending.append(rest)
            self._held += len(rest)
        if self._held > self._max:
            raise SSEOverflow
        return events

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data.clear()
                self._held = 0
        elif line.startswith(b"data:"):
            self._add(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line == b"data":
            self._add(b"")

    def _add(self, data: bytes) -> None:
        self._data.append(data)
        self._held += len(data) or 1
