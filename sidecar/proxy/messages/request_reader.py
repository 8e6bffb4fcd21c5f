"""From bytes to a question: a request's head and, where it is judged, its body. Whatever a reader
could take in two ways ends here, as `Malformed`.

Knows HTTP and JSON. Knows no policy and no data source.
"""

import asyncio

from aiohttp import EMPTY_PAYLOAD
from aiohttp.web_protocol import RequestPayloadError

from policies.ground.errors import Malformed
from sidecar.http.body_budget import Lease
from sidecar.http.headers import RequestHead, encode_fields, sort_request_fields
from sidecar.http.request_target import Target
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages.framing import check_frame
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.messages.upgrade import asks
from sidecar.proxy.upstream.client import UpstreamRequest

# What would make an answer that must be read partial, or none.
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
_OF_A_BODY = frozenset((b"accept", b"content-type", b"content-encoding", b"content-language"))
_IDENTITY = (b"Accept-Encoding", b"identity")


def read_head(request: AgentRequest) -> RequestHead:
    """The head of a request whose frame can be trusted; `Malformed` for any other.

    It is kept with its request, whose reader before the source is known and whose gate both ask,
    and not for the next one: credentials stand in it."""
    if request.fault is not None:
        raise request.fault
    if request.head is None:
        head = sort_request_fields(request.fields)
        check_frame(request.method, request.version, head)
        request.head = head
    return request.head


async def read_body(
    request: AgentRequest, head: RequestHead, limits: ProxyLimits, lease: Lease
) -> tuple[bytes, str | None]:
    """The body as sent, and its media type; `Malformed` where it can't be judged (data-sources.md
    R3, R6), `BodyBudgetExceeded` where `lease` can't grow that far."""
    coding = head.one(b"content-encoding")
    if coding is not None and coding.lower() != b"identity":
        raise Malformed("the body is encoded, so it can't be judged")
    media = head.one(b"content-type")
    length = head.length
    limit = limits.inspected_bytes
    if length is not None and int(length) > limit:
        raise Malformed(f"the body is larger than {limit} bytes, so it can't be judged")
    raw = await _whole(request, head, limits, lease)
    return raw, None if media is None else media.decode("latin-1")


async def _whole(
    request: AgentRequest, head: RequestHead, limits: ProxyLimits, lease: Lease
) -> bytes:
    body = request.body
    if body.is_eof() and body.exception() is None:
        raw = body.read_nowait(-1)
        if len(raw) > limits.inspected_bytes:
            raise Malformed("the body is too large to be judged")
        lease.grow(len(raw))
        return raw
    if b"expect" in head.read:
        request.welcome_body()
    request.partly_read = True
    whole = bytearray()
    try:
        async with asyncio.timeout(limits.inspected_seconds):
            while part := await body.readany():
                if len(whole) + len(part) > limits.inspected_bytes:
                    raise Malformed("the body is too large to be judged")
                lease.grow(len(part))
                whole += part
    except TimeoutError:
        raise Malformed("the body did not arrive in time") from None
    except RequestPayloadError as error:
        raise Malformed("the body's framing is broken") from error
    return bytes(whole)


def forwarded(
    request: AgentRequest, head: RequestHead, target: Target, body: bytes | None, *, readable: bool
) -> UpstreamRequest:
    """The request as the data source gets it. `body` is what was read of it to be judged. With
    `readable` it is asked so that its answer can be read here: whole, and not encoded."""
    stream = None
    if body is None:
        body = b""
        if request.body is not EMPTY_PAYLOAD:
            if request.body.is_eof() and request.body.exception() is None:
                body = request.body.read_nowait(-1)
            else:
                stream = request.body
    method, lines, length = request.method, head.lines, head.length
    if readable:
        # To a HEAD there would be nothing to read; the agent still gets none of it.
        method = "GET" if method == "HEAD" else method
        lines = _readable_lines(head, _CONDITIONS)
    chunked = length is None and b"transfer-encoding" in head.read
    return UpstreamRequest(
        method, target.forwarded, lines, length, chunked, body, stream, asks(head)
    )


def lookup(head: RequestHead, target: str) -> UpstreamRequest:
    """A GET of the sidecar's own in the agent's name: with its credentials, and no more."""
    return UpstreamRequest("GET", target, _readable_lines(head, _CONDITIONS | _OF_A_BODY))


def _readable_lines(head: RequestHead, without: frozenset[bytes]) -> bytes:
    fields = [field for field in head.forward if field[0].lower() not in without]
    return encode_fields([*fields, _IDENTITY])
