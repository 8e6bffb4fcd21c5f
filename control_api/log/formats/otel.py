"""OpenTelemetry: `LogRecord` in OTLP/JSON, and the resource that it belongs to.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
"""

from collections.abc import Mapping
from typing import Any

from policies import __version__
from policies.ground.canonical import micros

_INFO, _WARN = 9, 13
_TIMES = 2**64
"""`timeUnixNano` is unsigned, has 64 bits, and 0 means unknown: from 1970 to the year 2554."""
# Our names, and the fields of an audit event that they hold. A field that is null is left out.
_TEXTS = (
    ("sluice.event_id", "event_id"),
    ("sluice.hash", "hash"),
    ("sluice.decision", "decision"),
    ("sluice.policy.name", "policy_name"),
    ("sluice.reason", "reason"),
    ("gen_ai.agent.id", "agent_id"),
    ("sluice.agent_role", "agent_role"),
    ("user.id", "user_id"),
    ("gen_ai.conversation.id", "session_id"),
    ("gen_ai.data_source.id", "source_id"),
    ("sluice.sensitivity_level", "sensitivity_level"),
    ("sluice.source_type", "source_type"),
    ("sluice.sidecar_id", "sidecar_id"),
    ("error.type", "check"),
)


def log_record(event: Mapping[str, Any], tenant_id: str) -> dict[str, Any]:
    """The event as a `LogRecord`. It names its tenant and sidecar itself, because a line of a file
    has no resource."""
    allowed = event["decision"] == "ALLOW"
    attributes = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "retrieval"}},
        {"key": "sluice.tenant_id", "value": {"stringValue": tenant_id}},
        {"key": "sluice.seq", "value": {"intValue": str(event["seq"])}},
    ]
    attributes += [
        {"key": key, "value": {"stringValue": event[name]}}
        for key, name in _TEXTS
        if event[name] is not None
    ]
    for mark in ("time_doubtful", "agent_foreign"):
        if event[mark]:
            attributes.append({"key": f"sluice.{mark}", "value": {"boolValue": True}})
    if event["policy_version"] is not None:
        version = {"intValue": str(event["policy_version"])}
        attributes.append({"key": "sluice.policy.version", "value": version})
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
