"""The numbers that ``GET /metrics`` shows: which there are, and how a request's record becomes them.

It must never know what a request says. Two invariants: a label's values are bounded whatever clients send, and a
request is counted in one place, when it ends; tokens that were generated so far are counted at every scrape, so that
rates are true while long replies run.

Several processes: with ``PROMETHEUS_MULTIPROC_DIR`` set before this module is imported, the library keeps every value
in files of that directory, and any process answers with the sum.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from paraserve.generation.events import FinishReason
from paraserve.generation.timings import GAP_BOUNDS
from paraserve.observability.record import AbortCause, RequestRecord
from paraserve.observability.tallies import HistogramTally, Tally

MULTIPROCESS_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
OTHER_MODEL = "other"
NO_MODEL = "none"
NO_POLICY = "none"
_OF_REPLY = ("endpoint", "model")

_FIRST_TOKEN = (
    0.01,
    0.025,
    0.05,
    0.1,
    0.2,
    0.3,
    0.5,
    0.75,
    1.0,
    1.5,
    2.0,
    3.0,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
    160.0,
)
_WHOLE_REPLY = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0)
_PREPARATION = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_QUEUE = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
_LAG = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_TOKENS = tuple(float(2**power) for power in range(4, 21))


AnyTally = TypeVar("AnyTally", Tally, HistogramTally)


class Metrics:
    """The registry of one server.

    Args:
        models: the served names.
        endpoints: paths of those that generate.
        policies: names of the policies that may change a request.
        build: labels of ``paraserve_build_info``.
    """

    def __init__(
        self,
        models: Sequence[str],
        *,
        endpoints: Sequence[str] = (),
        policies: Iterable[str] = (),
        build: dict[str, str],
    ) -> None:
        self.registry = CollectorRegistry()
        self._models, self._endpoints = tuple(models), endpoints
        self._shared = MULTIPROCESS_DIRECTORY in os.environ
        self._tallies: list[Tally | HistogramTally] = []
        self._running: set[RequestRecord] = set()
        self._last_token = 0.0
        self._declare_server()
        self._declare_tokens()
        self._declare_times()
        self._declare_replies()
        self._begin_at_zero(policies)
        self._build.labels(**build).set(1)
        if not self._shared:
            ProcessCollector(registry=self.registry)

    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Tally:
        return self._tallied(Tally(Counter(f"paraserve_{name}", text, labels, registry=self.registry)))

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> HistogramTally:
        histogram = Histogram(f"paraserve_{name}", text, _OF_REPLY, buckets=buckets, registry=self.registry)
        return self._tallied(HistogramTally(histogram))

    def _tallied(self, tally: AnyTally) -> AnyTally:
        self._tallies.append(tally)
        return tally

    def _gauge(self, name: str, text: str, labels: Sequence[str], mode: Literal["livesum", "mostrecent"]) -> Gauge:
        return Gauge(f"paraserve_{name}", text, labels, registry=self.registry, multiprocess_mode=mode)

    def _declare_server(self) -> None:
        self._build = self._gauge(
            "build_info",
            "Versions of server and engine; always 1.",
            ["version", "engine", "engine_version"],
            "mostrecent",
        )
        self._requests = self._counter(
            "requests", "Requests that ended.", ["endpoint", "model", "status", "stream", "policy"]
        )
        in_flight = self._gauge("requests_in_flight", "Requests that are being answered.", ["endpoint"], "livesum")
        self._in_flight = self._tallied(Tally(in_flight))
        self._gauge("workers", "Processes that serve.", [], "livesum").set(1)
        self._queued = self._gauge("requests_queued", "Requests that wait for a place.", [], "livesum")
        self._errors = self._counter("request_errors", "Requests that got an error, by its code.", ["code"])
        self._policies = self._counter("policy_applied", "Requests that a policy changed or refused.", ["policy"])
        self._lag = Histogram(
            "paraserve_event_loop_lag_seconds",
            "How late the event loop wakes a sleeper.",
            buckets=_LAG,
            registry=self.registry,
        )

    def _declare_tokens(self) -> None:
        counter, histogram = self._counter, self._histogram
        self._prompt_tokens = counter("prompt_tokens", "Prompt tokens of replies that began.", _OF_REPLY)
        self._cached_tokens = counter("cached_prompt_tokens", "Prompt tokens that the engine had cached.", _OF_REPLY)
        self._completion_tokens = counter("completion_tokens", "Generated tokens, reasoning included.", _OF_REPLY)
        self._reasoning_tokens = counter("reasoning_tokens", "Generated tokens of reasoning.", _OF_REPLY)
        self._prompt_length = histogram("request_prompt_tokens", "Prompt tokens a request.", _TOKENS)
        self._reply_length = histogram("request_completion_tokens", "Generated tokens a request.", _TOKENS)

    def _declare_times(self) -> None:
        histogram = self._histogram
        self._first_token = histogram(
            "time_to_first_token_seconds", "From a request's head to its first token.", _FIRST_TOKEN
        )
        self._between_tokens = histogram("inter_token_latency_seconds", "Time between tokens of a choice.", GAP_BOUNDS)
        self._duration = histogram(
            "request_duration_seconds", "From a request's head to the end of its whole reply.", _WHOLE_REPLY
        )
        self._preparation = histogram(
            "prompt_preparation_seconds",
            "From the decoded request to the prepared one: policies, template, tokenization, grammar.",
            _PREPARATION,
        )
        self._queue = histogram(
            "queue_seconds", "From the prepared request to the engine: the wait for a place.", _QUEUE
        )
        self._engine = histogram(
            "engine_seconds", "From asking the engine to the end of the last choice.", _WHOLE_REPLY
        )

    def _declare_replies(self) -> None:
        counter = self._counter
        self._aborts = counter("aborts", "Generations broken off before the engine ended them.", ["cause"])
        self._engine_errors = counter("engine_errors", "Generations that the engine refused or failed.", ["code"])
        self._finishes = counter("finish_reasons", "Choices that ended, by reason.", ["reason"])
        self._calls = counter("tool_calls", "Complete tool calls in replies.", ["model"])
        self._broken_calls = counter(
            "broken_tool_calls",
            "What looked like a tool call and did not become one: cut, undeclared, or not to be read.",
            ["model"],
        )
        self._strays = counter(
            "stray_markers",
            "Special tokens of the model's format that opened or closed nothing, and are not shown.",
            ["model"],
        )
        self._only_reasoned = counter(
            "thinking_only_replies", "Choices that ended with reasoning but neither content nor a tool call.", ["model"]
        )

    def _begin_at_zero(self, policies: Iterable[str]) -> None:
        """Rates need a start: what is known to be possible is there before it happens."""
        for policy in policies:
            self._policies.begin(policy)
        for cause in get_args(AbortCause):
            self._aborts.begin(cause)
        for reason in get_args(FinishReason):
            self._finishes.begin(reason)
        for model in self._models:
            for metric in (self._calls, self._broken_calls, self._strays, self._only_reasoned):
                metric.begin(model)
            for endpoint in self._endpoints:
                self._requests.begin(endpoint, model, "200", "false", NO_POLICY)
                self._requests.begin(endpoint, model, "200", "true", NO_POLICY)
                for metric in (self._prompt_tokens, self._cached_tokens, self._completion_tokens):
                    metric.begin(endpoint, model)
                self._reasoning_tokens.begin(endpoint, model)

    def model_label(self, name: str | None) -> str:
        """The served name, or a word for all others."""
        if name is None:
            return NO_MODEL
        return name if name in self._models else OTHER_MODEL

    def begin(self, record: RequestRecord) -> None:
        self._running.add(record)
        self._in_flight[record.endpoint,] += 1
        self._tell_others()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While a request waits for a place."""
        self._queued.inc()
        try:
            yield
        finally:
            self._queued.dec()

    def end(self, record: RequestRecord) -> None:
        """Count a request that has ended, however it did."""
        self._in_flight[record.endpoint,] -= 1
        model = self.model_label(record.model)
        stream = "true" if record.stream else "false"
        policies = record.policies
        self._requests.add((record.endpoint, model, str(record.status), stream, policy_label(policies)))
        for policy in policies:
            self._policies.add((policy,))
        self._end_reply(record, model)

    @contextmanager
    def behind(self, record: RequestRecord) -> Iterator[None]:
        """While a reply goes on that its request, which is counted by itself, has left behind."""
        self._running.add(record)
        try:
            yield
        finally:
            self._end_reply(record, self.model_label(record.model))

    def _end_reply(self, record: RequestRecord, model: str) -> None:
        self._running.discard(record)
        if record.error is not None:
            self._errors.add((record.error,))
        if record.runs:
            self._count_generated(record)
            self._count_prompt(record, model)
            self._count_times(record, model)
            self._count_choices(record, model)
        self._tell_others()

    def _count_generated(self, record: RequestRecord) -> None:
        """Count what has been generated since the last time."""
        where = (record.endpoint, self.model_label(record.model))
        usage, before = record.usage(), record.counted
        record.counted = usage
        self._completion_tokens.add(where, usage.completion_tokens - before.completion_tokens)
        self._reasoning_tokens.add(where, usage.reasoning_tokens - before.reasoning_tokens)
        for timings in record.all_timings:
            self._last_token = max(self._last_token, timings.last)
            if timings.gap_seconds:
                self._between_tokens.add(where, *timings.take_gaps())

    def _count_prompt(self, record: RequestRecord, model: str) -> None:
        """At the end alone: an engine may correct its counts until then."""
        where = (record.endpoint, model)
        self._prompt_tokens.add(where, record.counted.prompt_tokens)
        self._cached_tokens.add(where, record.counted.cached_tokens or 0)

    def _count_times(self, record: RequestRecord, model: str) -> None:
        where = (record.endpoint, model)
        self._preparation.observe(where, record.preparation_seconds)
        self._queue.observe(where, record.queue_seconds)
        self._first_token.observe(where, record.first_token_seconds)
        if record.complete:
            self._duration.observe(where, record.seconds)
            self._engine.observe(where, record.engine_seconds)
            self._prompt_length.observe(where, record.counted.prompt_tokens)
            self._reply_length.observe(where, record.counted.completion_tokens)

    def _count_choices(self, record: RequestRecord, model: str) -> None:
        for cause in record.aborts():
            self._aborts.add((cause,))
        for run in record.runs:
            choice, failure = run.choice, run.timings.failure
            if failure is not None:
                self._engine_errors.add((failure.code,))
            if choice.end is not None:
                self._finishes.add((choice.end.finish_reason,))
            if choice.completed_calls:
                self._calls.add((model,), choice.completed_calls)
            if choice.broken_calls:
                self._broken_calls.add((model,), choice.broken_calls)
            if choice.stray_markers:
                self._strays.add((model,), choice.stray_markers)
            if choice.only_reasoned:
                self._only_reasoned.add((model,))

    def observe_lag(self, seconds: float) -> None:
        self._lag.observe(seconds)

    @property
    def last_token(self) -> float:
        """When any client last got a token, in `time.perf_counter` seconds; 0 before the first."""
        running = (timings.last for record in self._running for timings in record.all_timings)
        return max(self._last_token, max(running, default=0.0))

    def count_running(self) -> None:
        """Count what replies that still run have generated so far, for whoever looks."""
        for record in list(self._running):
            if record.runs:
                self._count_generated(record)
        self._hand_over()

    def _hand_over(self) -> None:
        for tally in self._tallies:
            if tally:
                tally.hand_over()

    def _tell_others(self) -> None:
        """A scrape may be answered by another process, and this one may die."""
        if self._shared:
            self._hand_over()

    def exposition(self, accept: str) -> tuple[Callable[[], bytes], str]:
        """What makes the text, safe to run in a thread, and its content type.

        Args:
            accept: the scraper's ``Accept`` header; Prometheus' text format unless it asks for OpenMetrics.
        """
        self.count_running()
        encode, content_type = choose_encoder(accept)
        source: Collector = self.registry
        if self._shared:
            shared = CollectorRegistry()
            MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
            source = shared
        return lambda: encode(source), content_type


def policy_label(policies: Sequence[str]) -> str:
    """One value for a set of policies, in whatever order they changed the request."""
    return "+".join(sorted(policies)) if policies else NO_POLICY
