"""Requests to switch a connection to WebSocket, and the responses that grant it (RFC 6455, RFC 9110
section 7.8). Offers of any other protocol are ignored. Pure. Knows no connection.
"""

from policies.ground.errors import Malformed
from sidecar.http.headers import Fields, RequestHead, encode_fields
from sidecar.http.messages.request_parser import HTTP_11
from sidecar.http.messages.response_head import ResponseMessage
from sidecar.proxy.proxy_metrics import UpstreamNoResponse

UPGRADE_LINES = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
"""The header fields that ask a data source to switch."""


def asks_websocket(head: RequestHead) -> bool:
    """Whether a request asks for WebSocket, in whatever form; `check_websocket` checks the form. An
    offer of any other protocol is ignored (RFC 9110 section 7.8), never granted."""
    if b"upgrade" not in head.read:
        return False
    return any(protocol.startswith(b"websocket") for protocol in _protocols(head))


def check_websocket(method: str, version: str, head: RequestHead) -> None:
    """Raises `Malformed` unless a request for WebSocket has the one valid form."""
    read = head.read
    options = b",".join(read.get(b"connection", ())).lower().split(b",")
    if version != HTTP_11:
        # RFC 9110 section 7.8: on 1.0 a server ignores it, but its sender may not expect that.
        raise Malformed("the header `upgrade` needs HTTP/1.1")
    if _protocols(head) != [b"websocket"]:
        raise Malformed("the header `upgrade` names WebSocket together with another protocol")
    if method != "GET":
        raise Malformed(f"a `{method}` asks for WebSocket, but only a `GET` may")
    if b"upgrade" not in [option.strip(b" \t") for option in options]:
        raise Malformed("the header `connection` does not name `upgrade`")
    # The JDK's client states that it has no body.
    if read.get(b"content-length", [b"0"]) != [b"0"]:
        raise Malformed("a request for WebSocket may not have a body: `content-length` must be 0")
    if b"transfer-encoding" in read or b"expect" in read:
        raise Malformed("a request for WebSocket may not have a body")


def _protocols(head: RequestHead) -> list[bytes]:
    """The protocols that the header names, in lower case, over all its lines."""
    lines = head.read.get(b"upgrade", ())
    return [each.strip(b" \t").lower() for line in lines for each in line.split(b",")]


def switching_head(message: ResponseMessage, event: Fields, alias: str) -> bytes:
    """The head of the 101 response that the agent gets, for the data source's. Raises
    `UpstreamNoResponse` if the data source `alias` did not grant what was asked for."""
    if [protocol.lower() for protocol in message.upgrade] != [b"websocket"]:
        raise UpstreamNoResponse(
            f"the data source `{alias}` answered 101, but did not switch to WebSocket"
        )
    # `Connection` and `Upgrade` hold for one hop only, so these are ours.
    lines = message.lines + UPGRADE_LINES + encode_fields(list(event))
    return b"HTTP/1.1 101 Switching Protocols\r\n%b\r\n" % lines
