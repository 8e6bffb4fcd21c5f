"""Tells a client of gRPC why its call is refused: by a status in trailers, where it looks for one
(gRPC over HTTP/2, Responses). Of a plain 403 it would show its user nothing but the number.

    grpc-status               7 denied, 3 unreadable, 14 nothing was decided: try again, 13 the
                              response can't be read, so it is withheld
    grpc-message              the reason, percent-encoded
    grpc-status-details-bin   a `google.rpc.Status` with one `ErrorInfo`, and a `RetryInfo` if the
                              call may be made again

Pure. Knows no connection.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple

from sidecar.http.grpc.wire import bytes_field, varint_field
from sidecar.http.headers import Fields

_TYPE = b"application/grpc"
_DOMAIN = "sluice"
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"

_UNKNOWN, INTERNAL, _UNAVAILABLE = 2, 13, 14
# By the status of the same answer over HTTP.
_CODES = {
    400: 3,
    401: 16,
    403: 7,
    404: 5,
    408: 4,
    413: 8,
    429: 8,
    502: _UNAVAILABLE,
    503: _UNAVAILABLE,
    504: 4,
}


class Failure(NamedTuple):
    """A refusal of a request. `status` is the one over HTTP, `reason` the name of the policy, empty
    if nothing was decided, and `retry_seconds` the time after which to try again, 0 for never.
    `code` is gRPC's status if it doesn't follow from `status`."""

    status: int
    message: str
    reason: str = ""
    metadata: Mapping[str, str] = {}
    retry_seconds: int = 0
    code: int | None = None


def is_grpc(fields: Fields) -> bool:
    """Return whether a request is a call of gRPC. The names are in lower case."""
    return any(name == b"content-type" and is_grpc_type(value) for name, value in fields)


def is_grpc_type(value: bytes) -> bool:
    """Return whether a content type is gRPC's (gRPC over HTTP/2, Requests)."""
    return value == _TYPE or value.startswith((_TYPE + b"+", _TYPE + b";"))


def trailers_only(failure: Failure, fields: Fields) -> list[tuple[bytes, bytes]]:
    """Return the fields of a response that has no body: a head that is the trailers too. `fields`
    are those of the same answer over HTTP, of which the sidecar's own are kept."""
    kept = [field for field in fields if field[0].startswith(b"x-sluice-")]
    return [(b":status", b"200"), (b"content-type", _TYPE), *trailers(failure), *kept]


def trailer_lines(failure: Failure) -> bytes:
    """Return the trailers of a response that has begun, each with its line end."""
    return b"".join(b"%b: %b\r\n" % field for field in trailers(failure))


def trailers(failure: Failure) -> list[tuple[bytes, bytes]]:
    """Return the fields that tell a failure."""
    code = failure.code
    if code is None:
        code = _CODES.get(failure.status, _UNKNOWN)
    return [
        (b"grpc-status", b"%d" % code),
        (b"grpc-message", _percent_encoded(failure.message)),
        (b"grpc-status-details-bin", b64encode(_details(code, failure)).rstrip(b"=")),
    ]


_ESCAPED = re.compile(rb"[^ -$&-~]")


def _percent_encoded(text: str) -> bytes:
    return _ESCAPED.sub(lambda found: b"%%%02X" % found[0][0], text.encode("utf-8", "replace"))


def _details(code: int, failure: Failure) -> bytes:
    """Encode a `google.rpc.Status` (google/rpc/status.proto, error_details.proto)."""
    status = varint_field(1, code) + _text(2, failure.message)
    if failure.reason:
        entries = [
            bytes_field(3, _text(1, key) + _text(2, value))
            for key, value in failure.metadata.items()
        ]
        info = _text(1, failure.reason) + _text(2, _DOMAIN) + b"".join(entries)
        status += bytes_field(3, _text(1, _ERROR_INFO) + bytes_field(2, info))
    if failure.retry_seconds:
        delay = bytes_field(1, varint_field(1, failure.retry_seconds))
        status += bytes_field(3, _text(1, _RETRY_INFO) + bytes_field(2, delay))
    return status


def _text(number: int, text: str) -> bytes:
    return bytes_field(number, text.encode("utf-8", "replace"))
