"""Relays the data source's response to the agent, byte for byte and as it arrives. Nothing is read
while the agent has no room for it: a slow agent slows the data source down, and costs no memory.

Knows heads and bodies. Of a decision it knows only the header fields that name its event.
"""

import hashlib
from contextlib import nullcontext
from typing import Any

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.headers import encode_fields
from sidecar.http.messages.chunks import LAST_CHUNK, encode_chunk
from sidecar.http.server.request import HttpRequest, ResponseSent
from sidecar.protocols.protocol import FetchedResponse
from sidecar.proxy.local_response import Fields
from sidecar.proxy.messages.sse import FilteredStream, is_event_stream
from sidecar.proxy.upstream.exchange import UpstreamResponse

# A response with this status may not state a length (RFC 9110 section 8.6).
_NO_CONTENT = 204


class RelayedResponse:
    """A record of the response as the agent got it, filled in while it is relayed. The lineage is
    made from it."""

    status = 0
    size = 0
    """The number of bytes of the body so far."""
    started = False
    withheld = 0
    """The number of documents that were filtered out of the response."""
    retries = 0
    """The number of times that the request was sent to the data source again."""
    outcome: str | None = None
    """The outcome for the lineage, if it is known before the relaying ends; otherwise None."""
    _digest: Any = None
    _sha256: str | None = None

    def begin(self, response: UpstreamResponse) -> None:
        """Note that the agent begins to get `response`: its status, and how often the request was
        sent again."""
        self.status, self.retries, self.started = response.message.status, response.retries, True

    def count(self, data: bytes) -> None:
        self.size += len(data)
        if self._digest is None:
            self._digest = hashlib.sha256(data)
        else:
            self._digest.update(data)

    def record_tunnel(self, outcome: str, size: int, sha256: str) -> None:
        """Set the result of a connection whose bytes were passed through unread, all at once."""
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
    *,
    refused_upgrade: bool = False,
) -> ResponseSent:
    """Write `response` to the agent. With `events`, write only the parts of the event stream that
    the filter lets through. `event` are the header fields about the decision; `relayed` is filled
    in. `refused_upgrade` says that the agent asked to switch protocols and this response is not a
    101. Raises `UpstreamFailed` if the data source breaks off, `ConnectionError` if the agent
    does."""
    message = response.message
    status, body, empty = message.status, message.body, message.empty or request.method == "HEAD"
    # The filter leaves bytes out, so the length that the data source stated is wrong.
    length = message.length if events is None else None
    http10 = request.http10
    chunked = not (length is not None or empty or http10)
    # HTTP/1.0 has no chunks, so the end of the connection is the end of the body.
    ends_by_close = length is None and http10 and not empty
    # What follows a refused upgrade may not be HTTP, so the connection ends (RFC 9931).
    keep_alive = request.keep_alive and not ends_by_close and not refused_upgrade
    framing = b"Transfer-Encoding: chunked\r\n" if chunked else b""
    if length is not None and status != _NO_CONTENT:
        framing = b"Content-Length: %b\r\n" % length
    if chunked and body.trailers is not None and events is None:
        framing += message.trailer_head.announcement()
    # No field contains a line break, which would let the data source write fields of ours (response
    # splitting): the lines were read one by one.
    lines = message.lines + framing
    head = _head(status, message.reason, lines, event, keep_alive=keep_alive, http10=http10)
    relayed.begin(response)
    sent = ResponseSent(keep_alive=keep_alive, status=status)
    if empty:
        request.start_response(head)
    elif body.complete and events is None:
        # The usual case: a response that arrived in one piece leaves in one piece.
        whole = body.take()
        relayed.count(whole)
        if chunked:
            whole = encode_chunk(whole) + _last_chunk(response)
        request.start_response(head + whole)
        if request.congested:
            await request.drain()
    else:
        # The body may take long, so the agent gets the head at once.
        request.start_response(head)
        try:
            await _stream(request, response, relayed, events, chunked=chunked)
        except UpstreamFailed:
            if ends_by_close:
                # An orderly end of the connection would look like the end of the body.
                request.reset()
            raise
    return sent


async def _stream(
    request: HttpRequest,
    response: UpstreamResponse,
    relayed: RelayedResponse,
    events: FilteredStream | None,
    *,
    chunked: bool,
) -> None:
    if is_event_stream(response.message.fields):
        # An event stream has no end of its own, so an agent that half-closes isn't waiting for one.
        request.end_on_client_close()

    def write(part: bytes) -> None:
        relayed.count(part)
        request.write(encode_chunk(part) if chunked else part)

    def insert(part: bytes) -> bool:
        if request.congested:
            return False
        write(part)
        return True

    with nullcontext() if events is None else events.open(insert):
        while part := await response.next():
            if events is not None:
                part = await events.feed(part)
                relayed.withheld = events.withheld
                if not part:
                    continue
            write(part)
            if request.congested:
                await request.drain()
    if chunked:
        # Only after the whole body: without it, the agent knows that the response broke off.
        request.write(LAST_CHUNK if events is not None else _last_chunk(response))


def _last_chunk(response: UpstreamResponse) -> bytes:
    message = response.message
    trailers = message.body.trailers
    return LAST_CHUNK if trailers is None else message.trailer_head.last_chunk(trailers)


async def write_whole(
    request: HttpRequest, response: FetchedResponse, event: Fields
) -> ResponseSent:
    """Write to the agent a response that was read whole, or that the sidecar composed. Raises
    `UpstreamFailed` if its header fields can't be encoded."""
    status, reason, fields, body = response
    keep_alive, http10 = request.keep_alive, request.http10
    try:
        lines = encode_fields(fields)
    except Malformed as error:
        raise UpstreamFailed("the data source's response can't be passed on") from error
    if status != _NO_CONTENT:
        lines += b"Content-Length: %d\r\n" % len(body)
    encoded_reason = reason.encode("utf-8", "surrogateescape")
    head = _head(status, encoded_reason, lines, event, keep_alive=keep_alive, http10=http10)
    request.start_response(head if request.method == "HEAD" else head + body)
    if request.congested:
        await request.drain()
    return ResponseSent(keep_alive=keep_alive, status=status)


def _head(
    status: int, reason: bytes, lines: bytes, event: Fields, *, keep_alive: bool, http10: bool
) -> bytes:
    end = b"\r\n"
    if not keep_alive:
        end = b"Connection: close\r\n\r\n"
    elif http10:
        end = b"Connection: keep-alive\r\n\r\n"
    own = b"".join([b"%b: %b\r\n" % field for field in event])
    return b"HTTP/1.1 %d %b\r\n%b%b%b" % (status, reason, lines, own, end)
