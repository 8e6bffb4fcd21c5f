"""Answers checks over HTTP: reads the request that the check asks about, has it judged, and answers
once the record is on disk. Gateways take some statuses for permission; only a request that may pass
gets one of these. Decides nothing.

A door answers only 200, 401, 403, 404 and 413, and 400 for anything that is not HTTP: gateways that
fail open take a 5xx for permission (`INTEGRATIONS.md`, Check doors over HTTP).
"""

import itertools
import logging
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, NamedTuple

import orjson

from policies.ground.errors import (
    Forbidden,
    Malformed,
    NotFound,
    SluiceError,
    TooLarge,
    Unauthorized,
    error_body,
)
from policies.ground.process.json_logging import about
from sidecar.api.dispatch import Dispatcher
from sidecar.api.request_head import SPOKEN_VERSIONS, trusted_framing
from sidecar.api.route import decision_lines
from sidecar.doors import check_head
from sidecar.doors.check_head import PREFIX, CheckHead, HttpDoor, read_head
from sidecar.doors.judgement import NO_BODY, CheckedRequest, Judgement, Outcome
from sidecar.http import request_body
from sidecar.http.rendered_response import RenderedResponse, ResponseRenderer
from sidecar.http.request_body import BodyBudget, Lease, read_whole, take_whole
from sidecar.http.server.request import Answer, Deferred, HttpRequest
from sidecar.metrics.metrics import Metrics

_RETRY_SECONDS = 1
_PASSED_ON = (Unauthorized, Forbidden, NotFound, TooLarge)
_NO_DECISION = b"X-Sluice-Decision: NONE\r\nRetry-After: %d\r\n" % _RETRY_SECONDS
_OPEN = b"X-Sluice-Decision: ALLOW\r\n"


class BrokenHttp(Malformed):
    """the request is not valid HTTP/1.1"""


class CheckAnswer(NamedTuple):
    """The answer to a check over HTTP: its status, header lines and body. Each header line ends
    with its line break."""

    status: int
    lines: bytes
    body: bytes
    close: bool = False
    """True if the connection is closed after this answer."""


def answer_to_outcome(outcome: Outcome, allow_lines: bytes) -> CheckAnswer:
    """Return the answer to a judged check. Call this once every decision is durable."""
    shown = outcome.shown
    if shown is None:
        return CheckAnswer(200, _OPEN + allow_lines, b"")
    lines = decision_lines(shown)
    if outcome.passes:
        return CheckAnswer(200, lines + allow_lines, b"")
    body = error_body(403, shown.decision.reason) | {"decision": shown.evaluation()}
    return CheckAnswer(403, lines, orjson.dumps(body))


def answer_to_error(error: SluiceError) -> CheckAnswer:
    """Return the answer to a check about which nothing was decided because of `error`."""
    if isinstance(error, BrokenHttp):
        return CheckAnswer(400, b"", error.encoded(), close=True)
    if isinstance(error, _PASSED_ON):
        return CheckAnswer(error.status, b"", error.encoded())
    # Such as a disk that is full, or no policy set.
    body = error_body(403, error.message, error.details)
    return CheckAnswer(403, _NO_DECISION, orjson.dumps(body), close=error.status == 408)


log = logging.getLogger(__name__)

_OPERATION = "check"
_ENVOY_REMOVES = (
    b"x-envoy-auth-headers-to-remove: "
    b"x-api-key,x-sluice-user,x-sluice-session,x-sluice-task,x-sluice-sensitivity\r\n"
)


class HttpDoors:
    """The check doors of one HTTP port. New request ids start with `prefix`."""

    def __init__(
        self,
        judgements: Iterable[Judgement],
        renderer: ResponseRenderer,
        metrics: Metrics,
        prefix: str,
        bodies: BodyBudget,
    ) -> None:
        self._doors = {each.door.name: _http_door(each) for each in judgements}
        self._renderer = renderer
        self._responses = metrics.responses
        self._prefix = prefix
        self._numbers = itertools.count(1)
        self._bodies = bodies

    async def serve(self, request: HttpRequest) -> Answer:
        if request.fault or not (request.known or trusted_framing(request)):
            return self._render(answer_to_error(BrokenHttp()), None)
        if request.offers_upgrade:
            # RFC 9931: what follows may be tunnelled data. No upgrade is granted here.
            request.stop_reading()
        if not (request.known or request.version in SPOKEN_VERSIONS):
            return self._render(answer_to_error(BrokenHttp()), None)
        head: CheckHead = request.head if request.known else read_head(request, self._doors)
        try:
            with self._bodies.lease() as lease:
                door, outcome = await self._judge(request, head, lease)
            complete = partial(self._complete, head, door, outcome)
            decisions = outcome.decisions
            if len(decisions) == 1:
                return Deferred(decisions[0].durable, complete)
            for recorded in decisions:
                await recorded.durable
            return complete(None)
        except ConnectionError:
            raise  # the gateway is gone, and nothing was decided
        except Exception as error:  # noqa: BLE001  # `_render_error` logs it
            return self._render_error(head, error)

    def failed(self, _request: HttpRequest) -> RenderedResponse:
        """Return the response to a check for which `serve` itself has failed."""
        return self._render(answer_to_error(SluiceError()), None)

    async def _judge(
        self, request: HttpRequest, head: CheckHead, lease: Lease
    ) -> tuple[HttpDoor, Outcome]:
        door, asked = head.door, head.question
        if door is None:
            # A caller without a key learns nothing about the doors (`CONTRACT.md`, Errors).
            raise Unauthorized if head.key_digest is None else NotFound("no such door")
        body: bytes | None = None
        if not request.body.complete or head.length > request_body.MAX_BODY:
            # The body of a caller without a valid key is never read.
            door.judgement.admit(head.key_digest)
        if request.body.complete:
            body = take_whole(request.body, head.length, request_body.MAX_BODY, lease)
        else:
            body = await self._read_body(request, head, lease)
        fields = head.head
        if fields is None:
            assert head.template is not None  # one of the two
            fields = head.template.fill(request.raw_head)
        check = CheckedRequest(
            asked.method,
            asked.target,
            fields,
            None if asked.partial else body or None,
            (asked.partial if body else "") or door.no_body,
            asked.fault,
            head.template,
            head.traceparent,
            request.watch_client,
        )
        return door, await door.judgement.judge(check, head.key_digest)

    async def _read_body(self, request: HttpRequest, head: CheckHead, lease: Lease) -> bytes:
        if head.waits_for_continue:
            request.send_continue()
        limit, seconds = request_body.MAX_BODY, request_body.BODY_SECONDS
        try:
            return await read_whole(request.body, head.length, limit, seconds, lease)
        except Malformed as error:
            raise BrokenHttp(error.message) from error

    def _complete(
        self, head: CheckHead, door: HttpDoor, outcome: Outcome, failure: BaseException | None
    ) -> RenderedResponse:
        """Render the response once the record is on disk. `failure` means that it did not get
        there: then its decision must not take effect."""
        if failure is not None:
            return self._render_error(head, failure)
        return self._render(answer_to_outcome(outcome, door.allow_lines), head.request_id)

    def _render_error(self, head: CheckHead, failure: BaseException) -> RenderedResponse:
        request_id = head.request_id or self._make_id()
        if isinstance(failure, SluiceError):
            return self._render(answer_to_error(failure), request_id)
        # A bug of ours: the log gets the details, the gateway the id under which they are logged.
        log.error("a check failed", exc_info=failure, extra=about(request_id))
        error = SluiceError(f"internal error in request `{request_id}`")
        return self._render(answer_to_error(error), request_id)

    def _render(self, answer: CheckAnswer, request_id: str | None) -> RenderedResponse:
        self._responses.add(_OPERATION, str(answer.status))
        return self._renderer.render(
            answer.status,
            answer.body,
            request_id or self._make_id(),
            extra_lines=answer.lines,
            close=answer.close,
        )

    def _make_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"


class SharedPort:
    """Serves the sidecar's own port: sends checks to the doors, and every other request to the
    API."""

    def __init__(self, api: Dispatcher, doors: HttpDoors) -> None:
        self._api = api
        self._doors = doors

    def serve(self, request: HttpRequest) -> Coroutine[Any, Any, Answer]:
        if request.target.startswith(PREFIX):
            return self._doors.serve(request)
        return self._api.serve(request)

    def failed(self, request: HttpRequest) -> RenderedResponse:
        """Return the response to a request for which `serve` itself has failed."""
        doors = request.target.startswith(PREFIX)
        return self._doors.failed(request) if doors else self._api.failed(request)


def _http_door(judgement: Judgement) -> HttpDoor:
    protocol = judgement.door.protocol
    return HttpDoor(
        judgement,
        check_head.question_reader(judgement.door, uses_host=judgement.protocol.uses_host),
        NO_BODY[protocol],
        _ENVOY_REMOVES if protocol == "envoy_http" else b"",
        protocol == "forward_auth",
    )
