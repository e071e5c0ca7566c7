"""What one HTTP request was and did: filled by the stages that it passes, read once by metrics and log.

It decides nothing, and it never holds a header of the client but the request id. Invariant: a failure, a client that
left and a whole reply leave a record alike, so that no outcome is counted by a path of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Literal

from paraserve.generation.events import Usage
from paraserve.generation.run import EngineRun, usage_of
from paraserve.generation.timings import Timings
from paraserve.policies.base import PolicyLedger
from paraserve.protocol.error_codes import ErrorCode

AbortCause = Literal["client_left", "server_stopping", "stop_string", "engine_failed"]
CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a client that left; nobody reads it, but logs and metrics do."""
NO_TOKENS = Usage(0, 0, 0, None)


@dataclass(slots=True, eq=False)
class RequestRecord:
    """Moments are `time.perf_counter` seconds.

    Args:
        id: the ``X-Request-Id``.
        endpoint: the route's path, ``other`` where none matched.
        path: as the client wrote it.
    """

    id: str
    method: str
    endpoint: str
    path: str = ""
    began: float = field(default_factory=perf_counter)
    ended: float | None = None
    status: int = 0
    """How it came out: the HTTP status, or the one that a failure after a stream's head would have had, or 499 for a
    client that left."""
    error: str | None = None
    """The error's ``code``, or ``status_400`` and the like for one that has none."""
    broken_off: Literal["client_left", "server_stopping"] | None = None
    model: str | None = None
    """What the client asks for; None where the request was not read so far."""
    stream: bool = False
    reply_id: str = ""
    normalizations: Sequence[str] = ()
    decoded: float | None = None
    ready: float | None = None
    """When prompt and sampling values were there, and only the engine was waited for."""
    runs: Sequence[EngineRun] = ()
    prompts: int = 1
    sent: Mapping[str, Any] = field(default_factory=dict)
    """What the log shows of the request's body."""
    reply: bytearray = field(default_factory=bytearray)
    """The response's body up to the log's cap, where the log wants it."""
    shown_policies: Sequence[str] = ()
    """Those that the response header names."""
    counted: Usage = NO_TOKENS
    """Tokens that the metrics have counted already."""
    _ledger: PolicyLedger | None = None

    def read(self, model: str, *, stream: bool) -> None:
        """The request is decoded. ``model`` is what it asks for, by name or by default."""
        self.model, self.stream, self.decoded = model, stream, perf_counter()

    def begin(
        self,
        reply_id: str,
        runs: Sequence[EngineRun],
        ledger: PolicyLedger,
        *,
        prompts: int = 1,
        normalizations: Sequence[str] = (),
    ) -> None:
        """Everything is ready for the engine."""
        self.reply_id, self.runs, self._ledger, self.ready = reply_id, runs, ledger, perf_counter()
        self.prompts, self.normalizations = prompts, normalizations

    def detached(self) -> RequestRecord:
        """That of a reply which goes on when its request has been answered: what runs is its own from now on."""
        behind = replace(self, status=200, sent={}, reply=bytearray())
        self.runs = ()
        return behind

    def answer(self, status: int, policies: str | None) -> None:
        """The head of the response goes out, with this value of the header that names policies."""
        self.status = status
        if policies:
            self.shown_policies = policies.split(", ")

    def leave(self) -> None:
        """The client closed its connection before the answer was whole."""
        self.broken_off, self.status, self.error = "client_left", CLIENT_CLOSED_REQUEST, None

    def stop(self) -> None:
        """The server stops before the answer is whole."""
        if self.broken_off is None:
            self.fail(503, ErrorCode.SERVER_STOPPING)
            self.broken_off = "server_stopping"

    def close(self) -> None:
        """The request has ended. One that nobody answered was met by a bug."""
        self.ended = perf_counter()
        if not self.status:
            self.fail(500, ErrorCode.INTERNAL_ERROR)

    def fail(self, status: int, code: str | None) -> None:
        """An error went out. A client that left stays one that left."""
        if self.broken_off != "client_left":
            self.status, self.error = status, code or f"status_{status}"

    @property
    def policies(self) -> Sequence[str]:
        """Names of the policies that changed something, whatever became of the request."""
        return self.shown_policies or (self._ledger.policies if self._ledger is not None else ())

    @property
    def all_timings(self) -> list[Timings]:
        """Of the generations that were begun."""
        return [run.timings for run in self.runs if run.timings.asked is not None]

    @property
    def complete(self) -> bool:
        """Whether the reply came to its own end."""
        return bool(self.runs) and self.broken_off is None and all(run.choice.end is not None for run in self.runs)

    @property
    def seconds(self) -> float:
        return (perf_counter() if self.ended is None else self.ended) - self.began

    @property
    def preparation_seconds(self) -> float | None:
        """From the decoded request to the prepared one."""
        return None if self.ready is None or self.decoded is None else self.ready - self.decoded

    @property
    def queue_seconds(self) -> float | None:
        """From the prepared request to the engine."""
        asked = self._earliest("asked")
        return None if asked is None or self.ready is None else asked - self.ready

    @property
    def first_token_seconds(self) -> float | None:
        """Until the first token of any choice."""
        first = self._earliest("first")
        return None if first is None else first - self.began

    @property
    def engine_seconds(self) -> float | None:
        """From asking the engine to the end of the last generation."""
        asked = self._earliest("asked")
        return None if asked is None else max([each.ended or perf_counter() for each in self.all_timings]) - asked

    def _earliest(self, moment: Literal["asked", "first"]) -> float | None:
        """Of all generations."""
        return min([time for run in self.runs if (time := getattr(run.timings, moment)) is not None], default=None)

    def usage(self) -> Usage:
        """Tokens so far. A prompt counts from the first token on: before that nobody knows that it was read."""
        if all(run.timings.first is None for run in self.runs):
            return NO_TOKENS
        return usage_of(self.runs, self.prompts)

    def aborts(self) -> list[AbortCause]:
        """Why generations were broken off before the engine ended them, once for each."""
        causes: list[AbortCause] = []
        failed = any(run.timings.failure is not None for run in self.runs)
        for run in self.runs:
            end = run.choice.end
            if end is not None and isinstance(end.matched_stop, str):
                causes.append("stop_string")
            elif end is None and run.timings.asked is not None:
                if self.broken_off is not None:
                    causes.append(self.broken_off)
                elif failed:
                    causes.append("engine_failed")
        return causes
