"""What every request passes on its way in and out: its id, the metrics, and the one place where an
error becomes a response. It stands in the place of a web framework's middleware. Knows no route,
and no form of an answer."""

import itertools
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus

from aiohttp import web

from control_api.departure import ClientLeft
from control_api.edge.reply import HttpReply
from control_api.edge.request_body import ClientDisconnected
from control_api.edge.sending import ReplyEncoder, send, to_stream
from control_api.edge.server_faults import NO_OPERATION, ServerFaults
from control_api.metrics.metrics import Instruments
from control_api.revision_context import WRITTEN
from control_api.trace_headers import TRACEPARENT
from policies.ground.clock import Clock
from policies.ground.errors import SluiceError, Unavailable
from policies.ground.process.json_logging import REQUEST_ID

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}\Z")
_log = logging.getLogger("sluice.http")


@dataclass(slots=True)
class RequestInfo:
    """What is known about a request so far; `operation` is `none` until a route is found.
    `key_checked` is whether it has a key that is valid."""

    method: str
    target: str
    operation: str = NO_OPERATION
    key_checked: bool = False


Serve = Callable[[web.BaseRequest, RequestInfo], Awaitable[HttpReply]]
Refused = Callable[[SluiceError, web.BaseRequest], HttpReply]


class RequestShell:
    """Serves the requests of a listener. `run_id` begins the ids of its requests."""

    def __init__(self, instruments: Instruments, clock: Clock, run_id: str) -> None:
        self._instruments = instruments
        # Cache the labelled children, so that a request does not take the parent metric's lock.
        # Operations and statuses are few.
        self._requests = cache(instruments.http.requests.labels)
        self._seconds = cache(instruments.http.seconds.labels)
        self._monotonic = clock.monotonic
        self._faults = ServerFaults(clock.monotonic)
        self.response = ReplyEncoder(clock.now).response
        # A prefix of this run and a counter: unique without a system call per request.
        ids = (f"{run_id}-{number:x}" for number in itertools.count(1))
        self.new_request_id: Callable[[], str] = ids.__next__

    async def answer(
        self, request: web.BaseRequest, serve: Serve, refused: Refused
    ) -> web.StreamResponse:
        """The response to `request`, whatever happens: what `serve` returns, or what `refused`
        makes of the error that it raised."""
        started = self._monotonic()
        given = request.headers.get("X-Request-ID")
        request_id = given if given and _REQUEST_ID.match(given) else self.new_request_id()
        REQUEST_ID.set(request_id)
        # A connection's requests share one context: forget what the previous one wrote.
        WRITTEN.set(None)
        TRACEPARENT.set(request.headers.getall("traceparent", ()))
        info = RequestInfo(request.method, request.raw_path)
        try:
            reply = await serve(request, info)
            self._faults.answered(info.operation)
            if info.key_checked:
                self._faults.answered(NO_OPERATION)
        except (ClientDisconnected, ClientLeft) as error:
            # If this reached aiohttp, it would log a server error with another request id.
            # Writing the response to the closed connection fails quietly.
            _log.info("%s: %s", info.operation, error.message)
            reply = refused(error, request)
        except Unavailable as error:
            self._faults.failed(info.operation, error)
            reply = refused(error, request)
        except SluiceError as error:
            # The caller's own mistakes are not logged: anyone could fill the log with them.
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                _log.error("request failed with %d: %s", error.status, error.message)
            reply = refused(error, request)
        except Exception:  # noqa: BLE001  # the only place where a bug becomes a 500
            _log.exception("request failed: %s", info.operation)
            self._instruments.http.crashes.inc()
            reply = refused(SluiceError(f"internal error, request `{request_id}`"), request)
        self._requests(info.operation, reply.status).inc()
        self._seconds(info.operation).observe(self._monotonic() - started)
        if reply.pieces is not None:
            return await send(request, to_stream(reply, request_id), reply.pieces)
        return self.response(reply, request_id)
