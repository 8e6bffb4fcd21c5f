"""Renders CheckResponses (`authorization.proto`). Knows no decision beyond what it is given."""

from collections.abc import Iterable

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
_OVERWRITE = varint_field(3, 2)

HeaderFields = Iterable[tuple[bytes, bytes]]


def allowed(headers: HeaderFields, remove: Iterable[bytes], metadata: bytes) -> bytes:
    """The request goes on with `headers` in place of any of their names and without those in
    `remove`. The response to it carries `headers` too."""
    options = [_option(name, value) for name, value in headers]
    ok = b"".join(
        [
            *(bytes_field(2, option) for option in options),
            *(bytes_field(5, name) for name in remove),
            *(bytes_field(6, option) for option in options),
        ]
    )
    return bytes_field(1, b"") + bytes_field(3, ok) + metadata


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


def dynamic_metadata(members: Iterable[tuple[str, str]]) -> bytes:
    """The field of a response that a gateway's access log and later filters can read."""
    entries = (
        bytes_field(1, key.encode()) + bytes_field(2, bytes_field(3, value.encode()))
        for key, value in members
    )
    return bytes_field(4, b"".join([bytes_field(1, entry) for entry in entries]))


def _option(name: bytes, value: bytes) -> bytes:
    return bytes_field(1, bytes_field(1, name) + bytes_field(2, value)) + _OVERWRITE
