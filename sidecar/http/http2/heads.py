"""Translates heads between HTTP/2 and HTTP/1 (RFC 9113 sections 8.2 and 8.3). The library has
refused malformed heads: names in upper case, fields of the connection, pseudo-header fields twice,
late or missing, line breaks. Pure."""

from collections.abc import Sequence

from sidecar.http.headers import ResponseHead, decode_fields
from sidecar.http.http2.session import Fields
from sidecar.http.messages.request_parser import HeadLimits

_COOKIE, _HOST = b"cookie", b"host"

METHODS = frozenset(
    (
        b"ACL", b"BIND", b"CHECKOUT", b"COPY", b"DELETE", b"GET", b"HEAD", b"LINK", b"LOCK",
        b"M-SEARCH", b"MERGE", b"MKACTIVITY", b"MKCALENDAR", b"MKCOL", b"MOVE", b"NOTIFY",
        b"OPTIONS", b"PATCH", b"POST", b"PROPFIND", b"PROPPATCH", b"PURGE", b"PUT", b"QUERY",
        b"REBIND", b"REPORT", b"SEARCH", b"SOURCE", b"SUBSCRIBE", b"TRACE", b"UNBIND", b"UNLINK",
        b"UNLOCK", b"UNSUBSCRIBE",
    )
)  # fmt: skip
"""The methods that the parser of HTTP/1 knows. A data source could take another one, such as `get`,
for one of these, and the decision would be on something else."""


class BadHead(Exception):
    """a request's head that the sidecar refuses although the library lets it through"""


class TranslatedHead:
    """A request's head as that of HTTP/1: the method, the target, and the fields, with `host`
    first. Raises `BadHead` unless its scheme is one of `schemes`, and it keeps the `limits` of
    HTTP/1."""

    __slots__ = ("fields", "method", "target")

    def __init__(self, fields: Fields, schemes: Sequence[bytes], limits: HeadLimits) -> None:
        pseudo: dict[bytes, bytes] = {}
        others: list[tuple[bytes, bytes]] = []
        cookies: list[bytes] = []
        for name, value in fields:
            if name[:1] == b":":
                pseudo[name] = value
            elif name == _COOKIE:
                cookies.append(value)
            else:
                others.append((name, value))
        method, target = pseudo[b":method"], pseudo.get(b":path", b"")
        if method == b"CONNECT":
            raise BadHead("`CONNECT` is not served over HTTP/2")
        if method not in METHODS:
            raise BadHead("the request's method is not one of HTTP's")
        if pseudo.get(b":scheme") not in schemes:
            raise BadHead(f"the request's scheme is not `{schemes[0].decode()}`, as this port's is")
        if not target.startswith(b"/") or not target.isascii():
            raise BadHead("the request's `:path` does not begin with `/`, or is not ASCII")
        if len(target) > limits.line or len(others) > limits.fields:
            raise BadHead("the request's `:path` is too long, or its fields are too many")
        if any(len(name) + len(value) > limits.field for name, value in others):
            raise BadHead("a field of the request is too long")
        host = pseudo.get(b":authority")
        stated = [value for name, value in others if name == _HOST]
        if host is None:
            if len(stated) != 1:
                raise BadHead("the request states no host, or several")
        elif any(each != host for each in stated):
            raise BadHead("the request's `:authority` and its `host` differ")
        else:
            others = [(_HOST, host), *(each for each in others if each[0] != _HOST)]
        if cookies:
            # RFC 9113 section 8.2.3: HTTP/1 has one line for all.
            others.append((_COOKIE, b"; ".join(cookies)))
        self.method = method.decode("ascii")
        self.target = target.decode("ascii")
        self.fields = others


def response_fields(head: ResponseHead) -> list[tuple[bytes, bytes]]:
    """Return the fields of a response's head."""
    fields = [(b":status", b"%d" % head.status), *lower_case(head.lines + head.own)]
    if head.length is not None and head.status != 204:
        fields.append((b"content-length", head.length))
    return fields


def lower_case(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Return fields of HTTP/1, each with its line end, as those of HTTP/2."""
    return [(name.lower(), value) for name, value in decode_fields(lines)]
