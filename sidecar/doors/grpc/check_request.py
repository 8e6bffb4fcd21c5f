"""Reads a CheckRequest (`authorization.proto`): what a gateway says of the request that it holds.
Knows neither the key of the call nor what the request means."""

from typing import NamedTuple

from policies.ground.errors import Malformed
from sidecar.doors.grpc.wire import BYTES, VARINT, data, pair, read, signed, single, text

HeaderFields = tuple[tuple[bytes, bytes], ...]

PARTIAL_FLAG = b"x-envoy-auth-partial-body"
"""Set by the gateway where it sends bodies: `true` if it sent a part."""

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
    """Whether the gateway joined a repeated header's values by commas."""
    body: bytes | None
    """None if the gateway sent none."""
    size: int
    """The length of the body by the gateway's own count, -1 if it gives none."""
    extensions: dict[str, str]
    """What the gateway's configuration adds."""


def parse(message: bytes) -> CheckRequest:
    """Raises `Malformed` if the message can't be read, or can be read in two ways."""
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
