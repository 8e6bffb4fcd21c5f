"""The witness's routes: `add-checkpoint`, the latest checkpoint of a log, its key, probes, metrics.

Knows HTTP. What is cosigned is decided in `witness`.
"""

import asyncio
import logging
import re

from aiohttp import web
from prometheus_client import CollectorRegistry

from control_api.small_server.answers import HEADERS, error_response
from control_api.small_server.probes import Probes
from control_api.witness.metrics import BY_STATUS, Answer, WitnessMetrics
from control_api.witness.submission import MAX_BODY, Submission
from control_api.witness.witness import OtherSize, Witness
from policies.ground.errors import Malformed, MethodNotAllowed, NotFound, SluiceError, TooLarge

BODY_SECONDS = 10.0
"""How long a body may take to arrive."""
SIZE_TYPE = "text/x.tlog.size"
_TEXT = {**HEADERS, "Content-Type": "text/plain; charset=utf-8"}
_MONITORED = re.compile(r"/([0-9a-f]{64})/checkpoint\Z")
_log = logging.getLogger("sluice.witness")


class Submissions:
    """The handler of the witness's port."""

    def __init__(
        self, witness: Witness, metrics: WitnessMetrics, registry: CollectorRegistry
    ) -> None:
        self._witness = witness
        self._metrics = metrics
        self._probes = Probes(registry, lambda: "stopping" if self.stopping else None)
        self.stopping = False

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        path = request.raw_path.partition("?")[0]
        if path == "/add-checkpoint":
            return await self._submitted(request)
        found = _MONITORED.match(path)
        if path != "/key" and found is None:
            return await self._probes(request)
        if request.method not in ("GET", "HEAD"):
            return error_response(MethodNotAllowed())
        text = f"{self._witness.key.text()}\n" if found is None else self._witness.latest(found[1])
        if text is None:
            return error_response(NotFound("no checkpoint of such a log was cosigned"))
        return web.Response(text=text, headers=_TEXT)

    async def _submitted(self, request: web.BaseRequest) -> web.Response:
        """One submission, one metric; and a log line unless it is everyday."""
        try:
            if request.method != "POST":
                raise MethodNotAllowed
            submission = Submission.parse(await _body(request))
        except SluiceError as error:
            self._metrics.answers.labels(Answer.malformed).inc()
            return error_response(error)
        try:
            line = await self._witness.add(submission)
        except OtherSize as error:
            self._metrics.answers.labels(Answer.conflict).inc()
            headers = {**HEADERS, "Content-Type": SIZE_TYPE}
            return web.Response(status=error.status, body=b"%d\n" % error.size, headers=headers)
        except SluiceError as error:
            answer = BY_STATUS.get(error.status, Answer.failed)
            self._metrics.answers.labels(answer).inc()
            _report(answer, submission, error)
            return error_response(error)
        self._metrics.answers.labels(Answer.cosigned).inc()
        return web.Response(text=line.line(), headers=_TEXT)


def _report(answer: Answer, submission: Submission, error: SluiceError) -> None:
    """Anyone can submit what is unknown or unsigned: that is counted, and not written to a log."""
    if answer is Answer.inconsistent:
        # The log's own key signed it, so the note is proof, and is kept.
        _log.error("a log signed what does not continue it: %s: %r", error, submission.encode())
    elif answer is Answer.failed:
        _log.error("a checkpoint of `%s` is not cosigned: %s", submission.checkpoint.origin, error)


async def _body(request: web.BaseRequest) -> bytes:
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Malformed("the body is compressed, which is not supported")
    pieces, length = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.content.iter_any():
                length += len(piece)
                if length > MAX_BODY:
                    raise TooLarge(f"the body is over the limit of {MAX_BODY} bytes")
                pieces.append(piece)
    except TimeoutError:
        raise Malformed(f"the body did not arrive within {BODY_SECONDS:.0f} s") from None
    except (ConnectionError, web.RequestPayloadError):
        raise Malformed("the body is cut short") from None
    return b"".join(pieces)
