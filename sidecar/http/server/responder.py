"""Has a service answer requests. Each answer is one coroutine. It runs at once, in the same turn of
the event loop in which the request arrived, and becomes a task only where it first waits
(`platform/eager.py`).

Waits for the record that an answer depends on, and answers in place of a service that fails. Knows
nothing of what a request asks for, nor how it arrived.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from sidecar.http.server.request import (
    Complete,
    Deferred,
    HttpRequest,
    Response,
    ResponseSent,
    Service,
)
from sidecar.platform import eager

log = logging.getLogger(__name__)


class Responder:
    """Has `service` answer the requests of one connection, one after the other. `respond` is called
    with each answer; if a request can't be answered, `break_off` is called with the reason
    instead."""

    __slots__ = (
        "_break_off", "_complete", "_loop", "_request", "_respond", "_service", "task",
    )  # fmt: skip

    def __init__(
        self,
        service: Service,
        loop: asyncio.AbstractEventLoop,
        respond: Callable[[HttpRequest, Response | ResponseSent], None],
        break_off: Callable[[BaseException], None],
    ) -> None:
        self._service = service
        self._loop = loop
        self._respond = respond
        self._break_off = break_off
        self._request: HttpRequest | None = None
        self._complete: Complete | None = None
        """The function that makes the response to `_request` once its record is on disk; None if no
        request waits for a record."""
        self.task: asyncio.Task[None] | None = None
        """The task that answers the current request, or that finishes it after the answer; None if
        there is none."""

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine for the request that is being answered. `break_off` is called if it
        raises."""
        try:
            task = eager.start(coroutine, self._loop)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # `break_off` logs it
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

    async def answer(self, request: HttpRequest) -> None:
        # The answer is written here and not once the task has ended, which is a turn of the event
        # loop later: the next request may have arrived by then.
        try:
            answer = await self._service.serve(request)
        except ConnectionError:
            # The client is gone; its request and the decision are in the log.
            self._respond(request, ResponseSent(keep_alive=False))
        except Exception as error:  # noqa: BLE001  # `_fail` logs it
            self._fail(request, error)
        else:
            if isinstance(answer, Deferred):
                durable, self._complete = answer
                self._request = request
                durable.add_done_callback(self._recorded)
            else:
                self._respond(request, answer)

    def _recorded(self, durable: asyncio.Future[None]) -> None:
        """Answer the waiting request: its record is on disk, or could not be written."""
        request, complete = self._request, self._complete
        assert request is not None
        assert complete is not None
        self._request = self._complete = None
        try:
            try:
                # INVARIANT: a cancelled wait raises here, before anything is made of the decision:
                # its record may not be on disk.
                response = complete(durable.exception())
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # `_fail` logs it
                self._fail(request, error)
            else:
                self._respond(request, response)
        except Exception as error:  # noqa: BLE001  # `break_off` logs it
            self._break_off(error)

    def _fail(self, request: HttpRequest, error: BaseException) -> None:
        # A bug of ours: the details go to the log, and none of them to the client.
        if request.response_started:
            self._break_off(error)
            return
        log.error("a request failed", exc_info=error)
        self._respond(request, self._service.failed(request))
