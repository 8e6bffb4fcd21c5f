"""Answers the calls on a gRPC check door's port: checks, and health checks (`grpc.health.v1`).
Every other method is UNIMPLEMENTED.

A call of HTTP/2 is a request like any other, whose body is one message in its frame; so is the body
of its response, and the trailers end it with a status. Gateways that fail open take a failed call
for permission: so every check ends with the status 0, and its outcome is in the message.

Knows HTTP and gRPC's framing. Of the messages, it knows the answer to a health check alone.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from functools import partial

import orjson

from policies.ground.errors import Malformed, SluiceError, TooLarge, error_body
from policies.ground.keys import key_digest, presented_key
from sidecar.doors.grpc.service import MAX_MESSAGE, TOO_LARGE, CheckService
from sidecar.doors.judgement import Outcome
from sidecar.http.grpc.framing import frame, unframe
from sidecar.http.grpc.status import is_grpc
from sidecar.http.grpc.timeout import timeout_seconds
from sidecar.http.grpc.wire import varint_field
from sidecar.http.headers import ResponseHead
from sidecar.http.messages.request_parser import HTTP_2
from sidecar.http.rendered_response import RenderedResponse, ResponseRenderer
from sidecar.http.request_body import BODY_SECONDS, BodyBudget, BodyTooSlow, Lease, read_whole
from sidecar.http.server.request import Answer, Deferred, HttpRequest, ResponseSent
from sidecar.metrics.metrics import Counter
from sidecar.platform.eager import Watch

log = logging.getLogger(__name__)

MAX_CALLS = 1000
"""The most calls at once on one connection. A gateway has few connections, and may send many checks
on a new one before it has read a limit: those above it would fail."""

_MOST_FRAMED = len(frame(b"")) + MAX_MESSAGE
_CHECK = "/envoy.service.auth.v3.Authorization/Check"
_HEALTH = "/grpc.health.v1.Health/Check"
_SERVING, _NOT_SERVING = varint_field(1, 1), varint_field(1, 2)

_LONGEST_SECONDS = 60.0
"""The seconds from which on a call's deadline ends nothing: no look-up takes so long."""

_OPERATION = "check"
_TYPE = b"content-type: application/grpc\r\n"
_HEAD = ResponseHead(200, b"OK", _TYPE, None)
_SUCCEEDED = b"grpc-status: 0\r\n"
_UNIMPLEMENTED = ResponseHead(
    200, b"OK", _TYPE + b"grpc-status: 12\r\ngrpc-message: no such method\r\n", None
)
_NOT_GRPC = "this port answers gRPC alone: calls of HTTP/2 with the content type `application/grpc`"


class GrpcMethods:
    """The methods of one port, whose checks `service` answers. `ready` returns whether the sidecar
    is ready. `responses` counts what is not gRPC; request ids in answers to it start with
    `prefix`."""

    def __init__(
        self,
        service: CheckService,
        ready: Callable[[], bool],
        bodies: BodyBudget,
        renderer: ResponseRenderer,
        responses: Counter,
        prefix: str,
    ) -> None:
        self._service = service
        self._ready = ready
        self._bodies = bodies
        self._renderer = renderer
        self._responses = responses
        self._prefix = prefix
        self._numbers = itertools.count(1)

    async def serve(self, request: HttpRequest) -> Answer:
        if not _is_call(request):
            return self._refuse(request)
        if request.method == "POST" and request.target == _CHECK:
            return await self._check(request)
        if request.method == "POST" and request.target == _HEALTH:
            return _respond(request, _SERVING if self._ready() else _NOT_SERVING)
        request.respond(_UNIMPLEMENTED, b"")
        return ResponseSent(keep_alive=True, status=200)

    def failed(self, request: HttpRequest) -> RenderedResponse | ResponseSent:
        """Answer a request for which `serve` itself has failed."""
        if not _is_call(request):
            return self._refuse(request)
        return _respond(request, self._service.failed(SluiceError("internal error")))

    async def _check(self, request: HttpRequest) -> Answer:
        keys: list[str] = []
        coding = timeout = b""
        for name, value in request.fields:
            if name == b"x-api-key":
                keys.append(value.decode("utf-8", "surrogateescape"))
            elif name == b"grpc-encoding":
                coding = value
            elif name == b"grpc-timeout":
                timeout = value
        seconds = timeout_seconds(timeout)
        watch: Watch = request.watch_client
        if seconds is not None and seconds < _LONGEST_SECONDS:
            watch = _watch_until(request, seconds)
        try:
            presented = presented_key(keys, ())
            digest = key_digest(presented) if presented else None
            # No message of a caller without a valid key is read.
            self._service.admit(digest)
            with self._bodies.lease() as lease:
                try:
                    message = await _message(request, coding, seconds, lease)
                except ConnectionError:
                    return ResponseSent(keep_alive=False)  # the gateway is gone: nothing is decided
                except (Malformed, TooLarge, BodyTooSlow) as error:
                    outcome = await self._service.deny_unreadable(error.message, digest)
                else:
                    outcome = await self._service.judge(message, digest, watch)
            complete = partial(self._complete, request, outcome)
            decisions = outcome.decisions
            if len(decisions) == 1:
                return Deferred(decisions[0].durable, complete)
            for recorded in decisions:
                await recorded.durable
            return complete(None)
        except Exception as error:  # noqa: BLE001  # `failed` logs it
            return _respond(request, self._service.failed(error))

    def _complete(
        self, request: HttpRequest, outcome: Outcome, failure: BaseException | None
    ) -> ResponseSent:
        """Answer a check once its record is on disk. `failure` means that it did not get there:
        then its decision must not take effect."""
        # The record is on disk. If we die here, it ships after the restart; the gateway gets no
        # answer, and lets nothing pass.
        service = self._service
        message = service.answer(outcome) if failure is None else service.failed(failure)
        return _respond(request, message)

    def _refuse(self, request: HttpRequest) -> RenderedResponse:
        """Return the response to a request that is no call of gRPC."""
        # gRPC over HTTP/2, Requests: a server answers another content type with 415.
        status = 415 if request.version == HTTP_2 and not request.fault else 400
        self._responses.add(_OPERATION, str(status))
        body = orjson.dumps(error_body(status, _NOT_GRPC))
        request_id = f"{self._prefix}-{next(self._numbers)}"
        return self._renderer.render(status, body, request_id, close=True)


def _is_call(request: HttpRequest) -> bool:
    return request.version == HTTP_2 and not request.fault and is_grpc(request.fields)


def _respond(request: HttpRequest, message: bytes) -> ResponseSent:
    try:
        request.respond(_HEAD, frame(message), _SUCCEEDED)
    except ConnectionError:
        return ResponseSent(keep_alive=False)  # the gateway is gone; what was decided is on record
    return ResponseSent(keep_alive=True, status=200)


async def _message(
    request: HttpRequest, coding: bytes, seconds: float | None, lease: Lease
) -> bytes:
    """Return the message of a call, inflated if it is compressed. Raises what `read_whole` raises,
    and `Malformed`."""
    seconds = BODY_SECONDS if seconds is None else min(seconds, BODY_SECONDS)
    try:
        body = await read_whole(request.body, 0, _MOST_FRAMED, seconds, lease)
    except TooLarge:
        raise TooLarge(TOO_LARGE) from None
    if body[:1] == b"\1":
        lease.grow(MAX_MESSAGE)
    return unframe(body, coding, MAX_MESSAGE)


def _watch_until(request: HttpRequest, seconds: float) -> Watch:
    """Return the `Watch` of a client that waits for so long: then it counts as gone."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds

    def watch(on_left: Callable[[], None]) -> None:
        request.watch_client(on_left)
        loop.call_at(deadline, on_left)

    return watch
