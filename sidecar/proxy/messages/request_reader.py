"""Reads a request's head and, if the decision needs it, its body, and builds the request that goes
to the data source. Anything that could be read in two ways is refused here with `Malformed`.

The request's framing must be one that can be trusted: version, host, transfer coding, upgrade
(`proxy/RULES.md`, Framing). The parser has refused malformed requests; this module refuses
ambiguous ones that the parser lets through. A connection may be switched to WebSocket (RFC 6455,
RFC 9110 section 7.8); offers of any other protocol are ignored.

Knows HTTP. Knows no policy and no data source.
"""

import re

from policies.ground.errors import Malformed, TooLarge
from sidecar.http.client.request import UpstreamRequest
from sidecar.http.grpc.status import is_grpc_type
from sidecar.http.headers import Fields, RequestHead, encode_fields, sort_request_fields
from sidecar.http.messages.chunks import BadTrailers, TrailerHead, welcomes_trailers
from sidecar.http.messages.request_parser import HTTP_2, HTTP_10, HTTP_11
from sidecar.http.messages.response_parser import ResponseMessage
from sidecar.http.request_body import BodyTooSlow, Lease, read_whole
from sidecar.http.request_target import Target
from sidecar.http.server.head_cache import HeadTemplate, head_template
from sidecar.http.server.request import HttpRequest
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.proxy_metrics import UpstreamNoResponse

UPGRADE_LINES = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
"""The header lines that ask for a switch to WebSocket, and that grant it."""


def asks_websocket(head: RequestHead) -> bool:
    """Return whether a request asks for WebSocket, well formed or not; `check_websocket` checks the
    form. An offer of any other protocol doesn't count: it is ignored (RFC 9110 section 7.8), never
    granted."""
    if b"upgrade" not in head.read:
        return False
    return any(protocol.startswith(b"websocket") for protocol in _protocols(head))


def check_websocket(method: str, version: str, head: RequestHead) -> None:
    """Raise `Malformed` unless a request for WebSocket has the one valid form."""
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
    """Return the protocols named in the header `upgrade`, in lower case, over all its lines."""
    lines = head.read.get(b"upgrade", ())
    return [each.strip(b" \t").lower() for line in lines for each in line.split(b",")]


def switching_head(message: ResponseMessage, event: Fields, alias: str) -> bytes:
    """Return the head of the 101 response that the agent gets, made from the data source's 101
    (`message`). Raises `UpstreamNoResponse` if the data source `alias` switched to something other
    than WebSocket."""
    if [protocol.lower() for protocol in message.upgrade] != [b"websocket"]:
        raise UpstreamNoResponse(
            f"the data source `{alias}` answered 101, but did not switch to WebSocket"
        )
    # `Connection` and `Upgrade` hold for one hop only, so these are ours.
    lines = message.lines + UPGRADE_LINES + encode_fields(list(event))
    return b"HTTP/1.1 101 Switching Protocols\r\n%b\r\n" % lines


_HOST = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._~-]{1,255})(?::([0-9]{1,5}))?"
).fullmatch


class Tunnelling(Malformed):
    """the request asks to switch protocols; nothing that follows it is read"""


def check_frame(method: str, version: str, head: RequestHead) -> None:
    """Check that the framing of a request can be trusted. Raises `Tunnelling` if the bytes that
    follow may not be HTTP, and `Malformed` for any other fault."""
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
    if version not in (HTTP_11, HTTP_2, HTTP_10):
        raise Malformed(f"HTTP version {version} is not 1.0, 1.1 or 2")
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
        if version != HTTP_10:
            raise Malformed("the header `host` is missing")
        return
    found = _HOST(host)
    if not found or (found[1] is not None and int(found[1]) > 65535):
        raise Malformed("the header `host` is not a host name or address with an optional port")


# Fields that could make a response partial, empty or encoded. They are left out where the sidecar
# has to read all of it.
_CONDITIONS = frozenset(
    (
        b"accept-encoding", b"range", b"if-range", b"if-match", b"if-none-match",
        b"if-modified-since", b"if-unmodified-since", b"grpc-accept-encoding",
    )
)  # fmt: skip
_BODY_FIELDS = frozenset((b"accept", b"content-type", b"content-encoding", b"content-language"))
_IDENTITY = (b"Accept-Encoding", b"identity")
_JSON_LINE = b"Content-Type: application/json\r\n"
_GRPC_LINE = b"Content-Type: application/grpc\r\n"
# `Connection` names it, since it is for the next hop alone (RFC 9110 section 10.1.4).
_WELCOME_LINES = b"Connection: TE\r\nTE: trailers\r\n"


def read_head(request: HttpRequest) -> RequestHead:
    """Return the head of a request. Raises `Malformed` if its framing can't be trusted.

    The head is kept as long as its request, since both the routing and the pipeline ask for it, but
    no longer, because it holds credentials. Only a `HeadTemplate`, which holds no credentials, may
    live longer.
    """
    if request.known:
        template: HeadTemplate = request.head
        return template.fill(request.raw_head)
    if request.fault:
        # What the parser says would echo the offending line, which may hold a credential.
        raise Malformed(request.fault)
    head: RequestHead | None = request.head
    if head is None:
        head = sort_request_fields(request.fields)
        try:
            check_frame(request.method, request.version, head)
        except Tunnelling:
            # What follows may belong to the tunnel, and must not be read as HTTP (RFC 9931).
            request.stop_reading()
            raise
        remembered = head_template(request.fields, head, request.raw_head)
        if remembered is not None:
            request.remember(remembered)
        request.head = head
    return head


async def read_body(
    request: HttpRequest, head: RequestHead, limits: ProxyLimits, lease: Lease
) -> tuple[bytes, str | None]:
    """Read the body to its end; return it as sent, and its media type. Raises `Malformed` if no
    decision can be based on the body (`protocols/RULES.md`, Bodies and Unreadable bodies), and
    `BodyBudgetExceeded` if `lease` can't grow to its size."""
    media = body_media(head)
    body, limit = request.body, limits.inspected_bytes
    length = int(head.length or 0)
    if not body.complete and length <= limit:
        # The decision needs the body, so the agent has to send it now.
        if b"expect" in head.read:
            request.send_continue()
        request.body_partly_read = True
    try:
        raw = await read_whole(body, length, limit, limits.inspected_seconds, lease)
    except TooLarge:
        raise Malformed(
            f"the body is larger than {limit} bytes, so it can't be inspected"
        ) from None
    except BodyTooSlow:
        raise Malformed("the body did not arrive in time") from None
    return raw, media


def body_media(head: RequestHead) -> str | None:
    """Return the media type of a body that has to be read; None if the head states none. Raises
    `Malformed` if the body has a content encoding such as gzip."""
    coding = head.one(b"content-encoding")
    if coding is not None and coding.lower() != b"identity":
        raise Malformed("the body is encoded, so it can't be inspected")
    media = head.one(b"content-type")
    return None if media is None else media.decode("latin-1")


def forwarded_request(
    request: HttpRequest,
    head: RequestHead,
    target: Target,
    body: bytes | None,
    *,
    readable: bool = False,
    upgrade: bool = False,
    trailers: bool = False,
) -> UpstreamRequest:
    """Return the request as the data source gets it. `body` is the whole body if it was read for
    the decision. With `readable`, the response must come whole and unencoded, so that the sidecar
    can read it. With `upgrade`, the request asks for WebSocket. With `trailers`, the body's
    trailers are sent too, unless `readable` or `upgrade` holds. Raises `BadTrailers` as
    `check_trailers` does."""
    stream = None
    if body is None:
        # The decision didn't need the body, so the agent is asked for it only now.
        if b"expect" in head.read:
            request.send_continue()
        # A body that is already complete leaves in one write with its head.
        if request.body.complete:
            body = request.body.take()
        else:
            body, stream = b"", request.body
    method, lines, length = request.method, head.lines, head.length
    if readable:
        # A response to HEAD has nothing to read. The agent still gets no body.
        method = "GET" if method == "HEAD" else method
        lines = _readable_lines(head, _CONDITIONS)
    chunked = length is None and b"transfer-encoding" in head.read
    if request.version == HTTP_2 and length is None and (body or stream is not None):
        chunked = True  # HTTP/2 frames a body of any length; HTTP/1 needs chunks
    if upgrade:
        lines += UPGRADE_LINES
    sent = UpstreamRequest(method, target.forwarded, lines, length, chunked, body, stream, upgrade)
    if trailers and not (readable or upgrade):
        return _with_trailers(request, head, sent)
    return sent


def check_trailers(request: HttpRequest, head: RequestHead) -> None:
    """Raise `BadTrailers` if the request announces trailers that may not be forwarded, or if the
    part of the body that has arrived contains such trailers."""
    said = _trailer_head(head)
    said.announcement()
    if request.body.complete:
        said.lines(request.body.trailers)


def _with_trailers(
    request: HttpRequest, head: RequestHead, sent: UpstreamRequest
) -> UpstreamRequest:
    lines = sent.lines
    # An agent of HTTP/1.0 would get no trailers, so none are welcome.
    if not request.http10 and welcomes_trailers(head.read.get(b"te", ())):
        lines += _WELCOME_LINES
    if not sent.chunked:
        return sent._replace(lines=lines)
    said = _trailer_head(head)
    lines += said.announcement()
    if sent.stream is not None:
        return sent._replace(lines=lines, trailers=said)
    try:
        return sent._replace(lines=lines, trailer_lines=said.lines(request.body.trailers))
    except BadTrailers as error:
        # They came after `check_trailers`, while the request was decided. So the exchange fails as
        # it would had they come later still.
        request.body.reject(error)
        return sent._replace(lines=lines, body=b"", stream=request.body, trailers=said)


def _trailer_head(head: RequestHead) -> TrailerHead:
    return TrailerHead(head.read.get(b"trailer", ()), head.read.get(b"connection", ()))


def lookup_request(head: RequestHead, target: str, body: bytes | None = None) -> UpstreamRequest:
    """Return a GET for `target` or, with a body, a POST of it, which the sidecar sends on its own
    account, with the agent's credentials and no other field of `head` that would change the
    response. The body has the type of the agent's, JSON unless it is of gRPC."""
    lines = _readable_lines(head, _CONDITIONS | _BODY_FIELDS)
    if body is None:
        return UpstreamRequest("GET", target, lines)
    called = any(map(is_grpc_type, head.read.get(b"content-type", ())))
    lines += _GRPC_LINE if called else _JSON_LINE
    return UpstreamRequest("POST", target, lines).with_body(body)


def _readable_lines(head: RequestHead, without: frozenset[bytes]) -> bytes:
    fields = [field for field in head if field[0].lower() not in without]
    return encode_fields([*fields, _IDENTITY])
