"""Traces: a span for each request, and under it where its time went.

Importing this needs the extra ``otel``; nobody does who did not ask for traces. It must never see a message, a prompt
or a header beyond the trace context. Invariant: spans are made when the request has ended, from the moments that its
record holds, so that a reply pays for none while it streams; one that is not sampled pays for its context only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter, time_ns

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from paraserve import __version__
from paraserve.generation.run import EngineRun
from paraserve.observability.record import RequestRecord
from paraserve.secrets import client_text

CONTEXT_HEADERS = ("traceparent", "tracestate")


class Tracing:
    """Makes and sends traces.

    Args:
        exporter: what finished spans are handed to.
    """

    def __init__(self, exporter: SpanProcessor) -> None:
        ours = Resource({SERVICE_NAME: "paraserve", SERVICE_VERSION: __version__})
        # The variables OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word.
        given = OTELResourceDetector().detect()
        self._provider = TracerProvider(resource=Resource.create().merge(ours).merge(given))
        self._provider.add_span_processor(exporter)
        self._tracer = self._provider.get_tracer("paraserve", __version__)
        self._propagator = TraceContextTextMapPropagator()

    @classmethod
    def to(cls, endpoint: str) -> Tracing:
        """Send by OTLP over HTTP to ``endpoint``, in the background; what is left goes out when the process ends."""
        return cls(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))

    def begin(self, record: RequestRecord, headers: Mapping[str, str]) -> Trace:
        """The trace that the client's headers belong to, or a new one."""
        carrier = {name: client_text(headers[name]) for name in CONTEXT_HEADERS if name in headers}
        clock = time_ns() - int(perf_counter() * 1e9)
        span = self._tracer.start_span(
            f"{record.method} {record.endpoint}",
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            start_time=clock + int(record.began * 1e9),
        )
        sent: dict[str, str] = {}
        self._propagator.inject(sent, set_span_in_context(span))
        return Trace(self._tracer, span, clock, sent)


class Trace:
    """One request's. ``headers`` go on to the engine.

    Args:
        clock: nanoseconds of the epoch at which `time.perf_counter` was 0.
    """

    def __init__(self, tracer: Tracer, span: Span, clock: int, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self._tracer = tracer
        self._span = span
        self._clock = clock

    def end(self, record: RequestRecord) -> None:
        """The request is over; the record's moments become spans."""
        if self._span.is_recording():
            self._describe(record)
            asked = [run.timings.asked for run in record.runs if run.timings.asked is not None]
            self._child("prompt", record.decoded, record.ready, self._span)
            self._child("queue", record.ready, min(asked, default=None), self._span)
            for run in record.runs:
                self._engine(run)
        self._span.end(self._at(perf_counter()))

    def _describe(self, record: RequestRecord) -> None:
        status = record.status or 500
        self._span.set_attributes(
            {
                "http.request.method": record.method,
                "http.route": record.endpoint,
                "http.response.status_code": status,
                "paraserve.request_id": record.id,
            }
        )
        if record.model is not None:
            self._span.set_attribute("gen_ai.request.model", record.model)
        if record.runs:
            usage = record.usage()
            self._span.set_attribute("gen_ai.response.id", record.reply_id)
            self._span.set_attribute("gen_ai.usage.input_tokens", usage.prompt_tokens)
            self._span.set_attribute("gen_ai.usage.output_tokens", usage.completion_tokens)
            self._span.set_attribute("gen_ai.response.finish_reasons", _finish_reasons(record.runs))
        if record.error is not None:
            self._span.set_attribute("error.type", record.error)
        if status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))

    def _engine(self, run: EngineRun) -> None:
        timings = run.timings
        if timings.asked is None:
            return
        span = self._open("engine", timings.asked, self._span, SpanKind.CLIENT)
        span.set_attribute("paraserve.choice", run.choice.index)
        span.set_attribute("gen_ai.usage.output_tokens", run.choice.completion_tokens)
        if timings.failure is not None:
            span.set_status(Status(StatusCode.ERROR))
            span.set_attribute("error.type", timings.failure.code)
        self._child("first token", timings.asked, timings.first, span)
        span.end(self._at(timings.ended or perf_counter()))

    def _child(self, name: str, start: float | None, end: float | None, parent: Span) -> None:
        """A span between two moments, if the request came to both."""
        if start is not None and end is not None:
            self._open(name, start, parent, SpanKind.INTERNAL).end(self._at(end))

    def _open(self, name: str, start: float, parent: Span, kind: SpanKind) -> Span:
        return self._tracer.start_span(name, set_span_in_context(parent), kind, start_time=self._at(start))

    def _at(self, moment: float) -> int:
        return self._clock + int(moment * 1e9)


def _finish_reasons(runs: Sequence[EngineRun]) -> list[str]:
    return [run.choice.end.finish_reason for run in runs if run.choice.end is not None]
