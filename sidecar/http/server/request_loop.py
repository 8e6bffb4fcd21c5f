"""Has the requests of one connection answered, in order and one at a time, and ends each.

Each request is served by one coroutine, which runs at once, in the turn of the event loop in which
the request arrived, and becomes a task where it first waits (`platform/eager.py`). Knows nothing of
what a request asks for, and not how it arrived.
"""

import asyncio
import logging
from functools import partial
from typing import Protocol

from sidecar.http.messages.request_parser import BrokenFraming
from sidecar.http.server.incoming import Incoming
from sidecar.http.server.request import ClientConnection, HttpRequest
from sidecar.http.server.response import Answer, Complete, Deferred, Response, ResponseSent
from sidecar.http.server.service import Service
from sidecar.platform import eager

log = logging.getLogger(__name__)


class AnsweringConnection(ClientConnection, Protocol):
    """What the loop needs of its connection."""

    transport: asyncio.Transport | None
    """None before and after the connection."""
    handed_over: bool
    """Whether another protocol runs the connection."""

    def request_ended(self, request: HttpRequest, *, keep: bool) -> None:
        """Goes on with the next request, or ends the connection unless it is to `keep`."""


class RequestLoop:
    """Has `service` answer the requests of `incoming`."""

    __slots__ = ("_connection", "_incoming", "_loop", "_service", "serving", "task")

    def __init__(
        self, connection: AnsweringConnection, service: Service, incoming: Incoming
    ) -> None:
        self._connection = connection
        self._service = service
        self._incoming = incoming
        self._loop = asyncio.get_running_loop()
        self.serving = False
        """Whether `serve` runs."""
        self.task: asyncio.Task[None] | None = None
        """Answers the current request, once that has to wait."""

    def serve(self) -> None:
        """Serves the requests that wait, until one of them has to wait itself."""
        if self.serving:
            return
        incoming, connection = self._incoming, self._connection
        self.serving = True
        try:
            while incoming.waiting and incoming.current is None and not connection.congested:
                incoming.current = request = incoming.waiting.popleft()
                try:
                    eager.start(self._process(request), self._loop, self._suspended)
                except asyncio.CancelledError:
                    # What it waited for had been cancelled elsewhere.
                    incoming.current = None
                    connection.reset()
        finally:
            self.serving = False

    async def _process(self, request: HttpRequest) -> None:
        try:
            answer = await self._service.serve(request)
        except Exception as error:  # noqa: BLE001  # `_failed` logs it
            self._failed(request, error)
        else:
            self._answer(request, answer)

    def _suspended(self, task: "asyncio.Task[None]") -> None:
        self.task = task
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task is self.task:
            self.task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a connection failed", exc_info=error)
        if error is not None or task.cancelled():
            # The client is gone, or its time is up, or it must not wait for an answer for ever.
            self._incoming.current = None
            self._connection.reset()

    def _failed(self, request: HttpRequest, error: Exception) -> None:
        if isinstance(error, ConnectionError):
            # The client is gone; its request and the decision are in the log.
            self._answer(request, ResponseSent(keep_alive=False))
            return
        # A bug of ours: the details go to the log, and none of them to the client.
        log.error("a request failed", exc_info=error)
        if request.response_started:
            self._answer(request, ResponseSent(keep_alive=False))
        else:
            self._answer(request, self._service.failed(request))

    def _answer(self, request: HttpRequest, answer: Answer) -> None:
        """Writes the answer to the request, if that is still to be done, and ends the request."""
        if isinstance(answer, Deferred):
            durable, complete = answer
            durable.add_done_callback(partial(self._answer_recorded, request, complete))
            return
        connection = self._connection
        if isinstance(answer, ResponseSent):
            keep = answer.keep_alive and not connection.ending
        else:
            keep = request.keep_alive and not answer.close
            transport = connection.transport
            if transport is not None and not transport.is_closing():
                data = answer.encode(
                    keep_alive=keep,
                    omit_body=request.method == "HEAD",
                    http10=request.http10,
                )
                self._service.flow.sent += len(data)
                transport.write(data)
                request.response_started = True
        if request.body.settled or connection.handed_over:
            connection.request_ended(request, keep=keep and request.body.failure is None)
        else:
            # A refused request may still be sending. Its client couldn't read the refusal
            # otherwise: closing a socket with unread bytes resets the connection.
            self._suspended(self._loop.create_task(self._linger(request, keep=keep)))

    def _answer_recorded(
        self, request: HttpRequest, complete: Complete, durable: asyncio.Future[None]
    ) -> None:
        response: Response
        try:
            # INVARIANT: a cancelled wait raises here, before anything is made of the decision: its
            # record may not be on disk.
            response = complete(durable.exception())
        except (Exception, asyncio.CancelledError) as error:
            log.error("a request failed", exc_info=error)
            response = self._service.failed(request)
        self._answer(request, response)

    async def _linger(self, request: HttpRequest, *, keep: bool) -> None:
        """Discards what a refused request still sends."""
        body, loop, connection = request.body, self._loop, self._connection
        end = loop.time() + self._service.limits.lingering_seconds
        try:
            while not body.taken:
                await body.next(max(0.0, end - loop.time()))
        except (TimeoutError, BrokenFraming, ConnectionError):
            keep = False
        connection.request_ended(request, keep=keep and not connection.ending)
