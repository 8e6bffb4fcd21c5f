"""The forms of a request to change the protocol of its connection, to WebSocket and to nothing else
(RFC 6455, RFC 9110 section 7.8), and of the answer that grants it. Pure. Knows no connection.
"""

import re

from aiohttp import HttpVersion, HttpVersion11

from policies.ground.errors import Malformed
from sidecar.http.headers import Fields, RequestHead, encode_fields, sort_response_fields
from sidecar.proxy.proxy_metrics import Unanswered

ASKS = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
"""The fields that ask a data source for it."""

_HEAD = re.compile(
    rb"HTTP/1\.1 101(?: [ -~]*)?\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~]*\r\n)+)\r\n"
).fullmatch


def asks(head: RequestHead) -> bool:
    """Whether a request asks for WebSocket, in whatever form: `check` says whether it is the right
    one. Any other protocol is an offer that is ignored (RFC 9110 section 7.8), never granted."""
    return any(protocol.startswith(b"websocket") for protocol in _protocols(head))


def check(method: str, version: HttpVersion, head: RequestHead) -> None:
    """Raises `Malformed` where a request that asks for it does not in the one form."""
    read = head.read
    named = b",".join(read.get(b"connection", ())).lower().split(b",")
    if version != HttpVersion11:
        # RFC 9110 section 7.8: from 1.0 it means nothing, and who sent it may think otherwise.
        raise Malformed("the header `upgrade` on another version than HTTP/1.1")
    if _protocols(head) != [b"websocket"]:
        raise Malformed("the header `upgrade` names WebSocket together with another protocol")
    if method != "GET":
        raise Malformed(f"a `{method}` asks for WebSocket: only a GET may")
    if b"upgrade" not in [token.strip(b" \t") for token in named]:
        raise Malformed("the header `connection` does not name `upgrade`")
    if b"content-length" in read or b"transfer-encoding" in read or b"expect" in read:
        raise Malformed("a request with a body asks for another protocol")


def _protocols(head: RequestHead) -> list[bytes]:
    """What the header names, in lower case, over all its lines."""
    lines = head.read.get(b"upgrade", ())
    return [each.strip(b" \t").lower() for line in lines for each in line.split(b",")]


def answered(head: bytes, event: Fields) -> bytes:
    """The head that the agent gets. `Unanswered` where the data source did not grant what was asked
    for."""
    found = _HEAD(head)
    if found is None:
        raise Unanswered
    fields = []
    for line in found[1].split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        fields.append((name, value.strip(b" \t")))
    upgrade = [value.lower() for name, value in fields if name.lower() == b"upgrade"]
    if upgrade != [b"websocket"]:
        raise Unanswered
    passed = sort_response_fields(fields).forward
    return b"HTTP/1.1 101 Switching Protocols\r\n%b%b%b\r\n" % (
        encode_fields(passed),
        ASKS,
        encode_fields(list(event)),
    )
