"""Reads a CheckRequest, in which a gateway describes the request that it holds back, and writes
CheckResponses (`authorization.proto`).

Implements protocol buffers' encoding: takes a message apart into its fields, and puts fields
together (protobuf.dev, "Encoding").

Stricter than protocol buffers where two readers could see two messages: a field that may occur once
must not occur twice. Fields that the caller does not ask for are skipped unread.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from policies.ground.errors import Malformed
from sidecar.http.grpc.wire import BYTES, VARINT, bytes_field, read_varint, varint_field

Value = int | bytes
Fields = dict[int, list[Value]]

# An attacker must not keep the event loop busy with millions of empty fields. Envoy takes 100
# headers unless told otherwise.
_MAX_FIELDS = 2048
_FIXED = {1: 8, 5: 4}
_ENTRY = {1: BYTES, 2: BYTES}
_FIRST, _SECOND = 1 << 3 | BYTES, 2 << 3 | BYTES
"""The tags of the key and the value in an entry of a map."""


def read(message: bytes, wanted: Mapping[int, int]) -> Fields:
    """Return the values of the fields in `wanted`, in the order of the message. `wanted` maps the
    number of a field to its wire type. Raises `Malformed`."""
    found: Fields = {}
    at, end, left = 0, len(message), _MAX_FIELDS
    while at < end:
        left -= 1
        if left < 0:
            raise Malformed(f"a message has more than {_MAX_FIELDS} fields")
        tag = message[at]
        at += 1
        if tag >= 0x80:
            tag, at = read_varint(message, at - 1, end)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise Malformed("a message has a field without a number")
        if kind == BYTES:
            length = message[at] if at < end else 0x80
            at += 1
            if length >= 0x80:
                length, at = read_varint(message, at - 1, end)
            start, at = at, at + length
            if at > end:
                raise Malformed("a field is longer than its message")
            value: Value = message[start:at] if number in wanted else b""
        elif kind == VARINT:
            value, at = read_varint(message, at, end)
        elif kind in _FIXED:
            at += _FIXED[kind]
            value = 0
            if at > end:
                raise Malformed("a field is longer than its message")
        else:
            raise Malformed(f"a field has the wire type {kind}")
        if number in wanted:
            if wanted[number] != kind:
                raise Malformed(f"field {number} has the wire type {kind}")
            found.setdefault(number, []).append(value)
    return found


def pair(entry: bytes) -> tuple[bytes, bytes]:
    """Return the key and the value of an entry of a map. Raises `Malformed`."""
    # Most entries are two short fields, the key first; a header or two is longer.
    if len(entry) >= 4 and entry[0] == _FIRST and entry[1] < 0x80:
        at = 2 + entry[1]
        left = len(entry) - at - 2
        if 0 <= left < 0x80 and entry[at] == _SECOND and entry[at + 1] == left:
            return entry[2:at], entry[at + 2 :]
    fields = read(entry, _ENTRY)
    return data(fields, 1), data(fields, 2)


def single(fields: Fields, number: int) -> Value | None:
    """Return the value of a field that may occur once; None if it is absent. Raises `Malformed`."""
    values = fields.get(number)
    if values is None:
        return None
    if len(values) > 1:
        raise Malformed(f"field {number} stands twice")
    return values[0]


def data(fields: Fields, number: int) -> bytes:
    """Return the value of a field of bytes that may occur once; empty if it is absent, which means
    the same. Raises `Malformed`."""
    value = single(fields, number)
    return value if isinstance(value, bytes) else b""


def text(fields: Fields, number: int) -> str:
    """Return the value of a field like `data`, decoded as UTF-8. Raises `Malformed`."""
    try:
        return data(fields, number).decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed(f"field {number} is not UTF-8") from None


def signed(value: int) -> int:
    """Return the int64 that this varint stands for: a negative number is sent as its two's
    complement."""
    return value - (1 << 64) if value >= 1 << 63 else value


HeaderFields = tuple[tuple[bytes, bytes], ...]

PARTIAL_FLAG = b"x-envoy-auth-partial-body"
"""The header that the gateway sets if it sends bodies: `true` if it sent only a part of this
one."""

_REQUEST = {1: BYTES}  # attributes
_ATTRIBUTES = {4: BYTES, 10: BYTES}  # request, context_extensions
_HTTP = {2: BYTES}
_HTTP_REQUEST = {
    2: BYTES,  # method
    3: BYTES,  # headers
    4: BYTES,  # path
    5: BYTES,  # host
    7: BYTES,  # query
    8: BYTES,  # fragment
    9: VARINT,  # size
    11: BYTES,  # body
    12: BYTES,  # raw_body
    13: BYTES,  # header_map
}
_HEADERS = {1: BYTES}
_HEADER = {1: BYTES, 2: BYTES, 3: BYTES}  # key, value, raw_value


class CheckRequest(NamedTuple):
    """A request that a gateway asks about."""

    method: str
    target: str
    """The path as the client sent it, with its query."""
    fields: HeaderFields
    """The headers in order, names in lower case, `host` first."""
    joined: bool
    """True if the gateway joined the values of a repeated header with commas."""
    body: bytes | None
    """The request's body; None if the gateway sent none."""
    size: int
    """The length of the body in bytes according to the gateway; -1 if it gives none."""
    extensions: dict[str, str]
    """Extra entries that the gateway's own configuration adds to the check
    (`context_extensions`)."""


def parse(message: bytes) -> CheckRequest:
    """Parse a CheckRequest. Raises `Malformed` if it can't be read, or can be read in two ways."""
    attributes = read(data(read(message, _REQUEST), 1), _ATTRIBUTES)
    http = read(data(read(data(attributes, 4), _HTTP), 2), _HTTP_REQUEST)
    method, target, size = text(http, 2), text(http, 4), single(http, 9)
    if not method:
        raise Malformed("the check has no method")
    if data(http, 7) or data(http, 8):
        # Envoy leaves both empty: another reader could take them for a part of the target.
        raise Malformed("the check has a query or a fragment beside its path")
    if 3 in http and 13 in http:
        raise Malformed("the check has its headers twice: in `headers` and in `header_map`")
    joined = 13 not in http
    headers = _from_map(http.get(3, ())) if joined else _from_list(data(http, 13))
    return CheckRequest(
        method,
        target,
        _with_host(headers, data(http, 5)),
        joined,
        data(http, 12) or data(http, 11) or None,
        signed(size) if isinstance(size, int) else 0,
        {
            key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for key, value in _from_map(attributes.get(10, ()))
        },
    )


def _from_map(entries: "list[int | bytes] | tuple[()]") -> list[tuple[bytes, bytes]]:
    pairs: list[tuple[bytes, bytes]] = []
    for entry in entries:
        assert isinstance(entry, bytes)  # `read` has looked
        pairs.append(pair(entry))
    if len({key for key, _ in pairs}) < len(pairs):
        raise Malformed("a map has one key twice")
    return pairs


def _from_list(header_map: bytes) -> list[tuple[bytes, bytes]]:
    pairs: list[tuple[bytes, bytes]] = []
    for header in read(header_map, _HEADERS).get(1, ()):
        assert isinstance(header, bytes)  # `read` has looked
        fields = read(header, _HEADER)
        value, raw = data(fields, 2), data(fields, 3)
        if value and raw and value != raw:
            raise Malformed("a header has two values")
        pairs.append((data(fields, 1), raw or value))
    return pairs


def _with_host(headers: list[tuple[bytes, bytes]], host: bytes) -> HeaderFields:
    # HTTP/2 has the method, the target and the host among its headers, under names with a colon;
    # the check states each by itself.
    fields = [(name.lower(), value) for name, value in headers if name[:1] != b":"]
    if host:
        if any(name == b"host" and value != host for name, value in fields):
            raise Malformed("the header `host` differs from the check's `host`")
        fields = [(b"host", host), *(field for field in fields if field[0] != b"host")]
    return tuple(fields)


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

SentFields = Iterable[tuple[bytes, bytes]]


def allowed(event_id: str, metadata: bytes, *, reported: bool = False) -> bytes:
    """Return the CheckResponse that lets the request pass. It adds the event's id to the request
    and to the response to it, and removes the agent's own statements about itself. With `reported`,
    headers say that the request would have been denied. Without an event (an empty id), an id that
    the client made up is removed."""
    if not event_id:
        return _ALLOWED + bytes_field(3, _REMOVED + bytes_field(5, _EVENT_ID)) + metadata
    options = [_option(_EVENT_ID, event_id.encode())]
    if reported:
        options.append(_option(b"x-sluice-decision", b"DENY"))
    upstream = b"".join([bytes_field(2, option) for option in options])
    downstream = b"".join([bytes_field(6, option) for option in options])
    return b"%b%b%b" % (_ALLOWED, bytes_field(3, upstream + _REMOVED + downstream), metadata)


def denied(
    code: int, status: int, headers: SentFields, body: bytes, metadata: bytes = b""
) -> bytes:
    """Return the CheckResponse that stops the request: the client gets `status`, `headers` and
    `body`."""
    response = b"".join(
        [
            bytes_field(1, varint_field(1, status)),
            *(bytes_field(2, _option(name, value)) for name, value in headers),
            bytes_field(3, body),
        ]
    )
    return bytes_field(1, varint_field(1, code)) + bytes_field(2, response) + metadata


def dynamic_metadata(event_id: str, decision: str, policy_name: str, check: str) -> bytes:
    """Return the field of a CheckResponse that tells the gateway's access log and later filters
    about the decision."""
    return bytes_field(
        _METADATA, _member("event_id", event_id) + _members(decision, policy_name, check)
    )


@lru_cache(maxsize=1024)
def _members(decision: str, policy_name: str, check: str) -> bytes:
    """Encode all members of the metadata but the event's id: they are the same for most requests of
    an agent."""
    named = (("decision", decision), ("policy_name", policy_name), ("check", check))
    return b"".join([_member(name, value) for name, value in named])


def _member(name: str, value: str) -> bytes:
    text = bytes_field(3, value.encode())
    return bytes_field(_FIELDS, bytes_field(_KEY, name.encode()) + bytes_field(_VALUE, text))


def _option(name: bytes, value: bytes) -> bytes:
    return bytes_field(1, bytes_field(1, name) + bytes_field(2, value)) + _OVERWRITE
