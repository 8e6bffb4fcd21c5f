"""Parses the head of an API request: its route, key and request id, and what is wrong with it.

The result holds only what stays true each time the same bytes arrive, so that it can be cached.
Checks no key: a key that is valid now may be revoked a second later.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from aiohttp import HttpVersion10, HttpVersion11, hdrs
from aiohttp.http import RawRequestMessage
from multidict import CIMultiDictProxy, istr

from policies.ground.errors import (
    Forbidden,
    Malformed,
    MethodNotAllowed,
    NotFound,
    SluiceError,
)
from policies.ground.keys import KeysDiffer, key_digest, presented_key
from sidecar.api.route import ApiRoute

# Printable ASCII without spaces: the id is echoed in a header and written to the log.
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}").fullmatch
_NEEDS_KEY = "/v1/"
_VERSIONS = (HttpVersion11, HttpVersion10)
# `istr` folds the case once; a look-up by a plain string folds it each time.
_KEY_HEADER = istr("X-API-Key")
_ID_HEADER = istr("X-Request-ID")
_TRACE_HEADER = istr("traceparent")
_OWN_HOST = re.compile(
    r"(?:127(?:\.[0-9]{1,3}){3}|\[::1\]|localhost)(?::[0-9]{1,5})?", re.IGNORECASE
).fullmatch
# A browser sets at least one of them on every POST, and no page can remove either.
_OF_BROWSERS = (hdrs.ORIGIN, istr("Sec-Fetch-Site"))


class ApiHead(NamedTuple):
    """A parsed head."""

    route: ApiRoute | None
    name: str
    fault: SluiceError | None
    """Why the path or method can't be served; reported only after the key check."""
    needs_key: bool
    key_digest: bytes | None
    key_fault: SluiceError | None
    """Why the presented key is ambiguous."""
    request_id: str | None
    content_type: str | None
    query: str
    traceparent: tuple[bytes, ...]


def parse_head(message: RawRequestMessage, routes: Mapping[str, ApiRoute]) -> ApiHead:
    """Parse a message's head. Raises nothing: faults are part of the result."""
    # Compare the path as sent: another spelling, such as `/v1//x`, is another path.
    path, _, query = message.path.partition("?")
    route = routes.get(path)
    headers = message.headers
    presented, key_fault = _presented(headers)
    request_id = headers.get(_ID_HEADER)
    return ApiHead(
        route=route,
        name="none" if route is None else route.name,
        fault=_fault(message, route),
        needs_key=path.startswith(_NEEDS_KEY),
        # Keep only the digest: a head is cached, and the key itself must not stay in memory.
        key_digest=key_digest(presented) if presented else None,
        key_fault=key_fault,
        request_id=request_id if request_id and _REQUEST_ID(request_id) else None,
        content_type=headers.get(hdrs.CONTENT_TYPE),
        query=query,
        traceparent=tuple(each.encode() for each in headers.getall(_TRACE_HEADER, ())),
    )


def _presented(headers: "CIMultiDictProxy[str]") -> tuple[str | None, SluiceError | None]:
    """The key that a request presents, or why it is ambiguous."""
    try:
        keys = headers.getall(_KEY_HEADER, ())
        return presented_key(keys, headers.getall(hdrs.AUTHORIZATION, ())), None
    except KeysDiffer as error:
        return None, error


def _fault(message: RawRequestMessage, route: ApiRoute | None) -> SluiceError | None:
    if message.version not in _VERSIONS:
        return Malformed("the HTTP version must be 1.1 or 1.0")
    if route is None:
        return NotFound("no such path")
    if message.method not in route.methods:
        return MethodNotAllowed(
            f"the method `{message.method}` is not allowed here; use {' or '.join(route.methods)}"
        )
    if route.programs_only and not _of_program(message.headers):
        return Forbidden("only a program of this host may call this, by the address of loopback")
    return None


def _of_program(headers: "CIMultiDictProxy[str]") -> bool:
    """Whether no browser sent this: neither a page from elsewhere, nor one whose name was made to
    resolve to this host (DNS rebinding)."""
    hosts = headers.getall(hdrs.HOST, ())
    return (
        len(hosts) == 1
        and _OWN_HOST(hosts[0]) is not None
        and not any(each in headers for each in _OF_BROWSERS)
    )
