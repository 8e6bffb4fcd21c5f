"""Decides which header fields are forwarded in each direction, and which ones the sidecar reads
(RFC 9110 section 7.6, `proxy/RULES.md`, Fields and B6 to B12). Forwarded fields keep their order,
case, duplicates and bytes.

Knows field names. Knows neither what the values mean, nor any connection.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from policies.ground.errors import Malformed, UpstreamFailed

Fields = Iterable[tuple[bytes, bytes]]

OWN = b"x-sluice-"
BAGGAGE = b"baggage"

# Hop-by-hop fields are never forwarded (RFC 9110 section 7.6.1). That includes `TE: trailers`:
# the data source must not be told that trailers are welcome, unless the sidecar relays them, and
# then writes the field itself.
HOP_BY_HOP = frozenset(
    (
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate",
        b"proxy-authorization", b"te", b"trailer", b"transfer-encoding", b"upgrade",
        b"http2-settings",
    )
)  # fmt: skip

# Fields that a trusted proxy in front would set. The agent isn't one: a data source that believed
# them would act on another path, host or method than the one that was judged.
_PROXY_CLAIMS = frozenset(
    (
        b"forwarded", b"x-real-ip", b"x-rewrite-url", b"x-http-method", b"x-http-method-override",
        b"x-method-override",
    )
)  # fmt: skip
_PROXY_CLAIM_PREFIXES = (b"x-forwarded-", b"x-original-")

# Read here and not forwarded; the forwarder writes its own.
_READ = frozenset((b"host", b"content-length", b"expect", BAGGAGE))
# Read here, and forwarded unchanged.
_READ_AND_FORWARDED = frozenset((b"content-type", b"content-encoding", b"grpc-encoding"))

# End-to-end fields that `Connection` may not name. `Connection: content-type` would drop the field,
# and the data source would read another body than the one judged.
END_TO_END = frozenset(
    (
        b"host", b"content-length", b"content-type", b"content-encoding", b"authorization",
        b"expect", b"grpc-encoding",
    )
)  # fmt: skip

PERSISTENCE = frozenset((b"close", b"keep-alive"))
"""The options of the header `Connection` that don't name a header field."""

# These describe the whole body: they are wrong once the sidecar has removed a part of it.
_WHOLE_BODY = frozenset((b"etag", b"last-modified", b"content-md5", b"digest", b"content-digest"))

_MAX_CACHED_NAMES = 1024
_MAX_CACHED_NAME = 64


class RequestHead:
    """The header fields of a request, sorted: `lines` are the fields to forward, encoded, each with
    its line end; `read` holds the values of the fields that the sidecar reads, by lower-case name.
    A field may be in both. `length` is the value of `Content-Length`, None without it."""

    __slots__ = ("length", "lines", "read")

    def __init__(self, read: dict[bytes, list[bytes]], lines: bytes, length: bytes | None) -> None:
        self.read = read
        self.lines = lines
        self.length = length

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the fields to forward, as pairs of name and value. They are decoded only
        here, because few protocols look at them."""
        return iter(decode_fields(self.lines))

    def one(self, name: bytes) -> bytes | None:
        """Return the value of a field that may occur only once, None if it doesn't occur. Raises
        `Malformed` if it occurs twice."""
        values = self.read.get(name)
        if values is None:
            return None
        if len(values) > 1:
            raise Malformed(f"the header `{name.decode()}` occurs twice")
        return values[0]


class ResponseHead(NamedTuple):
    """The head of a response without its framing, which each version of HTTP does in its own way.

    `lines` are the header fields, each with its line end, and `own` those of the sidecar, which
    follow the framing. `length` is the value of `Content-Length`, None if the end of the body shows
    where it ends. `announced` is the line `Trailer` of a body without a length, with its line end.
    """

    status: int
    reason: bytes
    lines: bytes
    length: bytes | None
    own: bytes = b""
    announced: bytes = b""


class _FieldRule(NamedTuple):
    forwarded: bool
    key: bytes | None
    """The lower-case name under which the sidecar reads the field; None if it doesn't read it."""


_rules: dict[bytes, _FieldRule] = {}


def sort_request_fields(fields: Fields) -> RequestHead:
    """Sort the fields of a request into those to forward and those that the sidecar reads. Raises
    `Malformed` if `Connection` names a field that decides how the request is read."""
    forward: list[tuple[bytes, bytes]] = []
    read: dict[bytes, list[bytes]] = {}
    for field in fields:
        rule = _rules.get(field[0]) or _read_rule(field[0])
        if rule.forwarded:
            # The same object, not a copy: `head_template` finds the forwarded ranges by identity.
            forward.append(field)
        if rule.key is not None:
            read.setdefault(rule.key, []).append(field[1])
    connection = read.get(b"connection")
    if connection is not None:
        forward = _without_named(forward, connection)
    baggage = read.get(BAGGAGE)
    if baggage is not None:
        # At the end, so a request with baggage is no longer in the order it was sent:
        # `head_template` notices.
        forward += [(BAGGAGE, line) for line in without_own_baggage(baggage)]
    # The parser refuses a second `Content-Length`, so the first value is the only one.
    lengths = read.get(b"content-length")
    return RequestHead(read, encode_fields(forward), None if lengths is None else lengths[0])


def encode_fields(fields: list[tuple[bytes, bytes]]) -> bytes:
    """Return header fields as the bytes of a head, one line each. Raises `Malformed` if a field
    contains a line break, which would smuggle in another field."""
    lines = b"".join([b"%b: %b\r\n" % field for field in fields])
    if lines.count(b"\n") != len(fields) or lines.count(b"\r") != len(fields):
        raise Malformed("a header field contains a line break")
    return lines


def decode_fields(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Return the names and values of header lines that `encode_fields` made."""
    split = [line.partition(b": ") for line in lines.split(b"\r\n")[:-1]]
    return [(name, value) for name, _, value in split]


def refuse_encoded(fields: Fields) -> None:
    """Raise `UpstreamFailed` if a response that the sidecar must read has a content encoding such
    as gzip."""
    for name, value in fields:
        if name.lower() == b"content-encoding" and value.lower() != b"identity":
            raise UpstreamFailed("the data source encoded its response although asked not to")


def without_whole_body_fields(fields: Fields) -> list[tuple[bytes, bytes]]:
    """Return the fields of a response without those that describe its whole body, such as a digest,
    because something was cut from the body."""
    return [field for field in fields if field[0].lower() not in _WHOLE_BODY]


def connection_options(lines: Iterable[bytes]) -> set[bytes]:
    """Return the options that the header lines of `Connection` name, in lower case."""
    # Every line counts, even after an empty first one (Go CVE-2021-33197).
    return {token.strip(b" \t").lower() for line in lines for token in line.split(b",")} - {b""}


def without_own_baggage(values: list[bytes]) -> list[bytes]:
    """Return the `baggage` lines without the members `sluice.*`; every other member keeps its bytes
    (W3C Baggage section 3.3)."""
    remaining = []
    for line in values:
        members = line.split(b",")
        others = [member for member in members if not _own_member(member)]
        if len(others) == len(members):
            remaining.append(line)
        elif others:
            remaining.append(b",".join(others).strip(b" \t"))
    return remaining


def _own_member(member: bytes) -> bool:
    return member.partition(b"=")[0].strip(b" \t").lower().startswith(b"sluice.")


def _without_named(
    forward: list[tuple[bytes, bytes]], connection: list[bytes]
) -> list[tuple[bytes, bytes]]:
    tokens = connection_options(connection) - PERSISTENCE
    if not tokens:
        return forward
    for token in tokens:
        if token in END_TO_END or token.replace(b"_", b"-").startswith(OWN):
            name = token[:_MAX_CACHED_NAME].decode("ascii", "backslashreplace")
            raise Malformed(
                f"`Connection` may not name `{name}`, which decides how the request is read"
            )
    return [field for field in forward if field[0].lower() not in tokens]


def _read_rule(name: bytes) -> _FieldRule:
    rule = _rule(name.lower())
    # The other side chooses the names, so the cache is bounded.
    if len(name) <= _MAX_CACHED_NAME:
        if len(_rules) >= _MAX_CACHED_NAMES:
            _rules.clear()
        _rules[name] = rule
    return rule


def _rule(lower: bytes) -> _FieldRule:
    # CGI, WSGI and PHP read `X_Forwarded_For` and `X-Forwarded-For` as the same variable.
    plain = lower.replace(b"_", b"-")
    read_as = lower if plain == lower else None
    if plain in _PROXY_CLAIMS or plain.startswith(_PROXY_CLAIM_PREFIXES):
        return _FieldRule(False, None)
    if plain.startswith(OWN) or plain in HOP_BY_HOP or plain in _READ:
        return _FieldRule(False, read_as)
    if plain in _READ_AND_FORWARDED:
        return _FieldRule(lower == plain, read_as)
    return _FieldRule(True, None)
