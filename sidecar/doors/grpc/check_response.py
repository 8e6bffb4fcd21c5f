"""Renders CheckResponses (`authorization.proto`). Knows no decision beyond what it is given."""

from collections.abc import Iterable
from functools import lru_cache

from sidecar.doors.grpc.wire import bytes_field, varint_field

# Codes of google.rpc.Status.
OK = 0
PERMISSION_DENIED = 7
UNAVAILABLE = 14
UNAUTHENTICATED = 16

# What an agent or a user says of itself, and the gateway's key, don't reach the data source.
REMOVED = (
    b"x-api-key",
    b"x-sluice-user",
    b"x-sluice-session",
    b"x-sluice-task",
    b"x-sluice-sensitivity",
)
_REMOVED = b"".join(bytes_field(5, name) for name in REMOVED)
_ALLOWED = bytes_field(1, b"")
_OVERWRITE = varint_field(3, 2)
_EVENT_ID = b"x-sluice-event-id"
_METADATA, _FIELDS, _KEY, _VALUE = 4, 1, 1, 2

HeaderFields = Iterable[tuple[bytes, bytes]]


def allowed(event_id: str, metadata: bytes, *, reported: bool = False) -> bytes:
    """The request goes on with its event's id, without what an agent says of itself, and its
    response has the id too. `reported`: it would have been denied, and headers say so. Without an
    event (an empty id), any that the client made up is removed."""
    if not event_id:
        return _ALLOWED + bytes_field(3, _REMOVED + bytes_field(5, _EVENT_ID)) + metadata
    options = [_option(_EVENT_ID, event_id.encode())]
    if reported:
        options.append(_option(b"x-sluice-decision", b"DENY"))
    upstream = b"".join([bytes_field(2, option) for option in options])
    downstream = b"".join([bytes_field(6, option) for option in options])
    return b"%b%b%b" % (_ALLOWED, bytes_field(3, upstream + _REMOVED + downstream), metadata)


def denied(
    code: int, status: int, headers: HeaderFields, body: bytes, metadata: bytes = b""
) -> bytes:
    """The request ends here; its client gets `status`, `headers` and `body`."""
    response = b"".join(
        [
            bytes_field(1, varint_field(1, status)),
            *(bytes_field(2, _option(name, value)) for name, value in headers),
            bytes_field(3, body),
        ]
    )
    return bytes_field(1, varint_field(1, code)) + bytes_field(2, response) + metadata


def dynamic_metadata(event_id: str, decision: str, policy_name: str, check: str) -> bytes:
    """The field of a response that a gateway's access log and later filters can read."""
    return bytes_field(
        _METADATA, _member("event_id", event_id) + _members(decision, policy_name, check)
    )


@lru_cache(maxsize=1024)
def _members(decision: str, policy_name: str, check: str) -> bytes:
    """All but the event's id: the same for most requests of an agent."""
    named = (("decision", decision), ("policy_name", policy_name), ("check", check))
    return b"".join([_member(name, value) for name, value in named])


def _member(name: str, value: str) -> bytes:
    text = bytes_field(3, value.encode())
    return bytes_field(_FIELDS, bytes_field(_KEY, name.encode()) + bytes_field(_VALUE, text))


def _option(name: bytes, value: bytes) -> bytes:
    return bytes_field(1, bytes_field(1, name) + bytes_field(2, value)) + _OVERWRITE
