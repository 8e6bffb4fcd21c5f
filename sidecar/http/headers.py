"""Which header fields pass, in which direction, and which are read (RFC 9110 section 7.6, proxy.md
A1 and B 6 to 12). Fields pass as they were written: order, case, duplicates and bytes.

Knows names and lists of names. Knows neither what the values that it hands on mean, nor any
connection.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from policies.ground.errors import Malformed, UpstreamFailed

Fields = Iterable[tuple[bytes, bytes]]

OWN = b"x-sluice-"
BAGGAGE = b"baggage"

# Between two hops, never beyond (RFC 9110 section 7.6.1). `TE: trailers` goes too: trailers are not
# relayed, so nobody is told that they are welcome.
_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    )
)

# What a proxy in front would have said. The agent is not a proxy in front; a data source that
# believed it would see another path, host or method than the one that was judged.
_CLAIMS = frozenset(
    (
        b"forwarded",
        b"x-real-ip",
        b"x-rewrite-url",
        b"x-http-method",
        b"x-http-method-override",
        b"x-method-override",
    )
)
_CLAIM_FAMILIES = (b"x-forwarded-", b"x-original-")

# Read here, and written anew by whoever forwards.
_READ = frozenset((b"host", b"content-length", b"expect", BAGGAGE))
# Read here and forwarded as they are.
_READ_AND_PASSED = frozenset((b"content-type", b"content-encoding"))

# `Connection: content-type` would have the data source read another body than the one judged.
_NOT_FOR_CONNECTION = frozenset(
    (b"host", b"content-length", b"content-type", b"content-encoding", b"authorization", b"expect")
)

# What would no longer be true of an answer of which something was left out.
_OF_THE_WHOLE = frozenset((b"etag", b"last-modified", b"content-md5", b"digest", b"content-digest"))

_MAX_KNOWN = 1024
_MAX_KNOWN_NAME = 64


class RequestHead(NamedTuple):
    """A request's fields: those to forward, and by lower-case name the values of those read.

    `lines` are the ones to forward, each with its line end, `length` is the value of
    `Content-Length`. A head is kept for the next request that has the same: nobody changes one.
    """

    forward: list[tuple[bytes, bytes]]
    read: dict[bytes, list[bytes]]
    lines: bytes
    length: bytes | None

    def one(self, name: bytes) -> bytes | None:
        """The value of a field that may stand once; `Malformed` where it stands twice."""
        values = self.read.get(name)
        if values is None:
            return None
        if len(values) > 1:
            raise Malformed(f"the header `{name.decode()}` stands twice")
        return values[0]


class ResponseHead(NamedTuple):
    """An answer's fields: those to pass on, and what frames its body."""

    forward: list[tuple[bytes, bytes]]
    lengths: Sequence[bytes]
    codings: Sequence[bytes]


class _Fate(NamedTuple):
    passes: bool
    key: bytes | None


_known: dict[bytes, _Fate] = {}
_known_in_answers: dict[bytes, _Fate] = {}
_NONE: Sequence[bytes] = ()


def sort_request_fields(fields: Fields) -> RequestHead:
    """Sorts a request's fields. Raises `Malformed` where `Connection` names a field that decides
    how the request is read."""
    forward: list[tuple[bytes, bytes]] = []
    read: dict[bytes, list[bytes]] = {}
    known = _known
    for field in fields:
        fate = known.get(field[0]) or _remembered(known, field[0], _request_fate(field[0].lower()))
        if fate.passes:
            forward.append(field)
        if fate.key is not None:
            read.setdefault(fate.key, []).append(field[1])
    named = read.get(b"connection")
    if named is not None:
        forward = _without_named(forward, named)
    baggage = read.get(BAGGAGE)
    if baggage is not None:
        forward += [(BAGGAGE, line) for line in without_own_baggage(baggage)]
    # The parser has refused a second length.
    lengths = read.get(b"content-length")
    return RequestHead(
        forward, read, encode_fields(forward), None if lengths is None else lengths[0]
    )


def encode_fields(fields: list[tuple[bytes, bytes]]) -> bytes:
    """Header fields as they stand in a head. `Malformed` where one holds a line break: it would be
    a field of its own."""
    lines = b"".join([b"%b: %b\r\n" % field for field in fields])
    if lines.count(b"\n") != len(fields) or lines.count(b"\r") != len(fields):
        raise Malformed("a line break inside a header field")
    return lines


def decode_fields(lines: bytes) -> list[tuple[bytes, bytes]]:
    """The fields that `encode_fields` made lines of."""
    split = [line.partition(b": ") for line in lines.split(b"\r\n")[:-1]]
    return [(name, value) for name, _, value in split]


def sort_response_fields(fields: Fields) -> ResponseHead:
    """Sorts an answer's fields. Whatever says `X-Sluice-…` upstream is dropped: an event id that
    we did not issue must not look like one."""
    forward: list[tuple[bytes, bytes]] = []
    read: dict[bytes, list[bytes]] = {}
    known = _known_in_answers
    for field in fields:
        fate = known.get(field[0]) or _remembered(known, field[0], _answer_fate(field[0].lower()))
        if fate.passes:
            forward.append(field)
        if fate.key is not None:
            read.setdefault(fate.key, []).append(field[1])
    named = read.get(b"connection")
    if named is not None:
        gone = _tokens(named) - _NOT_FOR_CONNECTION
        forward = [field for field in forward if field[0].lower() not in gone]
    return ResponseHead(
        forward, read.get(b"content-length", _NONE), read.get(b"transfer-encoding", _NONE)
    )


def refuse_encoded(fields: Fields) -> None:
    """Raises `UpstreamFailed` where an answer that has to be read is encoded."""
    for name, value in fields:
        if name.lower() == b"content-encoding" and value.lower() != b"identity":
            raise UpstreamFailed("the data source encodes its answer although asked not to")


def without_whole_body_fields(fields: Fields) -> list[tuple[bytes, bytes]]:
    """An answer's fields without what was said of a whole that is no longer passed on."""
    return [field for field in fields if field[0].lower() not in _OF_THE_WHOLE]


def without_own_baggage(values: list[bytes]) -> list[bytes]:
    """The `baggage` lines without the members `sluice.*`; every other member as it was written
    (W3C Baggage section 3.3)."""
    kept = []
    for line in values:
        members = line.split(b",")
        others = [member for member in members if not _own_member(member)]
        if len(others) == len(members):
            kept.append(line)
        elif others:
            kept.append(b",".join(others).strip(b" \t"))
    return kept


def _own_member(member: bytes) -> bool:
    return member.partition(b"=")[0].strip(b" \t").lower().startswith(b"sluice.")


def _without_named(
    forward: list[tuple[bytes, bytes]], named: list[bytes]
) -> list[tuple[bytes, bytes]]:
    tokens = _tokens(named)
    if not tokens:
        return forward
    for token in tokens:
        if token in _NOT_FOR_CONNECTION or token.replace(b"_", b"-").startswith(OWN):
            raise Malformed("the header `connection` names a field that is no matter of a hop")
    return [field for field in forward if field[0].lower() not in tokens]


def _tokens(lines: list[bytes]) -> set[bytes]:
    # All lines, an empty first one included (Go CVE-2021-33197).
    tokens = {token.strip(b" \t").lower() for line in lines for token in line.split(b",")}
    return tokens - {b"", b"close", b"keep-alive"}


def _remembered(known: dict[bytes, _Fate], name: bytes, fate: _Fate) -> _Fate:
    # Names come from the other side: what is remembered of them is bounded.
    if len(name) <= _MAX_KNOWN_NAME:
        if len(known) >= _MAX_KNOWN:
            known.clear()
        known[name] = fate
    return fate


def _request_fate(lower: bytes) -> _Fate:
    # `X_Forwarded_For` and `X-Forwarded-For` are one variable to whatever runs CGI, WSGI or PHP.
    plain = lower.replace(b"_", b"-")
    if plain.startswith(OWN):
        return _Fate(False, lower if plain == lower else None)
    if plain in _CLAIMS or plain.startswith(_CLAIM_FAMILIES):
        return _Fate(False, None)
    if plain in _HOP or plain in _READ:
        return _Fate(False, lower if plain == lower else None)
    if plain in _READ_AND_PASSED:
        return _Fate(lower == plain, lower if plain == lower else None)
    return _Fate(True, None)


def _answer_fate(lower: bytes) -> _Fate:
    if lower in (b"content-length", b"transfer-encoding", b"connection"):
        return _Fate(False, lower)
    # RFC 7838: a client that followed an alternative service would go past the sidecar.
    gone = lower in _HOP or lower == b"alt-svc" or lower.replace(b"_", b"-").startswith(OWN)
    return _Fate(not gone, None)
