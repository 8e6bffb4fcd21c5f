"""Sends finished spans to the collector, in batches, as the JSON that OTLP over HTTP takes
(`ExportTraceServiceRequest`). What the collector does not take is dropped and counted: traces
explain, they prove nothing, so they never hold up a request or fill memory.
"""

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from policies import __version__
from sidecar.http.tls_contexts import client_context
from sidecar.settings.model import TraceSettings
from sidecar.tracing.trace import Span, Tracer

_STATUS_ERROR = 2
_SCOPE = {"name": "sluice", "version": __version__}


def encoded(spans: Sequence[Span], instance: str) -> bytes:
    """Return the body of one export. `instance` names this sidecar."""
    resource = {
        "service.name": "sluice-sidecar",
        "service.version": __version__,
        "service.instance.id": instance,
    }
    scope_spans = {"scope": _SCOPE, "spans": [_span(each) for each in spans]}
    resource_spans = {
        "resource": {"attributes": _attributes(resource)},
        "scopeSpans": [scope_spans],
    }
    return orjson.dumps({"resourceSpans": [resource_spans]})


def _span(span: Span) -> dict[str, Any]:
    attributes = (
        span.attributes if span.error is None else {**span.attributes, "error.type": span.error}
    )
    made: dict[str, Any] = {
        "traceId": span.context.trace_id,
        "spanId": span.context.span_id,
        "name": span.name,
        "kind": int(span.kind),
        # 64-bit numbers are strings in the JSON form of protobuf.
        "startTimeUnixNano": str(span.started * 1000),
        "endTimeUnixNano": str(span.ended * 1000),
        "attributes": _attributes(attributes),
        # Bit 0: sampled.
        "flags": 1,
    }
    if span.parent_id is not None:
        made["parentSpanId"] = span.parent_id
    if span.error is not None:
        made["status"] = {"code": _STATUS_ERROR}
    return made


def _attributes(values: dict[str, str | int] | dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: str | int) -> dict[str, str]:
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


log = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0
BATCH_SPANS = 512
_TIMEOUT = ClientTimeout(total=10)
_PATH = "/v1/traces"


class SpanExporter:
    """Exports the spans of `tracer`. Enter its context before use."""

    def __init__(self, tracer: Tracer, settings: TraceSettings, instance: str) -> None:
        self.tracer = tracer
        self._settings = settings
        self._instance = instance
        self._session: ClientSession | None = None
        self._failing = False
        self.exported = 0
        self.failed = 0
        """Spans that the collector did not take."""

    async def __aenter__(self) -> "SpanExporter":
        # No cookies, no redirects and no proxy from the environment, as for the control API.
        self._session = ClientSession(
            connector=TCPConnector(limit=1, ssl=client_context(self._settings.tls)),
            cookie_jar=DummyCookieJar(),
            headers={"Content-Type": "application/json", "User-Agent": "sluice-sidecar"},
            timeout=_TIMEOUT,
            trust_env=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def run(self) -> None:
        """Runs forever."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Export everything that is finished. Stops at the first batch that fails."""
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
        if fault is not None:
            self.failed += len(spans)
            if not self._failing:  # once for an outage, not every five seconds
                log.warning("the trace collector `%s` took no spans: %s", address, fault)
        elif self._failing:
            log.warning("recovered: the trace collector `%s` takes spans again", address)
        if fault is None:
            self.exported += len(spans)
        self._failing = fault is not None
        return fault is None
