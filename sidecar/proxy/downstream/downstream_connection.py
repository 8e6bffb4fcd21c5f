"""One connection of the agent's, and the requests that come on it.

Stands on the sidecar's own connection (`sidecar.http.connection`), and adds what a proxy must do.
A request
that can't be parsed reaches the same handler as any other, so that it is recorded. A half-closed
agent still gets its answer. An agent that goes away takes its request with it: what is upstream is
broken off. What follows a refused CONNECT or Upgrade is never read. Requests run in the
connection's own task, one after the other.

Knows connections and messages. Knows nothing of what is asked.
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
from sidecar.proxy.messages.request import AgentRequest, Handler, Within
from sidecar.proxy.pipeline.fast_path import BEGUN, LONG, FastPath
from sidecar.proxy.pipeline.fast_path_exchange import FastPathExchange
from sidecar.proxy.proxy_metrics import Flow

log = logging.getLogger(__name__)

HELD_SECONDS = 1.0
"""How long the rest of a message is waited for before its beginning goes the long way."""


class DownstreamConnection(HttpConnection):
    """One connection of the agent's, each of its requests answered by `handler`."""

    __slots__ = (
        "_ahead",
        "_answering",
        "_answers_offer",
        "_carries_on",
        "_flow",
        "_grace",
        "_half_closed",
        "_handler",
        "_held",
        "_held_until",
        "_limits",
        "_missing",
        "_offer",
        "_short_way",
        "_stopped",
        "_under_way",
        "_waited_for",
    )

    def __init__(
        self,
        manager: Server,
        handler: Handler,
        limits: ProxyLimits,
        flow: Flow,
        short_way: FastPath | None = None,
    ) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=None,
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
        """The last request, where it offers to change to a protocol other than WebSocket. The offer
        is ignored (RFC 9110 section 7.8), but bytes that follow it before its answer may belong to
        that protocol, and are never read as requests (RFC 9931)."""
        self._answers_offer = False
        self._stopped = False
        """Whether nothing more is read: what follows may not be HTTP."""
        self._grace: asyncio.TimerHandle | None = None
        self._answering = False
        self._waited_for = True
        self._short_way = short_way
        self._ahead: int | None = 0
        """How many bytes of a message the parser waits for; None where nobody can tell."""
        self._held: list[bytes] = []
        """A message of which the rest is waited for before anybody has seen it, as it came."""
        self._missing = 0
        """How many bytes of it are still to come."""
        self._held_until: asyncio.TimerHandle | None = None
        self._under_way: FastPathExchange | None = None
        self._carries_on = False
        """Whether it is to be answered on the long way."""

    @property
    def ending(self) -> bool:
        """Whether no request is answered after this one: the agent sends nothing more and nothing
        more of it waits, the sidecar stops, or what follows may not be HTTP."""
        if self._close or self._stopped or (self._half_closed and not self._messages):
            return True
        # aiohttp's parser stops behind an offer to upgrade, and drops what came with it.
        return self._answers_offer and self._ahead != 0

    # ------------------------------------------------------------------------------- the short way

    def data_received(self, data: bytes) -> None:
        if self._stopped:
            return
        if not data:
            # Nothing arrived: aiohttp has its parser go on with what it held back while reading
            # was paused. Those bytes were counted when they came.
            self._parse(data)
            return
        self._flow.received += len(data)
        if self._offer is not None and self._offer[1].is_eof():
            # It may be meant for the protocol that was offered: this connection ends unread.
            self._stopped = True
            return
        short_way = self._short_way
        # INVARIANT: while `_ahead` is 0, what comes next begins a message, for the parser too.
        if short_way is not None and self._ahead == 0 and not self._engaged():
            if len(data) < self._missing:
                # The deadline that began with the first of it stays.
                self._missing -= len(data)
                self._held.append(data)
                return
            what = self._offered(short_way, b"".join((*self._held, data)) if self._held else data)
            if what == BEGUN:
                self._let_go()
                self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
                return
            if what > 0:
                self._held, self._missing = [data], what
                self._held_until = self._loop.call_later(HELD_SECONDS, self._long)
                return
        self._long(data)

    def _offered(self, short_way: FastPath, data: bytes) -> int:
        try:
            return short_way.begin(self, data)
        except Exception:
            if self._under_way is not None:
                raise
            log.exception("the short way failed; the long way comes to the same and says so")
            return LONG

    def begun(self, under_way: FastPathExchange) -> None:
        self._under_way = under_way
        self._request_in_progress = True

    def tell(self, head: bytes, body: bytes) -> bool:
        transport = self.transport
        if transport is None or transport.is_closing():
            return False
        keep = not (self.ending or self._force_close)
        ending = b"\r\n" if keep else b"Connection: close\r\n\r\n"
        whole = b"%b%b%b" % (head, ending, body)
        self._flow.sent += len(whole)
        transport.write(whole)
        self._rested()
        if not keep:
            transport.close()
        elif self._messages:
            self._wake()
        return True

    def carry_on(self) -> None:
        self._carries_on = True
        self._wake()

    def _engaged(self) -> bool:
        """Whether what arrives has to wait, or is not to be read."""
        busy = self._request_in_progress or self._messages or self._half_closed
        return bool(busy or self._close or self._force_close or self._paused)

    def _long(self, data: bytes = b"") -> None:
        """Give it to the parser, after what was held. Not in one piece with that: where a fault
        follows in a piece, the parser forgets what was sound before it."""
        begins = self._ahead == 0 and not self._messages
        held = self._let_go()
        for piece in (held, data):
            if piece:
                self._parse(piece)
        data = held + data if held else data
        if begins:
            self._ahead = self._size(data)
        if self._ahead is not None:
            self._ahead = self._ahead - len(data) if self._ahead >= len(data) else None

    def _parse(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages and not self._upgraded:
            message, body = self._messages[-1]
            if isinstance(message, RawRequestMessage) and message.upgrade:
                self._offer = message, body

    def _size(self, data: bytes) -> int | None:
        """How many bytes the message has that `data` begins; None where it can't be told."""
        end = data.find(b"\r\n\r\n") + 4
        if len(self._messages) != 1 or end < 4:
            return None
        message = self._messages[0][0]
        if not isinstance(message, RawRequestMessage) or message.chunked or self._upgraded:
            return None
        return end + int(message.headers.get(hdrs.CONTENT_LENGTH, 0))

    def _let_go(self) -> bytes:
        """What was held; nothing is any more."""
        if self._held_until is None:
            return b""
        self._held_until.cancel()
        self._held_until = None
        held, self._held, self._missing = b"".join(self._held), [], 0
        return held

    def _rested(self) -> None:
        """No request is under way any more."""
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        self._stop_waiting()
        self._under_way = None
        if self._answers_offer:
            self._offer, self._answers_offer = None, False
        self._answering = False
        self._waited_for = True
        self._current_request = None
        self._request_in_progress = False
        if self._handler_waiter is not None and not self._handler_waiter.done():
            self._handler_waiter.set_result(None)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        if self._under_way is None:
            super().close()
        else:
            # aiohttp's would end the task, which may yet have to carry on what is under way.
            self._close = True

    def _process_keepalive(self) -> None:
        if self._under_way is not None:
            # The data source thinks; nobody is idle.
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()

    # -------------------------------------------------------------------------------- the long way

    def write(self, data: bytes) -> None:
        super().write(data)
        self._flow.sent += len(data)

    def _has_pending(self) -> bool:
        return self._carries_on or (self._under_way is None and bool(self._messages))

    async def _serve_next(self) -> bool:
        under_way = self._under_way
        if under_way is None:
            return await super()._serve_next()
        self._under_way, self._carries_on = None, False
        ask = under_way.known.ask
        request = AgentRequest.plain(ask.method, ask.target, self)
        self._current_request = request  # type: ignore[assignment]  # see `_respond`
        return await self._finished(request, under_way.carried_on(request))

    async def drain(self) -> None:
        """Waits until the agent has taken enough of what was written. An agent that takes nothing
        for too long is cut off: `ConnectionResetError`."""
        try:
            async with asyncio.timeout(self._limits.stream_idle_seconds):
                await self._drain_helper()
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()
            raise ConnectionResetError("the agent takes nothing of its answer") from None

    def answering(self) -> None:
        """From now on a write tells whether the agent is there."""
        self._answering = True
        self._stop_waiting()

    def until_agent_closes(self) -> None:
        self._waited_for = False

    def stop_reading(self) -> None:
        self._stopped = True
        self._upgraded = False
        self._message_tail = b""
        self.close()

    def tunnel(self, most: int) -> "tuple[BufferedConnection, Within]":
        """Leaves the connection to another protocol, with what arrived behind the request. Whatever
        becomes of it, its end is told here too. `ConnectionResetError` where the agent is gone."""
        tail, self._message_tail = self._message_tail, b""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the agent closed the connection")
        self._stop_waiting()
        side = BufferedConnection(most, self.connection_lost).adopt(
            transport, tail, ended=self._half_closed
        )
        if self._buffer_paused:
            self._buffer_paused = False
            transport.resume_reading()
        assert self._manager is not None
        return side, partial(_within, self._manager, self._limits, self._flow)

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes an answer
        """An agent that has sent its request may close its sending side and wait for the answer.
        One that went away looks the same until something is written to it, so it is not waited for
        without end."""
        if self._held:
            self._long()
        bodies = self._pending_bodies()
        waits = bool(bodies) or self._under_way is not None
        if not (waits and self._waited_for and all(map(_has_ended, bodies))):
            return False
        self._half_closed = True
        if not self._answering:
            seconds = self._limits.half_close_seconds
            self._grace = self._loop.call_later(seconds, self._give_up)
        return True

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting()
        self._let_go()
        request: Any = self._current_request
        if request is not None and not (request.begun or _has_ended(request.body)):
            log.info("an agent hung up in the middle of its request's body")
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.gone()
        super().connection_lost(exc)

    async def _respond(self, message: object, body: StreamReader) -> bool:
        """Whether the connection may carry another request."""
        request = AgentRequest(message, body, self)
        self._request_in_progress = True
        self._answers_offer = self._offer is not None and self._offer[0] is message
        self._current_request = request  # type: ignore[assignment]  # its `_cancel` is used
        return await self._finished(request, self._handler(request))

    async def _finished(
        self, request: AgentRequest, answering: Awaitable[LocalResponse | ResponseSent]
    ) -> bool:
        body = request.body
        try:
            answer = await self._handled(request, answering)
            if isinstance(answer, LocalResponse):
                keep = request.keep_alive and not answer.close
                empty = request.method == "HEAD"
                request.begin(answer.encode(keep_alive=keep, empty=empty, old=request.old))
            else:
                keep = answer.keep_alive
            drained = await self._drain_body(body, self._limits.lingering_seconds)
            return drained and keep and not self.ending
        except ConnectionError:
            return False
        finally:
            self._rested()

    async def _handled(
        self, request: AgentRequest, answering: Awaitable[LocalResponse | ResponseSent]
    ) -> LocalResponse | ResponseSent:
        try:
            return await answering
        except Exception:
            # A fault of ours: logged here, and nothing of it told to the agent.
            log.exception("a proxied request failed")
            if request.begun:
                return ResponseSent(keep_alive=False)
            error = SluiceError("the proxy failed; see the sidecar's log")
            return LocalResponse.of_error(error, close=True)

    def _stop_waiting(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def _give_up(self) -> None:
        self._grace = None
        if self.transport is not None:
            self.transport.abort()


def _has_ended(body: StreamReader) -> bool:
    """Whether no more of it is to come: it is whole, or its framing is broken."""
    return body.is_eof() or body.exception() is not None


def _within(
    manager: Server, limits: ProxyLimits, flow: Flow, handler: Handler
) -> DownstreamConnection:
    return DownstreamConnection(manager, handler, limits, flow)
