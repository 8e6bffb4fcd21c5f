"""A connection to one of the sidecar's own ports: two ways from a request to its answer.

The long way is `_respond`, in the connection's task: for whatever has to wait. The short way is
`_begin`, for a whole request whose head was read before (`known_heads`): no parser, no task, no
future but the disk's. Only one of them is under way at a time, so answers keep their order.

A request that can't be parsed is answered with our error body, and no echo of what was sent. A
half-closed client (`nc`, some SDKs) still gets its answer. What follows a CONNECT or an Upgrade is
never read. A client that hangs up takes nothing back: it is decided and recorded all the same.

Knows messages. Knows no route: `ApiService` does.
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
    """What answers requests; `head` is whatever its `read` made of one."""

    def read(self, message: RawRequestMessage) -> Any: ...
    def refusal(self, head: Any) -> RenderedResponse | None: ...
    def answer(self, head: Any, body: bytes) -> Outcome: ...
    def settled(self, deferred: Deferred) -> RenderedResponse: ...
    def error(self, head: Any, error: SluiceError) -> RenderedResponse: ...
    def unreadable(self) -> RenderedResponse: ...
    def hung_up(self, head: Any) -> None: ...


class OwnConnection(HttpConnection):
    """One client's connection, answered by `service`."""

    __slots__ = ("_asked", "_body_budget", "_known_heads", "_service", "_whole")

    def serve(
        self, service: ApiService, known_heads: HeadCache, bodies: BodyBudget
    ) -> "OwnConnection":
        """To be called before the connection is made."""
        self._body_budget = bodies
        self._service = service
        self._known_heads = known_heads
        # INVARIANT: while this is true, all that ever came were whole messages, one at a time, so
        # that what comes next begins a message for the parser too. Once false, it stays so.
        self._whole = True
        self._asked: Awaitable[RenderedResponse | Deferred] | None = None
        return self

    def data_received(self, data: bytes) -> None:
        if not data:
            # Nothing arrived: aiohttp has its parser go on with what it held back.
            super().data_received(data)
            return
        busy = self._request_in_progress or self._messages or self._asked
        if busy or self._close or self._force_close or self._paused or not self._whole:
            self._whole = False
            super().data_received(data)
            return
        end = data.find(_END) + len(_END)
        known = self._known_heads.find(data[:end])
        if known is not None and len(data) == end + known.length:
            self._begin(known.head, data[end:])
            return
        super().data_received(data)
        self._whole = self._learn(data, end)

    def _learn(self, data: bytes, end: int) -> bool:
        """Whether `data` was one whole message. Its head is then known."""
        if len(self._messages) != 1 or end < len(_END):
            return False
        message, body = self._messages[0]
        if not isinstance(message, RawRequestMessage) or not body.is_eof() or message.chunked:
            return False
        length = int(message.headers.get(hdrs.CONTENT_LENGTH, 0))
        if len(data) != end + length or message.upgrade or message.should_close:
            return False
        if message.method == hdrs.METH_POST and message.version == HttpVersion11:
            self._known_heads.learn(data[:end], CachedHead(self._service.read(message), length))
        return True

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes an answer
        """Whether to keep the sending side open: all that the client sent is here, and waits for
        an answer."""
        waiting = len(self._messages) + self._request_in_progress + (self._asked is not None)
        if not waiting or not all(body.is_eof() for body in self._pending_bodies()):
            return False
        if waiting == 1:
            self.close()  # once it is answered
        return True

    # ------------------------------------------------------------------------------- the short way

    def _begin(self, head: Any, body: bytes) -> None:
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        outcome = self._service.answer(head, body)
        if type(outcome) is Deferred:
            self._request_in_progress = True
            outcome.durable.add_done_callback(partial(self._settled, outcome))
        elif type(outcome) is RenderedResponse:
            self._finish(outcome)
        else:
            # Somebody has to be asked first: that is for the task.
            assert isinstance(outcome, Awaitable)
            self._asked = outcome
            self._wake()

    def _settled(self, deferred: Deferred, _durable: asyncio.Future[None]) -> None:
        self._request_in_progress = False
        self._finish(self._service.settled(deferred))
        self._tell_shutdown()
        if self._messages:
            self._wake()

    def _finish(self, answer: RenderedResponse) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return  # the client is gone; what it asked for is decided and recorded
        head, body, close = answer
        if close or self._close:
            transport.write(b"%bConnection: close\r\n\r\n%b" % (head, body))
            transport.close()
        else:
            transport.write(b"%b\r\n%b" % (head, body))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -------------------------------------------------------------------------------- the long way

    def _has_pending(self) -> bool:
        return not self._request_in_progress and bool(self._asked or self._messages)

    async def _serve_next(self) -> bool:
        self._request_in_progress = True
        try:
            if self._asked is not None:
                asked, self._asked = self._asked, None
                return await self._send(await self._kept(asked), keep=not self._close)
            return await super()._serve_next()
        except ConnectionError:
            return False
        finally:
            self._current_request = None
            self._request_in_progress = False
            self._tell_shutdown()

    async def _respond(self, message: object, body: StreamReader) -> bool:
        if not isinstance(message, RawRequestMessage):
            return await self._send(self._service.unreadable(), keep=False)
        self._current_request = HttpRequest(message, body, self)  # type: ignore[assignment]
        answer = await self._answer(message, body)
        # RFC 9931: what follows CONNECT or Upgrade, neither of which is ever granted here, may be
        # an optimistic client's tunnelled bytes, and is no request of this client.
        tunnel = message.upgrade or message.method == hdrs.METH_CONNECT
        keep = not (message.should_close or self._close or tunnel)
        old, empty = message.version[1] == 0, message.method == hdrs.METH_HEAD
        kept = await self._send(answer, keep=keep, old=old, empty=empty)
        return await self._drain_body(body) and kept

    async def _answer(self, message: RawRequestMessage, body: StreamReader) -> RenderedResponse:
        with self._body_budget.lease() as lease:
            return await self._judged(message, body, lease)

    async def _judged(
        self, message: RawRequestMessage, body: StreamReader, lease: Lease
    ) -> RenderedResponse:
        service = self._service
        head = service.read(message)
        try:
            if body.is_eof():
                given = read_complete(body)
            else:
                # Who may not ask is not listened to.
                refusal = service.refusal(head)
                if refusal is not None:
                    return refusal
                if message.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
                    self.write(_CONTINUE)
                length = int(message.headers.get(hdrs.CONTENT_LENGTH, 0))
                given = await read_arriving(body, length, lease)
        except SluiceError as error:
            return service.error(head, error)
        except ConnectionError:
            service.hung_up(head)
            raise
        return await self._kept(service.answer(head, given))

    async def _kept(self, outcome: Outcome) -> RenderedResponse:
        """The answer that an outcome comes to."""
        if not isinstance(outcome, RenderedResponse | Deferred):
            outcome = await outcome
        if isinstance(outcome, RenderedResponse):
            return outcome
        await asyncio.wait([outcome.durable])
        return self._service.settled(outcome)

    async def _send(
        self, answer: RenderedResponse, *, keep: bool, old: bool = False, empty: bool = False
    ) -> bool:
        """Write it; whether the connection stays."""
        keep = keep and not answer.close
        if not keep:
            ending = b"Connection: close\r\n\r\n"
        elif old:
            ending = b"Connection: keep-alive\r\n\r\n"
        else:
            ending = b"\r\n"
        self.write(b"%b%b%b" % (answer.head, ending, b"" if empty else answer.body))
        if self._paused:
            # A client that does not read must not pile up answers in our memory.
            await self._drain_helper()
        return keep

    def _tell_shutdown(self) -> None:
        if self._handler_waiter is not None and not self._handler_waiter.done():
            self._handler_waiter.set_result(None)
