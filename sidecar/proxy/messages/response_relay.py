"""Passes the data source's answer on to the agent, byte for byte and as it comes: what was not
taken is not read, so a slow agent costs a slow data source, and no memory.

Knows heads and bodies. Knows nothing of decisions but that fields tell of their event.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from policies.ground.errors import UpstreamFailed
from sidecar.proxy.local_response import Fields, ResponseSent
from sidecar.proxy.messages.filtered_response import FilteredStream
from sidecar.proxy.messages.request import AgentRequest
from sidecar.proxy.messages.sse import is_event_stream
from sidecar.proxy.upstream.response import UpstreamResponse

_NO_CONTENT = 204


@dataclass(slots=True)
class RelayedResponse:
    """What was handed on of an answer: its status as the agent got it, the bytes of its body, and
    their SHA-256, how many documents were left out, how often it was asked again, and how it ended
    where that is known already."""

    status: int = 0
    size: int = 0
    begun: bool = False
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

    def carried(self, outcome: str, size: int, sha256: str) -> None:
        """All of it at once, of what passed unread."""
        self.outcome, self.size, self._sha256 = outcome, size, sha256

    @property
    def sha256(self) -> str:
        """In hex."""
        if self._sha256 is not None:
            return self._sha256
        digest: str = (self._digest or hashlib.sha256()).hexdigest()
        return digest


async def relay(
    request: AgentRequest,
    exchange: UpstreamResponse,
    event: Fields,
    tally: RelayedResponse,
    events: FilteredStream | None = None,
) -> ResponseSent:
    """Writes the answer of `exchange`; of one that comes as `events`, what they let pass. Raises
    `UpstreamFailed` where it breaks off on the way, and `ConnectionError` where the agent does."""
    if events is not None:
        exchange.length = None
    empty = exchange.empty or request.method == "HEAD"
    old = request.old
    # HTTP/1.0 has no chunks: there the end of the connection is the end of the body.
    delimited = exchange.length is None and old and not empty
    chunked = exchange.length is None and not old and not empty
    keep_alive = request.keep_alive and not delimited
    head = _head(exchange, event, chunked=chunked, keep_alive=keep_alive, old=old)
    tally.status = exchange.status
    tally.retries = exchange.retries
    tally.begun = True
    if empty:
        request.begin(head)
        return ResponseSent(keep_alive=keep_alive, status=exchange.status)
    whole = None if events is not None else exchange.at_hand()
    if whole is not None:
        # The usual case: an answer that came in one piece goes on in one piece.
        tally.count(whole)
        request.begin(head + (_chunk(whole, last=True) if chunked else whole))
        if request.congested:
            await request.drain()
        return ResponseSent(keep_alive=keep_alive, status=exchange.status)
    try:
        await _stream(request, exchange, head, tally, events, chunked=chunked)
    except UpstreamFailed:
        if delimited:
            # An orderly end would look like the end of the body.
            request.reset()
        raise
    return ResponseSent(keep_alive=keep_alive, status=exchange.status)


async def _stream(
    request: AgentRequest,
    exchange: UpstreamResponse,
    head: bytes,
    tally: RelayedResponse,
    events: FilteredStream | None,
    *,
    chunked: bool,
) -> None:
    if is_event_stream(exchange.fields):
        request.until_agent_closes()
    # A data source may think long between head and body: the agent gets the head when it is there.
    request.begin(head)
    while part := await exchange.next():
        if events is not None:
            part = await events.feed(part)
            tally.withheld = events.withheld
            if not part:
                continue
        tally.count(part)
        request.write(_chunk(part) if chunked else part)
        if request.congested:
            await request.drain()
    if chunked:
        request.write(b"0\r\n\r\n")


async def write_whole(
    request: AgentRequest,
    status: int,
    reason: str,
    fields: list[tuple[bytes, bytes]],
    body: bytes,
    event: Fields,
) -> ResponseSent:
    """Writes an answer that was read whole, or put together here."""
    old = request.old
    keep_alive = request.keep_alive
    lines = [b"HTTP/1.1 %d %b" % (status, reason.encode("utf-8", "surrogateescape"))]
    lines += [b"%b: %b" % each for each in fields]
    if status != _NO_CONTENT:
        lines.append(b"Content-Length: %d" % len(body))
    head = _finished(lines, event, keep_alive=keep_alive, old=old)
    request.begin(head if request.method == "HEAD" else head + body)
    if request.congested:
        await request.drain()
    return ResponseSent(keep_alive=keep_alive, status=status)


def _head(
    exchange: UpstreamResponse, event: Fields, *, chunked: bool, keep_alive: bool, old: bool
) -> bytes:
    reason = exchange.reason.encode("utf-8", "surrogateescape")
    lines = [b"HTTP/1.1 %d %b" % (exchange.status, reason)]
    lines += [b"%b: %b" % each for each in exchange.fields]
    if exchange.length is not None and exchange.status != _NO_CONTENT:
        lines.append(b"Content-Length: " + exchange.length)
    elif chunked:
        lines.append(b"Transfer-Encoding: chunked")
    return _finished(lines, event, keep_alive=keep_alive, old=old)


def _finished(lines: list[bytes], event: Fields, *, keep_alive: bool, old: bool) -> bytes:
    lines += [b"%b: %b" % each for each in event]
    if not keep_alive:
        lines.append(b"Connection: close")
    elif old:
        lines.append(b"Connection: keep-alive")
    head = b"\r\n".join(lines)
    # The parser reads answers leniently. A line break inside a field would be one of ours.
    if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1:
        raise UpstreamFailed("the data source's answer has a line break inside a header field")
    return head + b"\r\n\r\n"


def _chunk(data: bytes, *, last: bool = False) -> bytes:
    end = b"\r\n0\r\n\r\n" if last else b"\r\n"
    if not data:
        return b"0\r\n\r\n" if last else b""
    return b"%x\r\n%b%b" % (len(data), data, end)
