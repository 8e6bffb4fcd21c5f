"""Relays the data source's response to the agent, byte for byte and as it arrives. Nothing is read
that the agent hasn't room for: a slow agent slows the data source, and costs no memory.

Knows heads and bodies. Of a decision it knows only the header fields that name its event.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from policies.ground.errors import UpstreamFailed
from sidecar.http.server.request import HttpRequest
from sidecar.http.server.response import ResponseSent
from sidecar.protocols.messages import FetchedResponse
from sidecar.proxy.local_response import Fields
from sidecar.proxy.messages.sse import FilteredStream, is_event_stream
from sidecar.proxy.upstream.response import UpstreamResponse

# A response with this status may not state a length (RFC 9110 section 8.6).
_NO_CONTENT = 204


@dataclass(slots=True)
class RelayedResponse:
    """What the agent got of a response: the status, the number of bytes of the body and their
    SHA-256, and how many documents were left out. `outcome` is how it ended, if that is known
    already; `retries` is how many times the request was sent again."""

    status: int = 0
    size: int = 0
    started: bool = False
    withheld: int = 0
    retries: int = 0
    outcome: str | None = None
    _digest: Any = None
    _sha256: str | None = None

    def count(self, data: bytes) -> None:
        self.size += len(data)
        if self._digest is None:
            self._digest = hashlib.sha256(data)
        else:
            self._digest.update(data)

    def record_tunnel(self, outcome: str, size: int, sha256: str) -> None:
        """Sets the result all at once, for bytes that were passed through unread."""
        self.outcome, self.size, self._sha256 = outcome, size, sha256

    @property
    def sha256(self) -> str:
        """The SHA-256 of the body, in hex."""
        if self._sha256 is not None:
            return self._sha256
        digest: str = (self._digest or hashlib.sha256()).hexdigest()
        return digest


async def relay(
    request: HttpRequest,
    response: UpstreamResponse,
    event: Fields,
    relayed: RelayedResponse,
    events: FilteredStream | None = None,
) -> ResponseSent:
    """Writes `response` to the agent; of a stream of `events`, only what the filter lets through.
    Raises `UpstreamFailed` if the data source breaks off, `ConnectionError` if the agent does."""
    if events is not None:
        # The filter leaves bytes out, so the length that the data source stated is wrong.
        response.length = None
    empty = response.empty or request.method == "HEAD"
    http10 = request.http10
    # HTTP/1.0 has no chunks, so the end of the connection is the end of the body.
    ends_by_close = response.length is None and http10 and not empty
    chunked = response.length is None and not http10 and not empty
    keep_alive = request.keep_alive and not ends_by_close
    head = _head(response, event, chunked=chunked, keep_alive=keep_alive, http10=http10)
    relayed.status = response.status
    relayed.retries = response.retries
    relayed.started = True
    if empty:
        request.start_response(head)
        return ResponseSent(keep_alive=keep_alive, status=response.status)
    whole = None if events is not None else response.read_now()
    if whole is not None:
        # The usual case: a response that arrived in one piece leaves in one piece.
        relayed.count(whole)
        request.start_response(head + (_chunk(whole, last=True) if chunked else whole))
        if request.congested:
            await request.drain()
        return ResponseSent(keep_alive=keep_alive, status=response.status)
    try:
        await _stream(request, response, head, relayed, events, chunked=chunked)
    except UpstreamFailed:
        if ends_by_close:
            # An orderly end of the connection would look like the end of the body.
            request.reset()
        raise
    return ResponseSent(keep_alive=keep_alive, status=response.status)


async def _stream(
    request: HttpRequest,
    response: UpstreamResponse,
    head: bytes,
    relayed: RelayedResponse,
    events: FilteredStream | None,
    *,
    chunked: bool,
) -> None:
    if is_event_stream(response.fields):
        # An event stream has no end of its own, so an agent that half-closes isn't waiting for one.
        request.end_on_client_close()
    # The body may take long, so the agent gets the head at once.
    request.start_response(head)
    while part := await response.next():
        if events is not None:
            part = await events.feed(part)
            relayed.withheld = events.withheld
            if not part:
                continue
        relayed.count(part)
        request.write(_chunk(part) if chunked else part)
        if request.congested:
            await request.drain()
    if chunked:
        # Only after the whole body: without it, the agent knows that the response broke off.
        request.write(b"0\r\n\r\n")


async def write_whole(
    request: HttpRequest, response: FetchedResponse, event: Fields
) -> ResponseSent:
    """Writes a response that was read whole, or composed by the sidecar."""
    status, reason, fields, body = response
    http10 = request.http10
    keep_alive = request.keep_alive
    lines = [b"HTTP/1.1 %d %b" % (status, reason.encode("utf-8", "surrogateescape"))]
    lines += [b"%b: %b" % each for each in fields]
    if status != _NO_CONTENT:
        lines.append(b"Content-Length: %d" % len(body))
    head = _encode_head(lines, event, keep_alive=keep_alive, http10=http10)
    request.start_response(head if request.method == "HEAD" else head + body)
    if request.congested:
        await request.drain()
    return ResponseSent(keep_alive=keep_alive, status=status)


def _head(
    response: UpstreamResponse, event: Fields, *, chunked: bool, keep_alive: bool, http10: bool
) -> bytes:
    reason = response.reason.encode("utf-8", "surrogateescape")
    lines = [b"HTTP/1.1 %d %b" % (response.status, reason)]
    lines += [b"%b: %b" % each for each in response.fields]
    if response.length is not None and response.status != _NO_CONTENT:
        lines.append(b"Content-Length: " + response.length)
    elif chunked:
        lines.append(b"Transfer-Encoding: chunked")
    return _encode_head(lines, event, keep_alive=keep_alive, http10=http10)


def _encode_head(lines: list[bytes], event: Fields, *, keep_alive: bool, http10: bool) -> bytes:
    lines += [b"%b: %b" % each for each in event]
    if not keep_alive:
        lines.append(b"Connection: close")
    elif http10:
        lines.append(b"Connection: keep-alive")
    head = b"\r\n".join(lines)
    # The parser refuses a line break inside a field, which would let the data source write header
    # fields of ours (response splitting). This holds whatever made the fields.
    if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1:
        raise UpstreamFailed("the data source's response has a line break inside a header field")
    return head + b"\r\n\r\n"


def _chunk(data: bytes, *, last: bool = False) -> bytes:
    end = b"\r\n0\r\n\r\n" if last else b"\r\n"
    # A chunk of no bytes would end the body.
    if not data:
        return b"0\r\n\r\n" if last else b""
    return b"%x\r\n%b%b" % (len(data), data, end)
