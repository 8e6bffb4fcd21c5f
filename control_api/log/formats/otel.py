"""OpenTelemetry: `LogRecord` in OTLP/JSON, and the resource that it belongs to.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
"""

from collections.abc import Mapping
from typing import Any

from policies import __version__
from policies.ground.canonical import micros
from policies.trail.fields import exported

_INFO, _WARN = 9, 13
_TIMES = 2**64
"""`timeUnixNano` is unsigned, has 64 bits, and 0 means unknown: from 1970 to the year 2554."""
# The attributes, whose names have a dot, and the fields of an audit event that they hold.
_ATTRIBUTES = tuple(each for each in exported("otel", "") if "." in each[0])


def log_record(event: Mapping[str, Any], tenant_id: str) -> dict[str, Any]:
    """The event as a `LogRecord`. It names its tenant and sidecar itself, because a line of a file
    has no resource."""
    allowed = event["decision"] == "ALLOW"
    attributes = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "retrieval"}},
        {"key": "sluice.tenant_id", "value": {"stringValue": tenant_id}},
    ]
    for key, name in _ATTRIBUTES:
        value = event[name]
        if isinstance(value, str):
            attributes.append({"key": key, "value": {"stringValue": value}})
        elif value is True:
            attributes.append({"key": key, "value": {"boolValue": True}})
        elif value is not None and value is not False:
            attributes.append({"key": key, "value": {"intValue": str(value)}})
    record = {
        "eventName": "sluice.decision",
        "severityNumber": _INFO if allowed else _WARN,
        "severityText": "INFO" if allowed else "WARN",
        "attributes": attributes,
    }
    nanoseconds = micros(event["timestamp"]) * 1000
    if 0 < nanoseconds < _TIMES:
        record["timeUnixNano"] = str(nanoseconds)
    else:
        # Such a time is of a clock that was never set, or set wrong.
        time = {"stringValue": event["timestamp"]}
        attributes.append({"key": "sluice.timestamp", "value": time})
    return record


def resource(sidecar_id: str | None) -> dict[str, Any]:
    """The `Resource` of the decisions of a sidecar; None is the control API."""
    named = {"service.name": "sluice", "service.version": __version__}
    if sidecar_id is not None:
        named["service.instance.id"] = sidecar_id
    return {
        "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in named.items()]
    }
