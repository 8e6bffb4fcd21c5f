"""Reads a request's head and, if the decision needs it, its body, and builds the request that goes
to the data source. Anything that could be read in two ways ends here, as `Malformed`.

Knows HTTP. Knows no policy and no data source.
"""

from policies.ground.errors import Malformed, TooLarge
from sidecar.http.body_budget import Lease
from sidecar.http.head_template import HeadTemplate, head_template
from sidecar.http.headers import RequestHead, encode_fields, sort_request_fields
from sidecar.http.request_body import BodyTooSlow, read_whole
from sidecar.http.request_target import Target
from sidecar.http.server.http2_refusal import REASON
from sidecar.http.server.request import HttpRequest
from sidecar.http.trailers import BadTrailers, TrailerHead, welcomes_trailers
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages.framing import Tunnelling, check_frame
from sidecar.proxy.messages.upgrade import UPGRADE_LINES
from sidecar.proxy.upstream.client import UpstreamRequest

# Fields that could make a response partial, empty or encoded. They are left out where the sidecar
# has to read all of it.
_CONDITIONS = frozenset(
    (
        b"accept-encoding",
        b"range",
        b"if-range",
        b"if-match",
        b"if-none-match",
        b"if-modified-since",
        b"if-unmodified-since",
    )
)
_BODY_FIELDS = frozenset((b"accept", b"content-type", b"content-encoding", b"content-language"))
_IDENTITY = (b"Accept-Encoding", b"identity")
# `Connection` names it, since it is for the next hop alone (RFC 9110 section 10.1.4).
_WELCOME_LINES = b"Connection: TE\r\nTE: trailers\r\n"


def read_head(request: HttpRequest) -> RequestHead:
    """The head of a request. Raises `Malformed` unless its framing can be trusted.

    The head is kept as long as its request, since both the routing and the pipeline ask for it. It
    isn't kept any longer, because it holds credentials: of these, a template holds none.
    """
    if request.known:
        template: HeadTemplate = request.head
        return template.fill(request.raw_head)
    if request.fault:
        # What the parser says would echo the offending line, which may hold a credential.
        raise Malformed(REASON if request.http2 else "the request is not HTTP/1.1")
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
    """The body as sent, and its media type. Raises `Malformed` if no decision can be based on it
    (`protocols/RULES.md`, Bodies and Unreadable bodies), and `BodyBudgetExceeded` if `lease` can't
    grow that far."""
    media = body_media(head)
    body, limit = request.body, limits.inspected_bytes
    if not body.complete:
        # The decision needs the body, so the agent has to send it now.
        if b"expect" in head.read:
            request.send_continue()
        request.body_partly_read = True
    try:
        length = int(head.length or 0)
        raw = await read_whole(body, length, limit, limits.inspected_seconds, lease)
    except TooLarge:
        raise Malformed(
            f"the body is larger than {limit} bytes, so it can't be inspected"
        ) from None
    except BodyTooSlow:
        raise Malformed("the body did not arrive in time") from None
    return raw, media


def body_media(head: RequestHead) -> str | None:
    """The media type of a body that is read. Raises `Malformed` if the body is encoded."""
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
    """The request as the data source gets it. `body` is the whole body if it was read for the
    decision. With `readable`, the response must come whole and unencoded, so that the sidecar can
    read it. With `upgrade`, it asks for WebSocket. With `trailers`, those of its body are sent too,
    unless one of the former holds. Raises `BadTrailers` as `check_trailers` does."""
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
    if upgrade:
        lines += UPGRADE_LINES
    sent = UpstreamRequest(method, target.forwarded, lines, length, chunked, body, stream, upgrade)
    if trailers and not (readable or upgrade):
        return _with_trailers(request, head, sent)
    return sent


def check_trailers(request: HttpRequest, head: RequestHead) -> None:
    """Raises `BadTrailers` if the request announces trailers that may not be forwarded, or has
    them, as far as it has arrived."""
    said = _trailer_head(head)
    said.announcement()
    if request.body.complete:
        said.last_chunk(request.body.trailers)


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
        return sent._replace(lines=lines, last_chunk=said.last_chunk(request.body.trailers))
    except BadTrailers as error:
        # They came after `check_trailers`, while the request was decided. So the exchange fails as
        # it would had they come later still.
        request.body.reject(error)
        return sent._replace(lines=lines, body=b"", stream=request.body, trailers=said)


def _trailer_head(head: RequestHead) -> TrailerHead:
    return TrailerHead(head.read.get(b"trailer", ()), head.read.get(b"connection", ()))


def lookup_request(head: RequestHead, target: str) -> UpstreamRequest:
    """A GET that the sidecar makes itself, with the agent's credentials and no other field that
    would change the response."""
    return UpstreamRequest("GET", target, _readable_lines(head, _CONDITIONS | _BODY_FIELDS))


def _readable_lines(head: RequestHead, without: frozenset[bytes]) -> bytes:
    fields = [field for field in head if field[0].lower() not in without]
    return encode_fields([*fields, _IDENTITY])
