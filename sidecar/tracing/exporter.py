"""Sends finished spans to the collector, in batches, as the JSON of OTLP over HTTP
(`ExportTraceServiceRequest`). What the collector does not take is dropped and counted: traces
explain, they prove nothing, so they never hold up a request or fill memory."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

from policies import __version__
from sidecar.http.tls_contexts import client_context
from sidecar.settings.model import TraceSettings
from sidecar.tracing.trace import Span, Tracer

_STATUS_ERROR = 2

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0
BATCH_SPANS = 512
_PATH = "/v1/traces"


def encoded(spans: Sequence[Span], instance: str) -> bytes:
    """Return the body of one export. `instance` names this sidecar."""
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
            timeout=ClientTimeout(total=10),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def run(self) -> None:
        """Never returns."""
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
