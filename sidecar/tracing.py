"""Decides which requests are traced, makes the spans of one request, and keeps finished spans until
they are exported. A caller's `traceparent` header decides (W3C Trace Context, section 3.2);
requests without it are sampled at the configured ratio.

Names and attributes follow OpenTelemetry's GenAI conventions. Spans hold no query, no user and no
header: a collector may be read by more people than the audit trail.

Sends finished spans to the collector, in batches, as the JSON of OTLP over HTTP
(`ExportTraceServiceRequest`). Spans that the collector does not take are dropped and counted:
traces explain, they prove nothing, so they never hold up a request or fill memory.
"""

import asyncio
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from typing import Any, NamedTuple

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from policies import __version__
from policies.evaluate import Decision
from policies.ground.clock import Clock
from policies.retrieval import Retrieval
from sidecar.http.tls_contexts import client_context
from sidecar.settings.model import TraceSettings

HEADER = b"traceparent"

# A version above 00 may have more fields at its end, which this version ignores (section 4.3).
_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?").fullmatch
_VERSION_00_LENGTH = 55
_SAMPLED = 0x01

_SPAN_BYTES = 8

MAX_SPANS = 2048
"""The most finished spans kept for the collector; further ones are dropped and counted."""


class TraceContext(NamedTuple):
    """The place of a request in a trace: the trace, the current span, and whether the trace is
    sampled. Ids are in lower-case hex."""

    trace_id: str
    span_id: str
    sampled: bool

    def header(self) -> bytes:
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}".encode()


def parse_traceparent(values: Sequence[bytes]) -> TraceContext | None:
    """Return the context in a request's `traceparent` headers; None unless there is exactly one and
    it is valid. The request then starts a trace of its own, as the specification asks."""
    found = _FORM(values[0]) if len(values) == 1 else None
    if found is None:
        return None
    version, trace_id, span_id, flags = found.groups()
    if version == b"ff" or (version == b"00" and len(values[0]) != _VERSION_00_LENGTH):
        return None
    # Ids of zeros only mean "none".
    if not trace_id.strip(b"0") or not span_id.strip(b"0"):
        return None
    return TraceContext(trace_id.decode(), span_id.decode(), bool(int(flags, 16) & _SAMPLED))


def with_traceparent(lines: bytes, context: TraceContext) -> bytes:
    """Return a request's header lines, each ended by CRLF, with `context` as `traceparent` in place
    of the caller's own."""
    named = ((line.partition(b":")[0].lower(), line) for line in lines.split(b"\r\n"))
    kept = [line for name, line in named if line and name != HEADER]
    return b"\r\n".join([*kept, HEADER + b": " + context.header(), b""])


class SpanKind(IntEnum):
    """The kinds of spans, with the numbers that OTLP gives them."""

    internal = 1
    client = 3


class Span(NamedTuple):
    """One finished span. Times are in microseconds. `error` is the type of the failure; None if
    nothing failed."""

    name: str
    kind: SpanKind
    context: TraceContext
    parent_id: str | None
    started: int
    ended: int
    attributes: dict[str, str | int]
    error: str | None = None


class Trace:
    """The trace of one sampled request. `context` goes into the requests that this one causes: it
    names the request's own span if there is one (`proxied`, or no caller's span), otherwise the
    caller's span."""

    __slots__ = ("_finished", "_now", "_parent", "_random", "_sources", "_started", "context")

    def __init__(
        self,
        parent: TraceContext | None,
        now: Callable[[], int],
        random_bytes: Callable[[int], bytes],
        finished: Callable[[Span], None],
        *,
        proxied: bool,
    ) -> None:
        self._parent = None if parent is None else parent.span_id
        self._now, self._random, self._finished = now, random_bytes, finished
        self._started = now()
        self._sources: list[Retrieval] = []
        trace_id = random_bytes(16).hex() if parent is None else parent.trace_id
        own = proxied or parent is None
        span_id = random_bytes(_SPAN_BYTES).hex() if own else parent.span_id if parent else ""
        self.context = TraceContext(trace_id, span_id, True)

    def decided(self, retrieval: Retrieval, decision: Decision, event_id: str) -> None:
        self._sources.append(retrieval)
        attributes: dict[str, str | int] = {
            **_about(retrieval),
            "sluice.decision": decision.decision,
            "sluice.policy_name": decision.policy_name,
            "sluice.check": decision.check or "none",
            "sluice.event_id": event_id,
        }
        context = self.context._replace(span_id=self._random(_SPAN_BYTES).hex())
        name, times = f"decide {retrieval.source_id}", (self._started, self._now())
        span = Span(name, SpanKind.internal, context, self.context.span_id, *times, attributes)
        self._finished(span)

    def responded(self, status: int, decision: str) -> None:
        """Finish the span of a proxied request. `status` is the HTTP status that the agent got, 0
        if it got none; `decision` is the decision as the metrics label it."""
        attributes: dict[str, str | int] = {"sluice.decision": decision}
        name = "retrieval"
        if self._sources:
            # With several sources, each decision has a span of its own; the request's span names
            # the first source.
            attributes |= _about(self._sources[0])
            name = f"retrieval {self._sources[0].source_id}"
        if status:
            attributes["http.response.status_code"] = status
        failed = status == 0 or status >= 400
        error = (str(status) if status else "client_closed") if failed else None
        times = self._started, self._now()
        span = Span(name, SpanKind.client, self.context, self._parent, *times, attributes, error)
        self._finished(span)


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)
current_trace = _current.get
"""Returns the trace of the request that this task works on; None if the request is not sampled."""


@contextmanager
def within(trace: Trace | None) -> Iterator[None]:
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


def _about(retrieval: Retrieval) -> dict[str, str | int]:
    about: dict[str, str | int] = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": retrieval.source_id,
        "sluice.sensitivity": retrieval.sensitivity_level,
        "sluice.agent_role": retrieval.agent_role,
    }
    if retrieval.agent_id is not None:
        about["gen_ai.agent.id"] = retrieval.agent_id
    if retrieval.source_type is not None:
        about["gen_ai.provider.name"] = retrieval.source_type
    return about


class Tracer:
    """Samples requests, and keeps their finished spans for the exporter. `ratio`, from 0 to 1, is
    the share to sample among requests whose `traceparent` does not decide it."""

    def __init__(self, ratio: float, clock: Clock, random_bytes: Callable[[int], bytes]) -> None:
        self._ratio = ratio
        self._now = clock.now
        self._random = random_bytes
        self._spans: list[Span] = []
        self._left = self._draw()
        self.dropped = 0
        """The number of spans dropped because `MAX_SPANS` were waiting for the collector."""

    def begin(self, traceparent: Sequence[bytes], *, proxied: bool) -> Trace | None:
        """Return the trace of a request with these `traceparent` headers; None if the request is
        not sampled."""
        parent = parse_traceparent(traceparent)
        if not (self._sample() if parent is None else parent.sampled):
            return None
        return Trace(parent, self._now, self._random, self._finished, proxied=proxied)

    def take(self, most: int) -> list[Span]:
        """Remove the oldest finished spans, at most `most`, and return them."""
        taken, self._spans = self._spans[:most], self._spans[most:]
        return taken

    @property
    def waiting(self) -> int:
        return len(self._spans)

    def _sample(self) -> bool:
        if self._left > 1:
            self._left -= 1
            return False
        self._left = self._draw()
        return self._ratio > 0

    def _draw(self) -> int:
        """Return the number of requests until the next sampled one. It is random, so that a
        client's rhythm can't fall in step with it, but far cheaper than a draw for each request."""
        if self._ratio >= 1:
            return 1
        if self._ratio <= 0:
            return 1 << 62
        # The distribution of the gap between successes of independent draws.
        uniform = (int.from_bytes(self._random(7)) + 1) / (1 << 56)
        return 1 + int(math.log(uniform) / math.log1p(-self._ratio))

    def _finished(self, span: Span) -> None:
        if len(self._spans) < MAX_SPANS:
            self._spans.append(span)
        else:
            self.dropped += 1


_STATUS_ERROR = 2

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0
BATCH_SPANS = 512
_PATH = "/v1/traces"


def encoded(spans: Sequence[Span], instance: str) -> bytes:
    """Return the body of one export request for these spans. `instance` names this sidecar."""
    resource = {"service.name": "sluice-sidecar", "service.version": __version__}
    resource["service.instance.id"] = instance
    scope = {"scope": {"name": "sluice", "version": __version__}, "spans": [*map(_span, spans)]}
    whole = {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}
    return orjson.dumps({"resourceSpans": [whole]})


def _span(span: Span) -> dict[str, Any]:
    failed = {} if span.error is None else {"error.type": span.error}
    made: dict[str, Any] = {
        "traceId": span.context.trace_id,
        "spanId": span.context.span_id,
        "name": span.name,
        "kind": int(span.kind),
        # 64-bit numbers are strings in the JSON form of protobuf.
        "startTimeUnixNano": str(span.started * 1000),
        "endTimeUnixNano": str(span.ended * 1000),
        "attributes": _attributes({**span.attributes, **failed}),
        # Bit 0: sampled.
        "flags": 1,
    }
    if span.parent_id is not None:
        made["parentSpanId"] = span.parent_id
    if span.error is not None:
        made["status"] = {"code": _STATUS_ERROR}
    return made


def _attributes(values: Mapping[str, str | int]) -> list[dict[str, Any]]:
    kinds = {
        name: "intValue" if isinstance(v, int) else "stringValue" for name, v in values.items()
    }
    return [{"key": name, "value": {kinds[name]: str(v)}} for name, v in values.items()]


class SpanExporter:
    """Sends the finished spans of `tracer` to the collector. Enter its context before use."""

    def __init__(self, tracer: Tracer, settings: TraceSettings, instance: str) -> None:
        self.tracer = tracer
        self._settings = settings
        self._instance = instance
        self._session: ClientSession | None = None
        self._failing = False
        self.exported = 0
        self.failed = 0
        """The number of spans that the collector did not take."""

    async def __aenter__(self) -> "SpanExporter":
        # No cookies, no redirects and no proxy from the environment, as for the control API.
        self._session = ClientSession(
            connector=TCPConnector(limit=1, ssl=client_context(self._settings.tls)),
            cookie_jar=DummyCookieJar(),
            headers={"Content-Type": "application/json", "User-Agent": "sluice-sidecar"},
            timeout=ClientTimeout(total=10),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def run(self) -> None:
        """Export finished spans at intervals, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Export all finished spans. Stops at the first batch that fails."""
        while self.tracer.waiting and await self._export():
            pass

    async def _export(self) -> bool:
        assert self._session is not None, "enter the context first"
        spans = self.tracer.take(BATCH_SPANS)
        address = self._settings.endpoint.rstrip("/") + _PATH
        body = encoded(spans, self._instance)
        try:
            async with self._session.post(address, data=body, allow_redirects=False) as answer:
                fault = None if answer.status == 200 else f"it answered {answer.status}"
        except (ClientError, TimeoutError, OSError) as error:
            fault = str(error) or type(error).__name__
        before, self._failing = self._failing, fault is not None
        if fault is None:
            self.exported += len(spans)
            if before:
                log.warning("recovered: the trace collector `%s` takes spans again", address)
            return True
        self.failed += len(spans)
        if not before:  # once for an outage, not every five seconds
            log.warning("the trace collector `%s` took no spans: %s", address, fault)
        return False
