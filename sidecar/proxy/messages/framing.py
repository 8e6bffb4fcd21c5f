"""Checks that a request's framing can be trusted: version, host, transfer coding, upgrade
(`proxy/RULES.md`, Framing). The parser has refused malformed requests; this refuses what the parser
lets through.

Pure. Knows the head, not the body.
"""

import re

from policies.ground.errors import Malformed
from sidecar.http.headers import RequestHead
from sidecar.http.messages.request_parser import HTTP_10, HTTP_11
from sidecar.proxy.messages.upgrade import asks_websocket, check_websocket

_HOST = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~-]{1,255})(?::([0-9]{1,5}))?"
).fullmatch


class Tunnelling(Malformed):
    """the request asks to switch protocols; nothing that follows it is read"""


def check_frame(method: str, version: str, head: RequestHead) -> None:
    """Raises `Malformed`, or `Tunnelling` if what follows on the connection may not be HTTP."""
    read = head.read
    # RFC 9931: a server that refuses CONNECT or Upgrade must not read on. An optimistic client may
    # have sent tunnelled bytes already, which would be taken for requests.
    if method == "CONNECT":
        raise Tunnelling("`CONNECT` is served on the forward proxy's port only")
    if asks_websocket(head):
        try:
            check_websocket(method, version, head)
        except Malformed as error:
            raise Tunnelling(error.message) from error
    if version not in (HTTP_11, HTTP_10):
        raise Malformed(f"HTTP version {version} is not 1.0 or 1.1")
    codings = read.get(b"transfer-encoding")
    if codings is not None:
        # Request smuggling (RFC 9112 section 11.2) needs a message that readers end in different
        # places. Everything that allows this is refused here.
        if version != HTTP_11:
            # RFC 9112 section 6.1: below 1.1, a transfer coding makes the framing faulty.
            raise Malformed("the header `transfer-encoding` needs HTTP/1.1, and this is HTTP/1.0")
        if [coding.lower() for coding in codings] != [b"chunked"]:
            raise Malformed("the header `transfer-encoding` is not `chunked`")
        if b"content-length" in read:
            raise Malformed("the request has both `content-length` and `transfer-encoding`")
    _check_host(version, head.one(b"host"))


def _check_host(version: str, host: bytes | None) -> None:
    if host is None:
        if version == HTTP_11:
            raise Malformed("the header `host` is missing")
        return
    found = _HOST(host)
    if not found or (found[1] is not None and int(found[1]) > 65535):
        raise Malformed("the header `host` is not a host name or address with an optional port")
