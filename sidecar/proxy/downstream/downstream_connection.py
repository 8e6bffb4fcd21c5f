"""One connection from an agent, and the requests that arrive on it, served one after the other.

Builds on the HTTP server that all the sidecar's ports share (`sidecar.http.connection`) and adds
what a proxy needs:

    malformed requests    reach the handler like any other, so that they are recorded
    half-closed agents    still get their response
    agents that leave     cancel their request; the request to the data source is broken off
    refused tunnels       nothing that follows a refused CONNECT or Upgrade is read

`fast_connection.py` adds the fast path. Knows connections and messages. Knows nothing of what a
request asks for. Over 250 lines, because the states of one connection belong together.
"""

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial
from typing import Any

from aiohttp import StreamReader, hdrs
from aiohttp.http import RawRequestMessage
from aiohttp.web_server import Server

from policies.ground.errors import SluiceError
from sidecar.http.connection import HttpConnection
from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.local_response import LocalResponse, ResponseSent
from sidecar.proxy.messages.request import AgentRequest, ConnectionFactory, Handler
from sidecar.proxy.proxy_metrics import Flow

log = logging.getLogger(__name__)


class DownstreamConnection(HttpConnection):
    """One connection from an agent. `handler` answers each request."""

    __slots__ = (
        "_answers_offer",
        "_bytes_to_boundary",
        "_flow",
        "_grace",
        "_half_close_allowed",
        "_half_closed",
        "_handler",
        "_limits",
        "_offer",
        "_reading_stopped",
        "_response_started",
    )

    def __init__(self, manager: Server, handler: Handler, limits: ProxyLimits, flow: Flow) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=None,
            # Bodies stay as sent: the data source must get exactly what was judged.
            auto_decompress=False,
            keepalive_timeout=limits.idle_seconds,
            max_line_size=limits.line_bytes,
            max_field_size=limits.field_bytes,
            max_headers=limits.fields,
            read_bufsize=limits.buffer_bytes,
        )
        self._handler = handler
        self._limits = limits
        self._flow = flow
        self._half_closed = False
        self._offer: tuple[RawRequestMessage, StreamReader] | None = None
        """The last request, if it offers to switch to a protocol other than WebSocket. The offer is
        ignored (RFC 9110 section 7.8). Bytes that follow it before its response may belong to the
        offered protocol, so they are never read as a request (RFC 9931)."""
        self._answers_offer = False
        self._reading_stopped = False
        """Set when what follows may not be HTTP: nothing more is read."""
        self._grace: asyncio.TimerHandle | None = None
        self._response_started = False
        self._half_close_allowed = True
        self._bytes_to_boundary: int | None = 0
        """How many bytes the parser still needs to complete a message; None if unknown."""

    @property
    def ending(self) -> bool:
        """Whether this is the last request: the agent has half-closed and no request is queued, the
        sidecar is shutting down, or what follows may not be HTTP."""
        if self._close or self._reading_stopped or (self._half_closed and not self._messages):
            return True
        # aiohttp's parser stops after an offer to upgrade, and drops whatever came with it.
        return self._answers_offer and self._bytes_to_boundary != 0

    # -------------------------------------------------------------------------------------- reading

    def data_received(self, data: bytes) -> None:
        if self._reading_stopped:
            return
        if not data:
            # Nothing arrived: aiohttp has its parser continue with what it held back while reading
            # was paused. Those bytes were counted when they came.
            self._parse(data)
            return
        self._flow.received += len(data)
        if self._offer is not None and self._offer[1].is_eof():
            # These bytes may be meant for the protocol that was offered: don't read them.
            self._reading_stopped = True
            return
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        self._feed_parser(data)

    def _feed_parser(self, data: bytes, buffered: bytes = b"") -> None:
        """Hands `buffered`, then `data`, to the parser. The two stay separate: when a piece holds a
        malformed message, the parser drops the sound messages before it in the same piece."""
        begins = self._bytes_to_boundary == 0 and not self._messages
        for piece in (buffered, data):
            if piece:
                self._parse(piece)
        data = buffered + data if buffered else data
        if begins:
            self._bytes_to_boundary = self._message_size(data)
        expected = self._bytes_to_boundary
        # After more than one message's bytes, only the parser knows where the last message ends.
        if expected is not None:
            self._bytes_to_boundary = expected - len(data) if expected >= len(data) else None

    def _parse(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages and not self._upgraded:
            message, body = self._messages[-1]
            if isinstance(message, RawRequestMessage) and message.upgrade:
                self._offer = message, body

    def _message_size(self, data: bytes) -> int | None:
        """The size in bytes of the message that starts `data`; None if it can't be computed."""
        end = data.find(b"\r\n\r\n") + 4
        if len(self._messages) != 1 or end < 4:
            return None
        message = self._messages[0][0]
        # Only a parser can tell where a body's chunks, or another protocol, end.
        if not isinstance(message, RawRequestMessage) or message.chunked or self._upgraded:
            return None
        return end + int(message.headers.get(hdrs.CONTENT_LENGTH, 0))

    def stop_reading(self) -> None:
        self._reading_stopped = True
        # aiohttp keeps what followed the head of an upgrade for the next protocol. Nothing may read
        # it.
        self._upgraded = False
        self._message_tail = b""
        self.close()

    # -------------------------------------------------------------------------------------- writing

    def write(self, data: bytes) -> None:
        super().write(data)
        self._flow.sent += len(data)

    async def drain(self) -> None:
        """Waits until the agent has taken enough of what was written. Cuts off an agent that takes
        nothing for `stream_idle_seconds`, and raises `ConnectionResetError`."""
        # Without a limit, such an agent would hold its connection to the data source forever.
        try:
            async with asyncio.timeout(self._limits.stream_idle_seconds):
                await self._drain_helper()
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()
            seconds = self._limits.stream_idle_seconds
            raise ConnectionResetError(
                f"the agent took nothing of its response for {seconds:g} s"
            ) from None

    def on_response_started(self) -> None:
        # From now on a failing write shows that the agent is gone, so no timer is needed.
        self._response_started = True
        self._cancel_grace()

    # -------------------------------------------------------------------------------------- the end

    def end_on_agent_close(self) -> None:
        self._half_close_allowed = False

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio accepts a bool
        """Keeps the connection if a response is still owed: an agent may close its sending side and
        wait for it. An agent that is gone looks the same until something is written to it, so the
        wait is limited."""
        ended = all(map(_has_ended, self._pending_bodies()))
        if not (self._owes_response() and self._half_close_allowed and ended):
            return False
        self._half_closed = True
        if not self._response_started:
            seconds = self._limits.half_close_seconds
            self._grace = self._loop.call_later(seconds, self._abort_after_grace)
        return True

    def _owes_response(self) -> bool:
        return bool(self._pending_bodies())

    def connection_lost(self, exc: BaseException | None) -> None:
        self._cancel_grace()
        request: Any = self._current_request
        if request is not None and not (request.response_started or _has_ended(request.body)):
            log.info("an agent hung up in the middle of its request body")
        super().connection_lost(exc)

    def _cancel_grace(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def _abort_after_grace(self) -> None:
        self._grace = None
        if self.transport is not None:
            self.transport.abort()

    def tunnel(self, buffer_bytes: int) -> "tuple[BufferedConnection, ConnectionFactory]":
        """Hands the connection over to another protocol, with the bytes that followed the request.
        This object still learns when the connection is lost. Raises `ConnectionResetError` if the
        agent is already gone."""
        tail, self._message_tail = self._message_tail, b""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the agent closed the connection")
        self._cancel_grace()
        agent = BufferedConnection(buffer_bytes, self.connection_lost).adopt(
            transport, tail, ended=self._half_closed
        )
        # Reading was paused because requests queued up. There will be no more requests.
        if self._buffer_paused:
            self._buffer_paused = False
            transport.resume_reading()
        assert self._manager is not None
        return agent, partial(
            DownstreamConnection, self._manager, limits=self._limits, flow=self._flow
        )

    # ----------------------------------------------------------------------------------- responding

    async def _respond(self, message: object, body: StreamReader) -> bool:
        """Answers one request. Returns whether the connection may carry another."""
        request = AgentRequest(message, body, self)
        self._request_in_progress = True
        self._answers_offer = self._offer is not None and self._offer[0] is message
        self._current_request = request  # type: ignore[assignment]  # aiohttp calls its `_cancel`
        return await self._send_response(request, self._handler(request))

    async def _send_response(
        self, request: AgentRequest, responding: Awaitable[LocalResponse | ResponseSent]
    ) -> bool:
        body = request.body
        try:
            response = await self._run_handler(request, responding)
            if isinstance(response, LocalResponse):
                keep = request.keep_alive and not response.close
                omit_body = request.method == "HEAD"
                request.start_response(
                    response.encode(keep_alive=keep, omit_body=omit_body, http10=request.http10)
                )
            else:
                keep = response.keep_alive
            # A refused request may still be sending. Its agent couldn't read the refusal otherwise.
            drained = await self._drain_body(body, self._limits.lingering_seconds)
            return drained and keep and not self.ending
        except ConnectionError:
            return False
        finally:
            self._request_finished()

    async def _run_handler(
        self, request: AgentRequest, responding: Awaitable[LocalResponse | ResponseSent]
    ) -> LocalResponse | ResponseSent:
        try:
            return await responding
        except Exception:
            # A bug of ours: the details go to the log, and none of them to the agent.
            log.exception("a proxied request failed")
            if request.response_started:
                return ResponseSent(keep_alive=False)
            error = SluiceError("the proxy failed; see the sidecar's log")
            return LocalResponse.of_error(error, close=True)

    def _request_finished(self) -> None:
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        self._cancel_grace()
        if self._answers_offer:
            self._offer, self._answers_offer = None, False
        self._response_started = False
        self._half_close_allowed = True
        self._current_request = None
        self._request_in_progress = False
        # aiohttp's shutdown waits on this for the request under way.
        if self._handler_waiter is not None and not self._handler_waiter.done():
            self._handler_waiter.set_result(None)


def _has_ended(body: StreamReader) -> bool:
    """Whether no more of the body will come: it is complete, or its framing is broken."""
    return body.is_eof() or body.exception() is not None
