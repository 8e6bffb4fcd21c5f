"""A connection from an agent that offers each message to the fast path before the parser sees it.

A simple request that arrives whole is decided and forwarded in the same turn of the event loop
(`pipeline/fast_path.py`). Anything else goes to the parser and takes the slow path, the one that
`DownstreamConnection` implements.

Knows when a message may be offered, and how to switch to the slow path. Decides nothing.
"""

import asyncio
import logging

from aiohttp.web_server import Server

from sidecar.proxy.downstream.downstream_connection import DownstreamConnection
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages.request import AgentRequest, Handler
from sidecar.proxy.pipeline.fast_path import FastPath, FastPathResult
from sidecar.proxy.pipeline.fast_path_exchange import FastPathExchange
from sidecar.proxy.proxy_metrics import Flow

log = logging.getLogger(__name__)

PARTIAL_SECONDS = 1.0
"""How long to wait for the rest of a message before its beginning takes the slow path."""


class FastDownstreamConnection(DownstreamConnection):
    """A connection whose requests may take `fast_path`."""

    __slots__ = (
        "_exchange",
        "_fast_path",
        "_missing",
        "_partial",
        "_partial_timer",
        "_resume_on_slow_path",
    )

    def __init__(
        self,
        manager: Server,
        handler: Handler,
        limits: ProxyLimits,
        flow: Flow,
        fast_path: FastPath,
    ) -> None:
        super().__init__(manager, handler, limits, flow)
        self._fast_path = fast_path
        self._partial: list[bytes] = []
        """The beginning of a message that neither path has seen yet, in pieces as they arrived."""
        self._missing = 0
        """How many bytes of that message are still to come."""
        self._partial_timer: asyncio.TimerHandle | None = None
        self._exchange: FastPathExchange | None = None
        self._resume_on_slow_path = False

    # -------------------------------------------------------------------------------------- reading

    def _receive(self, data: bytes) -> None:
        # INVARIANT: while `_bytes_to_boundary` is 0, the next byte starts a message for the parser
        # too. Only then may the fast path take a message without the parser noticing a gap.
        if self._bytes_to_boundary == 0 and not self._busy():
            if len(data) < self._missing:
                # The deadline still counts from the first piece.
                self._missing -= len(data)
                self._partial.append(data)
                return
            message = b"".join((*self._partial, data)) if self._partial else data
            result = self._offer_message(message)
            if result is FastPathResult.STARTED:
                self._take_partial()
                self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
                return
            if result is not FastPathResult.SLOW_PATH:
                self._partial, self._missing = [data], result
                self._partial_timer = self._loop.call_later(PARTIAL_SECONDS, self._use_slow_path)
                return
        self._use_slow_path(data)

    def _offer_message(self, data: bytes) -> FastPathResult | int:
        try:
            return self._fast_path.begin(self, data)
        except Exception:
            # The request is decided already. The slow path would decide and record it again.
            if self._exchange is not None:
                raise
            log.exception("the fast path failed; the request takes the slow path")
            return FastPathResult.SLOW_PATH

    def _busy(self) -> bool:
        """Whether new data must wait its turn, or must not be read at all."""
        busy = self._request_in_progress or self._messages or self._half_closed
        return bool(busy or self._close or self._force_close or self._paused)

    def _use_slow_path(self, data: bytes = b"") -> None:
        self._feed_parser(data, self._take_partial())

    def _take_partial(self) -> bytes:
        """Returns the buffered beginning of a message, and forgets it."""
        if self._partial_timer is None:
            return b""
        self._partial_timer.cancel()
        self._partial_timer = None
        partial, self._partial, self._missing = b"".join(self._partial), [], 0
        return partial

    # ----------------------------------------------------------------------- the exchange under way

    def exchange_started(self, exchange: FastPathExchange) -> None:
        self._exchange = exchange
        self._request_in_progress = True

    def respond(self, head: bytes, body: bytes) -> bool:
        transport = self.transport
        if transport is None or transport.is_closing():
            return False
        keep = not (self.ending or self._force_close)
        ending = b"\r\n" if keep else b"Connection: close\r\n\r\n"
        # One write, so that a small response leaves in one segment.
        response = b"%b%b%b" % (head, ending, body)
        self._flow.sent += len(response)
        transport.write(response)
        self._request_finished()
        if not keep:
            transport.close()
        elif self._messages:
            self._wake()
        return True

    def fall_back(self) -> None:
        self._resume_on_slow_path = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _has_pending(self) -> bool:
        return self._resume_on_slow_path or (self._exchange is None and bool(self._messages))

    async def _serve_next(self) -> bool:
        exchange = self._exchange
        if exchange is None:
            return await super()._serve_next()
        # From here on the request belongs to the slow path. A lost connection cancels its task.
        self._exchange, self._resume_on_slow_path = None, False
        sent = exchange.request.simple.upstream_request
        request = AgentRequest.without_parser(sent.method, sent.target, self)
        self._current_request = request  # type: ignore[assignment]  # aiohttp calls its `_cancel`
        return await self._send_response(request, exchange.continue_on_slow_path(request))

    def _request_finished(self) -> None:
        self._exchange = None
        super()._request_finished()

    # -------------------------------------------------------------------------------------- the end

    def close(self) -> None:
        if self._exchange is None:
            super().close()
        else:
            # aiohttp's `close` would end the task, which may still have to finish the exchange.
            self._close = True

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio accepts a bool
        # The rest will never come. The parser finds out what the beginning means.
        if self._partial:
            self._use_slow_path()
        return super().eof_received()

    def _owes_response(self) -> bool:
        return self._exchange is not None or super()._owes_response()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._take_partial()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.on_client_closed()
        super().connection_lost(exc)

    def _process_keepalive(self) -> None:
        if self._exchange is not None:
            # The data source is still working on the request: the connection isn't idle.
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()
