"""Parses the head of an API request: its route, key and request id, and any fault in it.

Keeps only the digest of a key, and verifies no key: `dispatch` does that.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from policies.ground.errors import (
    Forbidden,
    Malformed,
    MethodNotAllowed,
    NotFound,
    SluiceError,
)
from policies.ground.keys import KeysDiffer, key_digest, presented_key
from sidecar.api.route import ApiRoute
from sidecar.http.messages.request_parser import HTTP_2, HTTP_10, HTTP_11, RequestMessage

# Printable ASCII without spaces: the id is echoed in a header and written to the log.
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}").fullmatch
_NEEDS_KEY = "/v1/"
SPOKEN_VERSIONS = (HTTP_11, HTTP_2, HTTP_10)
_KEY, _AUTHORIZATION, _ID = b"x-api-key", b"authorization", b"x-request-id"
_TYPE, _LENGTH, _TRACE, _HOST = b"content-type", b"content-length", b"traceparent", b"host"
# A browser sets at least one of them on every POST, and no page can remove either.
_OF_BROWSERS = (b"origin", b"sec-fetch-site")
_READ = frozenset(
    (_KEY, _AUTHORIZATION, _ID, _TYPE, _LENGTH, _TRACE, _HOST, b"expect", *_OF_BROWSERS)
)
_OWN_HOST = re.compile(
    r"(?:127(?:\.[0-9]{1,3}){3}|\[::1\]|localhost)(?::[0-9]{1,5})?", re.IGNORECASE
).fullmatch
Values = dict[bytes, list[bytes]]
"""The values of the header fields that are used, by lower-case name."""


class ApiHead(NamedTuple):
    route: ApiRoute | None
    name: str
    fault: SluiceError | None
    """The error if the path or method can't be served; reported only after the key check."""
    needs_key: bool
    key_digest: bytes | None
    key_fault: SluiceError | None
    """The error if the request presents two different keys."""
    request_id: str | None
    content_type: str | None
    query: str
    traceparent: tuple[bytes, ...]
    length: int
    """The stated length of the body in bytes; 0 if none is stated."""
    waits_for_continue: bool
    foreign: SluiceError | None = None
    """The error if the request isn't meant for this port, or was sent by a page of another site;
    reported before the key check."""


def parse_head(message: RequestMessage, routes: Mapping[str, ApiRoute]) -> ApiHead:
    """Parse a message's head. Raises nothing: faults are part of the result."""
    # Compare the path as sent: another spelling, such as `/v1//x`, is another path.
    path, _, query = message.target.partition("?")
    route = routes.get(path)
    values: Values = {}
    for name, value in message.fields:
        lower = name.lower()
        if lower in _READ:
            values.setdefault(lower, []).append(value)
    presented, key_fault = _presented(values)
    request_id = _first(values, _ID)
    length = _first(values, _LENGTH)
    return ApiHead(
        route=route,
        name="none" if route is None else route.name,
        fault=_fault(message, route, values),
        needs_key=path.startswith(_NEEDS_KEY) or (route is not None and route.scopes is not None),
        key_digest=key_digest(presented) if presented else None,
        key_fault=key_fault,
        request_id=echoed_id(request_id),
        content_type=_first(values, _TYPE),
        query=query,
        traceparent=tuple(values.get(_TRACE, ())),
        length=0 if length is None else int(length),
        waits_for_continue=(_first(values, b"expect") or "").lower() == "100-continue",
    )


def echoed_id(stated: str | None) -> str | None:
    """Return the client's request id; None if it is missing or not fit to be sent back."""
    return stated if stated and _REQUEST_ID(stated) else None


def trusted_framing(message: RequestMessage) -> bool:
    """Return whether every HTTP reader would agree on the message's host and on where it ends. The
    parser accepts several hosts, and transfer codings that end in `chunked` (RFC 9112 sections 3.2
    and 6.1)."""
    hosts, codings = 0, []
    for name, value in message.fields:
        lower = name.lower()
        if lower == _HOST:
            hosts += 1
        elif lower == b"transfer-encoding":
            codings.append(value.lower())
    chunked = codings == [b"chunked"] and message.version == HTTP_11
    return hosts <= 1 and (chunked or not codings)


def _first(values: Values, name: bytes) -> str | None:
    found = values.get(name)
    return None if found is None else _text(found[0])


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _presented(values: Values) -> tuple[str | None, SluiceError | None]:
    """Return the key that a request presents, None if it presents none; or the error if it presents
    different keys."""
    keys = [_text(each) for each in values.get(_KEY, ())]
    try:
        return presented_key(keys, [_text(each) for each in values.get(_AUTHORIZATION, ())]), None
    except KeysDiffer as error:
        return None, error


def _fault(message: RequestMessage, route: ApiRoute | None, values: Values) -> SluiceError | None:
    if message.version not in SPOKEN_VERSIONS:
        return Malformed("the HTTP version must be 2, 1.1 or 1.0")
    if route is None:
        return NotFound("no such path")
    if message.method not in route.methods:
        return MethodNotAllowed(
            f"the method `{message.method}` is not allowed here; use {' or '.join(route.methods)}"
        )
    if route.programs_only and not _of_program(values):
        return Forbidden("only a program of this host may call this, by the address of loopback")
    return None


def _of_program(values: Values) -> bool:
    """Return whether the request was sent by a program, not by a page in a browser: neither by a
    page from elsewhere, nor by one whose name was made to resolve to this host (DNS rebinding)."""
    hosts = values.get(_HOST, ())
    return (
        len(hosts) == 1
        and _OWN_HOST(_text(hosts[0])) is not None
        and not any(each in values for each in _OF_BROWSERS)
    )
