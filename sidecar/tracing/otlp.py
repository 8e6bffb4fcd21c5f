"""Encodes spans as the JSON that OTLP over HTTP takes (`ExportTraceServiceRequest`). Pure."""

from collections.abc import Sequence
from typing import Any

import orjson

from policies import __version__
from sidecar.tracing.trace import Span

_STATUS_ERROR = 2
_SCOPE = {"name": "sluice", "version": __version__}


def encoded(spans: Sequence[Span], instance: str) -> bytes:
    """The body of one export. `instance` names this sidecar."""
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
