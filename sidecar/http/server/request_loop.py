"""Has the requests of one connection answered, in order and one at a time, and ends each.

Each request is served by one coroutine, which runs at once, in the turn of the event loop in which
the request arrived, and becomes a task where it first waits (`platform/eager.py`). Knows nothing of
what a request asks for, and not how it arrived.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from sidecar.http.messages.body import BodyOmitted
from sidecar.http.messages.request_parser import HTTP_10, BrokenFraming
from sidecar.http.server.http2_refusal import GOAWAY
from sidecar.http.server.incoming import Incoming
from sidecar.http.server.request import (
    Answer,
    ClientConnection,
    Complete,
    Deferred,
    HttpRequest,
    Response,
    ResponseSent,
    Service,
)
from sidecar.http.server.time_limits import TimeLimits
from sidecar.platform import eager

log = logging.getLogger(__name__)


class RequestLoop:
    """Has `service` answer the requests of `incoming`."""

    __slots__ = (
        "_complete", "_connection", "_incoming", "_loop", "_service", "_serving", "_time_limits",
        "task",
    )  # fmt: skip

    def __init__(
        self,
        connection: ClientConnection,
        service: Service,
        incoming: Incoming,
        time_limits: TimeLimits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._service = service
        self._incoming = incoming
        self._time_limits = time_limits
        self._loop = loop
        self._serving = False
        """True while `serve` runs."""
        self._complete: Complete | None = None
        """Makes the response to the current request, if the response waits for its record."""
        self.task: asyncio.Task[None] | None = None
        """The task that answers the current request, or reads the rest of it."""

    def serve(self) -> None:
        """Serves the waiting requests, until one of them has to wait itself."""
        if self._serving:
            return
        incoming, connection = self._incoming, self._connection
        self._serving = True
        try:
            while incoming.waiting and incoming.current is None and not connection.congested:
                incoming.current = request = incoming.waiting.popleft()
                self._run(self._process(request))
        finally:
            self._serving = False

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Continues the current request with `coroutine`."""
        try:
            task = eager.start(coroutine, self._loop)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # `_break_off` logs it
            self._break_off(error)
            return
        if task is not None:
            self.task = task
            task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        if task is self.task:
            self.task = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            self._break_off(error)

    async def _process(self, request: HttpRequest) -> None:
        # The answer is written here and not once the task has ended, which is a turn of the event
        # loop later: the next request may have arrived by then.
        try:
            answer = await self._service.serve(request)
        except ConnectionError:
            # The client is gone; its request and the decision are in the log.
            self._answer(request, ResponseSent(keep_alive=False))
        except Exception as error:  # noqa: BLE001  # `_fail` logs it
            self._fail(request, error)
        else:
            self._answer(request, answer)

    def _fail(self, request: HttpRequest, error: BaseException) -> None:
        # A bug of ours: the details go to the log, and none of them to the client.
        if request.response_started:
            self._break_off(error)
            return
        log.error("a request failed", exc_info=error)
        self._answer(request, self._service.failed(request))

    def _break_off(self, error: BaseException) -> None:
        """Resets the connection because its current request can't be answered."""
        # If it was cancelled, its client is gone, its time is up, or what it waited for was
        # cancelled.
        if not isinstance(error, asyncio.CancelledError):
            log.error("a connection failed", exc_info=error)
        self._incoming.current = None
        self._incoming.stop()
        self._connection.reset()

    # ----------------------------------------------------------------------------- the response

    def _answer(self, request: HttpRequest, answer: Answer) -> None:
        """Writes the answer to the request, unless it is written already, and ends the request."""
        if isinstance(answer, Deferred):
            durable, self._complete = answer
            durable.add_done_callback(self._recorded)
            return
        connection = self._connection
        omits_body = request.may_omit_body
        if isinstance(answer, ResponseSent):
            keep = answer.keep_alive and not (omits_body or self._incoming.ending)
        else:
            keep = request.keep_alive and not answer.close
            transport = connection.transport
            if transport is not None and not transport.is_closing():
                data = _encoded(answer, request, keep_alive=keep)
                self._service.flow.sent += len(data)
                transport.write(data)
                request.response_started = True
        body = request.body
        if omits_body:
            log.info("a connection is closed: %s", BodyOmitted.__doc__)
            body.fail(BodyOmitted())
        if body.complete or body.failure is not None or connection.handed_over:
            self._end(request, keep=keep and body.failure is None)
        else:
            # A refused request may still be sending. Its client couldn't read the refusal
            # otherwise: closing a socket with unread bytes resets the connection.
            self._run(self._linger(request, keep=keep))

    def _recorded(self, durable: asyncio.Future[None]) -> None:
        """Answers a request once its record is on disk, or has failed to get there."""
        request, complete = self._incoming.current, self._complete
        assert request is not None
        assert complete is not None
        self._complete = None
        try:
            try:
                # INVARIANT: a cancelled wait raises here, before anything is made of the decision:
                # its record may not be on disk.
                response = complete(durable.exception())
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # `_fail` logs it
                self._fail(request, error)
            else:
                self._answer(request, response)
        except Exception as error:  # noqa: BLE001  # `_break_off` logs it
            self._break_off(error)

    async def _linger(self, request: HttpRequest, *, keep: bool) -> None:
        """Discards the bytes that a refused request still sends."""
        body, loop = request.body, self._loop
        end = loop.time() + self._service.limits.lingering_seconds
        try:
            while not body.taken:
                await body.next(max(0.0, end - loop.time()))
        except (TimeoutError, BrokenFraming, ConnectionError) as error:
            body.fail(error)
        self._answer(request, ResponseSent(keep_alive=keep))

    def _end(self, request: HttpRequest, *, keep: bool) -> None:
        """Continues with the next request, or ends the connection unless it is to `keep`."""
        incoming, connection = self._incoming, self._connection
        incoming.current = None
        if connection.handed_over:
            return
        self._time_limits.request_ended()
        if not keep:
            connection.end()
            return
        if request.offers_upgrade:
            # The offer was ignored (RFC 9110 section 7.8), and nothing has followed it.
            incoming.read_past_offer()
        if not self._serving and (incoming.waiting or incoming.unread or incoming.half_closed):
            # Not at once: the next request must not run in the task of this one.
            self._loop.call_soon(connection.read_on)


def _encoded(response: Response, request: HttpRequest, *, keep_alive: bool) -> bytes:
    if request.http2:
        # Whatever the service's response says: the client reads nothing but frames.
        return GOAWAY
    omit_body, http10 = request.method == "HEAD", request.version == HTTP_10
    return response.encode(keep_alive=keep_alive, omit_body=omit_body, http10=http10)
