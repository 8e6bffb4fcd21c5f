"""Writes an audit event as a line of an export, in the format that the request names.

CloudEvents 1.0, JSON    https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md
ECS 8.17                 https://www.elastic.co/guide/en/ecs/8.17/ecs-field-reference.html
OCSF 1.8.0               Datastore Activity (class 6005), profile Security Control,
    https://schema.ocsf.io/1.8.0/classes/datastore_activity?profiles=security_control
OTLP/JSON                `LogRecord` and its resource,
    https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
CSV (RFC 4180)           a spreadsheet does not run any of it as a formula
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from policies import __version__
from policies.ground.canonical import micros
from policies.trail.fields import FIELDS, exported

# Section "Type System": an attribute that is a string has neither control characters nor
# noncharacters. An identifier of ours may have noncharacters.
_NOT_ALLOWED = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(
        f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)
    )
    + "]"
)


def cloud_event(event: Mapping[str, Any], tenant_id: str) -> dict[str, Any]:
    """Return the event as a CloudEvent, with the audit event as its `data`. In its `subject`,
    characters that CloudEvents does not allow are percent-encoded; `data` has the source
    unchanged."""
    data = dict(event)
    del data["query"], data["parameters"]
    if data["user_id"] is None:
        del data["user_id"]
    subject = event["source_id"]
    # Nearly every source is printable, and that is the faster test.
    if not subject.isprintable():
        subject = _NOT_ALLOWED.sub(lambda found: quote(found[0]), subject)
    return {
        "specversion": "1.0",
        "id": event["event_id"],
        "source": f"urn:sluice:{quote(tenant_id, safe='')}",
        "type": "sluice.decision.allow" if event["decision"] == "ALLOW" else "sluice.decision.deny",
        "subject": subject,
        "time": event["timestamp"],
        "datacontenttype": "application/json",
        "data": data,
    }


_ECS = {"version": "8.17"}
_CATEGORY = ["database"]
_ALLOWED, _DENIED = ["access", "allowed"], ["access", "denied"]
_ECS_LABELS = exported("ecs", "labels.")


def ecs_document(event: Mapping[str, Any], tenant_id: str) -> dict[str, Any]:
    allowed = event["decision"] == "ALLOW"
    rule = {"name": event["policy_name"]}
    if event["policy_version"] is not None:
        rule["version"] = str(event["policy_version"])
    labels = {}
    for label, name in _ECS_LABELS:
        value = event[name]
        if value is not None and value is not False:
            # ECS has labels of text alone.
            labels[label] = value if isinstance(value, str) else str(value).lower()
    user: dict[str, Any] = {"roles": [event["agent_role"]]}
    if event["user_id"] is not None:
        user["id"] = event["user_id"]
    found = {
        "@timestamp": event["timestamp"],
        "ecs": _ECS,
        "event": {
            "kind": "event",
            "category": _CATEGORY,
            "type": _ALLOWED if allowed else _DENIED,
            "module": "sluice",
            "action": "retrieval",
            "id": event["event_id"],
            "sequence": event["seq"],
            "hash": event["hash"],
            "outcome": "success" if allowed else "failure",
            "reason": event["reason"],
        },
        "rule": rule,
        "user": user,
        "organization": {"id": tenant_id},
        "labels": labels,
    }
    if event["agent_id"] is not None:
        found["service"] = {"name": event["agent_id"]}
    if event["sidecar_id"] is not None:
        found["observer"] = {"name": event["sidecar_id"]}
    return found


OCSF_VERSION = "1.8.0"
_OCSF_PRODUCT = {"name": "Sluice", "vendor_name": "Sluice", "version": __version__}
_PROFILES = ["security_control"]
_SHA_256 = 3
"""The value of OCSF's `fingerprint.algorithm_id` for SHA-256."""
_OCSF_OTHER = 99
"""The value of OCSF's `databucket.type_id` for "Other", since OCSF defines only the buckets of
three clouds."""
_CONTROL_API = {"svc_name": "control-api"}
"""The endpoint of a decision that the control API made itself, without a sidecar. OCSF requires an
endpoint."""
_UNMAPPED = exported("ocsf", "unmapped.")


def ocsf_activity(event: Mapping[str, Any], tenant_id: str) -> dict[str, Any]:
    allowed = event["decision"] == "ALLOW"
    source, sidecar = event["source_id"], event["sidecar_id"]
    policy = {"name": event["policy_name"]}
    if event["policy_version"] is not None:
        policy["version"] = str(event["policy_version"])
    actor: dict[str, Any] = {
        "app_name": event["agent_role"],
        "authorizations": [{"decision": event["decision"], "policy": policy}],
    }
    if event["agent_id"] is not None:
        actor["app_uid"] = event["agent_id"]
    if event["user_id"] is not None:
        actor["user"] = {"uid": event["user_id"]}
    if event["session_id"] is not None:
        actor["session"] = {"uid": event["session_id"]}
    found = {
        "class_uid": 6005,
        "category_uid": 6,
        "activity_id": 4,
        "type_uid": 600504,
        "severity_id": 1 if allowed else 3,
        "time": micros(event["timestamp"]) // 1000,
        "metadata": {
            "version": OCSF_VERSION,
            "product": _OCSF_PRODUCT,
            "profiles": _PROFILES,
            "uid": event["event_id"],
            "sequence": event["seq"],
            "tenant_uid": tenant_id,
        },
        "action_id": 1 if allowed else 2,
        "disposition_id": 1 if allowed else 2,
        "status_id": 1 if allowed else 2,
        "status_detail": event["reason"],
        "policy": policy,
        "actor": actor,
        "databucket": {"name": source, "uid": source, "type_id": _OCSF_OTHER},
        "type_id": 2,
        "src_endpoint": _CONTROL_API if sidecar is None else {"name": sidecar},
        "raw_data_hash": {"algorithm_id": _SHA_256, "value": event["hash"]},
        "unmapped": {
            member: value
            for member, name in _UNMAPPED
            if (value := event[name]) is not None and value is not False
        },
    }
    if event["check"] is not None:
        found["status_code"] = event["check"]
    return found


_INFO, _WARN = 9, 13
_OTEL_TIMES = 2**64
"""The number of values of `timeUnixNano`, which is unsigned and has 64 bits: from 1970 to the year
2554. Its value 0 means unknown."""
# The attributes, whose names have a dot, and the fields of an audit event that they hold.
_OTEL_ATTRIBUTES = tuple(each for each in exported("otel", "") if "." in each[0])


def otel_log_record(event: Mapping[str, Any], tenant_id: str) -> dict[str, Any]:
    """Return the event as a `LogRecord`. Its attributes name the tenant and the sidecar, because a
    line of a file has no resource that could."""
    allowed = event["decision"] == "ALLOW"
    attributes = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "retrieval"}},
        {"key": "sluice.tenant_id", "value": {"stringValue": tenant_id}},
    ]
    for key, name in _OTEL_ATTRIBUTES:
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
    if 0 < nanoseconds < _OTEL_TIMES:
        record["timeUnixNano"] = str(nanoseconds)
    else:
        # Such a time is of a clock that was never set, or set wrong.
        time = {"stringValue": event["timestamp"]}
        attributes.append({"key": "sluice.timestamp", "value": time})
    return record


def otel_resource(sidecar_id: str | None) -> dict[str, Any]:
    """Return the OpenTelemetry `Resource` that made a decision: a sidecar, or the control API if
    `sidecar_id` is None."""
    named = {"service.name": "sluice", "service.version": __version__}
    if sidecar_id is not None:
        named["service.instance.id"] = sidecar_id
    return {
        "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in named.items()]
    }


CSV_COLUMNS = tuple(
    name for _, name in sorted((each.csv, each.shown) for each in FIELDS if each.csv and each.shown)
)
CSV_HEADER = ",".join(CSV_COLUMNS).encode()

# https://owasp.org/www-community/attacks/CSV_Injection, and with white space before. Spreadsheets
# of some languages take full-width characters for the usual ones.
_FORMULA = re.compile("[\t\r\n]|\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20]")


def csv_row(event: Mapping[str, Any], tenant_id: str) -> bytes:  # noqa: ARG001  as every format
    """Return the event as a CSV line, without the line end. Text is always quoted; where a
    spreadsheet would take it for a formula, an apostrophe stands before it. A null value is an
    empty cell."""
    return ",".join([_cell(event[name]) for name in CSV_COLUMNS]).encode()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return "true" if value is True else "false" if value is False else str(value)
    if _FORMULA.match(value):
        value = "'" + value
    return '"' + value.replace('"', '""') + '"'


AuditEvent = Mapping[str, Any]
"""An event in the form that `policies.trail.entry.audit_event` returns."""
NDJSON, CSV = "application/x-ndjson", "text/csv; charset=utf-8"


class Format(NamedTuple):
    """An export format. `encode(event, tenant_id)` returns the bytes of one event; `end` follows
    each of them, and `header` comes before the first. `suffix` is the file name's."""

    media_type: str
    suffix: str
    encode: Callable[[AuditEvent, str], bytes]
    end: bytes = b"\n"
    header: bytes = b""


def _json(shape: Callable[[AuditEvent, str], dict[str, Any]]) -> Format:
    def encode(event: AuditEvent, tenant_id: str) -> bytes:
        return orjson.dumps(shape(event, tenant_id))

    return Format(NDJSON, "ndjson", encode)


FORMATS: dict[str, Format] = {
    "ocsf": _json(ocsf_activity),
    "ecs": _json(ecs_document),
    "cloudevents": _json(cloud_event),
    "otel": _json(otel_log_record),
    "csv": Format(CSV, "csv", csv_row, b"\r\n", CSV_HEADER + b"\r\n"),
}
