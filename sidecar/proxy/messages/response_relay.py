"""Relays the data source's response to the agent, byte for byte and as it arrives. Nothing is read
while the agent has no room for it: a slow agent slows the data source down, and costs no memory.

Knows heads and bodies. Of a decision it knows only the header fields that name its event.
"""

import hashlib
from contextlib import nullcontext
from typing import Any

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.http.headers import ResponseHead, encode_fields
from sidecar.http.messages.chunks import CallTrailers
from sidecar.http.messages.request_parser import HTTP_2
from sidecar.http.server.request import HttpRequest, ResponseSent
from sidecar.protocols.protocol import FetchedResponse
from sidecar.proxy.local_response import Fields
from sidecar.proxy.messages.sse import FilteredStream, is_event_stream
from sidecar.proxy.upstream.exchange import UpstreamResponse


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
    body, empty = message.body, message.empty or request.method == "HEAD"
    # The filter leaves bytes out, so the length that the data source stated is wrong.
    length = message.length if events is None else None
    announced = b""
    if body.trailers is not None and events is None:
        announced = message.trailer_head.announcement()
    # No field contains a line break, which would let the data source write fields of ours (response
    # splitting): the lines were read one by one.
    own = _own_lines(event)
    head = ResponseHead(message.status, message.reason, message.lines, length, own, announced)
    relayed.begin(response)
    # The usual case: a response that arrived in one piece leaves in one piece.
    if body.complete and events is None and not (empty or refused_upgrade):
        whole = body.take()
        relayed.count(whole)
        request.respond(head, whole, _trailers(request, response))
        if request.congested:
            await request.drain()
    else:
        # The body may take long, so the agent gets the head at once. What follows a refused upgrade
        # may not be HTTP, so the connection ends (RFC 9931).
        request.begin(head, empty=empty, last=refused_upgrade)
        if not empty:
            await _stream(request, response, relayed, events)
    return ResponseSent(keep_alive=request.kept, status=message.status)


async def _stream(
    request: HttpRequest,
    response: UpstreamResponse,
    relayed: RelayedResponse,
    events: FilteredStream | None,
) -> None:
    if is_event_stream(response.message.fields):
        # An event stream has no end of its own, so an agent that half-closes isn't waiting for one.
        request.end_on_client_close()

    def send(part: bytes) -> None:
        relayed.count(part)
        request.send(part)

    def insert(part: bytes) -> bool:
        if request.congested:
            return False
        send(part)
        return True

    try:
        with nullcontext() if events is None else events.open(insert):
            while part := await response.next():
                if events is not None:
                    part = await events.feed(part)
                    relayed.withheld = events.withheld
                    if not part:
                        continue
                send(part)
                if request.congested:
                    await request.drain()
        # Only after the whole body: without it, the agent knows that the response broke off.
        request.end(_trailers(request, response) if events is None else b"")
    except UpstreamFailed:
        if request.ends_by_close:
            # An orderly end of the connection would look like the end of the body.
            request.reset()
        raise


def _trailers(request: HttpRequest, response: UpstreamResponse) -> bytes:
    """Return the lines of the trailers to forward. Those of gRPC go to clients of HTTP/2 alone: it
    has no other."""
    of_call = isinstance(response.message.trailer_head, CallTrailers)
    return b"" if of_call and request.version != HTTP_2 else response.trailers()


async def write_whole(
    request: HttpRequest, response: FetchedResponse, event: Fields
) -> ResponseSent:
    """Write to the agent a response that was read whole, or that the sidecar composed. Raises
    `UpstreamFailed` if its header fields can't be encoded."""
    status, reason, fields, body, trailers = response
    try:
        lines = encode_fields(fields)
    except Malformed as error:
        raise UpstreamFailed("the data source's response can't be passed on") from error
    encoded_reason = reason.encode("utf-8", "surrogateescape")
    # Trailers follow a body without a length.
    length = None if trailers else b"%d" % len(body)
    head = ResponseHead(status, encoded_reason, lines, length, _own_lines(event))
    if request.method == "HEAD":
        request.begin(head, empty=True)
    else:
        request.respond(head, body, trailers)
    if request.congested:
        await request.drain()
    return ResponseSent(keep_alive=request.kept, status=status)


def _own_lines(event: Fields) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in event])
