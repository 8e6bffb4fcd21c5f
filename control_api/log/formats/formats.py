"""The formats of an export by name: how an event becomes one of its lines."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from control_api.log.formats.cloudevents import cloud_event
from control_api.log.formats.ecs import document
from control_api.log.formats.ocsf import activity
from control_api.log.formats.otel import log_record
from control_api.log.formats.spreadsheet import HEADER, row

AuditEvent = Mapping[str, Any]
"""An event as `policies.trail.entry.audit_event` shows it."""
NDJSON, CSV = "application/x-ndjson", "text/csv; charset=utf-8"


class Format(NamedTuple):
    """`encode(event, tenant_id)` is the bytes of one event; `end` follows each, and `header` comes
    before the first, if there is one. `suffix` is that of a file's name."""

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
    "ocsf": _json(activity),
    "ecs": _json(document),
    "cloudevents": _json(cloud_event),
    "otel": _json(log_record),
    "csv": Format(CSV, "csv", row, b"\r\n", HEADER + b"\r\n"),
}
