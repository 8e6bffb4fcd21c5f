"""Whether a request's frame can be trusted: version, host, transfer coding, upgrade (proxy.md 0
fact 7, A1). The parser has refused what is malformed; this refuses what it lets through.

Pure. Knows the head, not the body.
"""

import re

from aiohttp import HttpVersion, HttpVersion10, HttpVersion11

from policies.ground.errors import Malformed
from sidecar.http.headers import RequestHead
from sidecar.proxy.messages.upgrade import asks, check

_HOST = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~-]{1,255})(?::([0-9]{1,5}))?"
).fullmatch


class Tunnelling(Malformed):
    """the connection is asked to become something else; nothing behind the request is read"""


def check_frame(method: str, version: HttpVersion, head: RequestHead) -> None:
    """Raises `Malformed`; `Tunnelling` where what follows on the connection may not be HTTP."""
    read = head.read
    # RFC 9931: who refuses CONNECT or Upgrade must not read on, or an optimistic client's tunnelled
    # bytes become requests.
    if method == "CONNECT":
        raise Tunnelling("the method `CONNECT` is not served here")
    if asks(head):
        try:
            check(method, version, head)
        except Malformed as error:
            raise Tunnelling(error.message) from error
    if version not in (HttpVersion11, HttpVersion10):
        raise Malformed(f"HTTP version {version.major}.{version.minor} is not 1.0 or 1.1")
    codings = read.get(b"transfer-encoding")
    if codings is not None:
        if version != HttpVersion11:
            # RFC 9112 section 6.1: a coding below 1.1 is a faulty frame.
            raise Malformed("a transfer coding on HTTP/1.0")
        if [coding.lower() for coding in codings] != [b"chunked"]:
            raise Malformed("the transfer coding is not `chunked`")
        if b"content-length" in read:
            raise Malformed("both a length and a transfer coding")
    _check_host(version, head.one(b"host"))


def _check_host(version: HttpVersion, host: bytes | None) -> None:
    if host is None:
        if version == HttpVersion11:
            raise Malformed("the header `host` is missing")
        return
    found = _HOST(host)
    if not found or (found[1] is not None and int(found[1]) > 65535):
        raise Malformed("the header `host` is not a host")
