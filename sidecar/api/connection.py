"""A connection to one of the sidecar's own ports, with two paths from a request to its response.

The slow path, `_respond`, runs in the connection's task and handles everything that may wait. The
fast path, `_serve_cached`, handles a complete request whose head is in the `HeadCache`: no parser,
no task, and no future except the disk's. Only one of them is active at a time, so responses keep
their order.

A request that can't be parsed gets the sidecar's error body, which echoes nothing of it. A client
that half-closes (`nc`, some SDKs) still gets its response. Bytes after a CONNECT or an Upgrade are
never read. A client that hangs up does not undo its request: it is decided and recorded all the
same.

Knows messages, but no route: `ApiService` knows those.
"""

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Any, Protocol

from aiohttp import StreamReader, hdrs
from aiohttp.http import HttpVersion11, RawRequestMessage

from policies.ground.errors import SluiceError
from sidecar.http.body_budget import BodyBudget, Lease
from sidecar.http.connection import HttpConnection, HttpRequest
from sidecar.http.head_cache import CachedHead, HeadCache
from sidecar.http.request_body import read_arriving, read_complete
from sidecar.http.response_head import Deferred, Outcome, RenderedResponse

_END = b"\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ApiService(Protocol):
    """Answers requests. `head` is whatever its `parse_head` returned."""

    def parse_head(self, message: RawRequestMessage) -> Any: ...
    def refuse_early(self, head: Any) -> RenderedResponse | None: ...
    def answer(self, head: Any, body: bytes) -> Outcome: ...
    def complete(self, deferred: Deferred) -> RenderedResponse: ...
    def render_error(self, head: Any, error: SluiceError) -> RenderedResponse: ...
    def render_unparsable(self) -> RenderedResponse: ...
    def on_client_closed(self, head: Any) -> None: ...


class ApiServerConnection(HttpConnection):
    """One client's connection, answered by `service`."""

    __slots__ = ("_awaited", "_body_budget", "_head_cache", "_service", "_whole")

    def serve(
        self, service: ApiService, head_cache: HeadCache, body_budget: BodyBudget
    ) -> "ApiServerConnection":
        """Give the connection its service. Call this before the connection is made."""
        self._body_budget = body_budget
        self._service = service
        self._head_cache = head_cache
        # INVARIANT: while this is true, only complete messages have arrived, one at a time, so the
        # next bytes begin a message for the parser too. Once false, it stays false.
        self._whole = True
        # The outcome of a fast-path request that has to wait; the connection's task awaits it.
        self._awaited: Awaitable[RenderedResponse | Deferred] | None = None
        return self

    def data_received(self, data: bytes) -> None:
        if not data:
            # Empty data makes aiohttp's parser continue with what it has buffered.
            super().data_received(data)
            return
        # With anything in progress, a fast answer could overtake a slow one. Responses go in the
        # order of requests (RFC 9112, section 9.3.2).
        busy = self._request_in_progress or self._messages or self._awaited
        if busy or self._close or self._force_close or self._paused or not self._whole:
            self._whole = False
            super().data_received(data)
            return
        # Without an end, `find` is -1 and no cached head is this short.
        end = data.find(_END) + len(_END)
        cached = self._head_cache.find(data[:end])
        if cached is not None and len(data) == end + cached.length:
            self._serve_cached(cached.head, data[end:])
            return
        super().data_received(data)
        self._whole = self._remember_head(data, end)

    def _remember_head(self, data: bytes, end: int) -> bool:
        """Cache the head if `data` was exactly one complete message. Returns whether it was."""
        if len(self._messages) != 1 or end < len(_END):
            return False
        message, body = self._messages[0]
        # A chunked body has no length by which the next one could be recognised.
        if not isinstance(message, RawRequestMessage) or not body.is_eof() or message.chunked:
            return False
        length = int(message.headers.get(hdrs.CONTENT_LENGTH, 0))
        if len(data) != end + length or message.upgrade or message.should_close:
            return False
        # Only decisions are frequent enough. HTTP/1.0 needs another `Connection` in the response.
        if message.method == hdrs.METH_POST and message.version == HttpVersion11:
            self._head_cache.add(data[:end], CachedHead(self._service.parse_head(message), length))
        return True

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio accepts a return value
        """Whether to keep the sending side open: requests still wait for a response, and all of
        them have arrived completely."""
        waiting = len(self._messages) + self._request_in_progress + (self._awaited is not None)
        if not waiting or not all(body.is_eof() for body in self._pending_bodies()):
            return False
        # With more than one waiting, `close` would end the connection after the first response.
        if waiting == 1:
            self.close()  # takes effect after the response
        return True

    # ----------------------------------------------------------------------------------- fast path

    def _serve_cached(self, head: Any, body: bytes) -> None:
        # aiohttp's parser, which would note this, does not see the request.
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        outcome = self._service.answer(head, body)
        if type(outcome) is Deferred:
            self._request_in_progress = True
            outcome.durable.add_done_callback(partial(self._on_durable, outcome))
        elif type(outcome) is RenderedResponse:
            self._write_response(outcome)
        else:
            # Something has to be fetched first, which only the task may wait for.
            assert isinstance(outcome, Awaitable)
            self._awaited = outcome
            self._wake()

    def _on_durable(self, deferred: Deferred, _durable: asyncio.Future[None]) -> None:
        # The record is on disk (or failed to get there); only now may the client see a response.
        self._request_in_progress = False
        self._write_response(self._service.complete(deferred))
        self._notify_shutdown()
        # Requests that arrived since then are parsed, and wait for the connection's task.
        if self._messages:
            self._wake()

    def _write_response(self, response: RenderedResponse) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return  # the client is gone, but its request is decided and recorded
        head, body, close = response
        if close or self._close:
            transport.write(b"%bConnection: close\r\n\r\n%b" % (head, body))
            transport.close()
        else:
            transport.write(b"%b\r\n%b" % (head, body))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ----------------------------------------------------------------------------------- slow path

    def _has_pending(self) -> bool:
        return not self._request_in_progress and bool(self._awaited or self._messages)

    async def _serve_next(self) -> bool:
        self._request_in_progress = True
        try:
            if self._awaited is not None:
                awaited, self._awaited = self._awaited, None
                return await self._send(await self._resolve(awaited), keep=not self._close)
            return await super()._serve_next()
        except ConnectionError:
            return False  # the client is gone, but its request is decided and recorded
        finally:
            self._current_request = None
            self._request_in_progress = False
            self._notify_shutdown()

    async def _respond(self, message: object, body: StreamReader) -> bool:
        if not isinstance(message, RawRequestMessage):
            return await self._send(self._service.render_unparsable(), keep=False)
        self._current_request = HttpRequest(message, body, self)  # type: ignore[assignment]
        with self._body_budget.lease() as lease:
            response = await self._answer(message, body, lease)
        # RFC 9931: bytes after a CONNECT or an Upgrade may be an optimistic client's tunnelled
        # data, not a request. Neither is ever granted here, so the connection has to close.
        tunnel = message.upgrade or message.method == hdrs.METH_CONNECT
        keep = not (message.should_close or self._close or tunnel)
        http_1_0, empty = message.version[1] == 0, message.method == hdrs.METH_HEAD
        kept = await self._send(response, keep=keep, http_1_0=http_1_0, empty=empty)
        # The rest of a refused body must not be read as the next request.
        return await self._drain_body(body) and kept

    async def _answer(
        self, message: RawRequestMessage, body: StreamReader, lease: Lease
    ) -> RenderedResponse:
        service = self._service
        head = service.parse_head(message)
        try:
            if body.is_eof():
                content = read_complete(body)
            else:
                # Refuse by the head alone where possible: the body of a caller without a valid key
                # is never read.
                refusal = service.refuse_early(head)
                if refusal is not None:
                    return refusal
                # RFC 9110, section 10.1.1: the client waits for this before it sends the body.
                if message.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
                    self.write(_CONTINUE)
                length = int(message.headers.get(hdrs.CONTENT_LENGTH, 0))
                content = await read_arriving(body, length, lease)
        except SluiceError as error:
            return service.render_error(head, error)
        except ConnectionError:
            service.on_client_closed(head)
            raise
        return await self._resolve(service.answer(head, content))

    async def _resolve(self, outcome: Outcome) -> RenderedResponse:
        """Wait for the response of `outcome`, until it may be sent."""
        if not isinstance(outcome, RenderedResponse | Deferred):
            outcome = await outcome
        if isinstance(outcome, RenderedResponse):
            return outcome
        # `wait` does not raise: here a failure of the disk becomes a response, not an exception.
        await asyncio.wait([outcome.durable])
        return self._service.complete(outcome)

    async def _send(
        self,
        response: RenderedResponse,
        *,
        keep: bool,
        http_1_0: bool = False,
        empty: bool = False,
    ) -> bool:
        """Write `response`. Returns whether the connection stays open."""
        keep = keep and not response.close
        if not keep:
            ending = b"Connection: close\r\n\r\n"
        elif http_1_0:
            ending = b"Connection: keep-alive\r\n\r\n"
        else:
            ending = b"\r\n"
        self.write(b"%b%b%b" % (response.head, ending, b"" if empty else response.body))
        if self._paused:
            # Responses to a client that doesn't read must not pile up in memory.
            await self._drain_helper()
        return keep

    def _notify_shutdown(self) -> None:
        """Wake `shutdown`, which waits for the request in progress."""
        if self._handler_waiter is not None and not self._handler_waiter.done():
            self._handler_waiter.set_result(None)
