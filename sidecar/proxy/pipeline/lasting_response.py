"""Judges a response that lasts again, once a second: what a revocation forbids ends with it, as a
tunnel does. Nothing is recorded while it stays allowed.

Knows when to ask and how to cut. Leaves the decision to the authorizer.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from policies.ground.errors import SluiceError
from sidecar.http.messages.body import BodyStream
from sidecar.http.server.request import HttpRequest
from sidecar.proxy.pipeline.authorizer import Authorizer, Denied
from sidecar.proxy.pipeline.request_context import AllowedRequest
from sidecar.proxy.upstream.response import UpstreamResponse

log = logging.getLogger(__name__)


class NoLongerAllowed(Exception):
    """the response is not allowed any more. `cause` is the denial, which has been recorded, or why
    none could be"""

    def __init__(self, cause: Denied | SluiceError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextmanager
def judged_again(
    request: HttpRequest,
    allowed: AllowedRequest,
    body: BodyStream,
    authorizer: Authorizer,
    seconds: float,
) -> Iterator[None]:
    """Judge anew every `seconds` while the response with this `body` is read and relayed. If it is
    not allowed any more, `body` fails with `NoLongerAllowed`. If the agent has part of it, or if it
    is complete and still being inspected, the connection is reset: its end must not look like the
    response's.
    """
    if body.complete:
        yield
        return
    loop = asyncio.get_running_loop()
    watching: asyncio.Task[None] | None = None

    def watch() -> None:
        nonlocal watching
        watching = loop.create_task(_watch(request, allowed, body, authorizer, seconds))

    # Most responses have ended before, and cost no more than a timer.
    timer = loop.call_later(seconds, watch)
    try:
        yield
    finally:
        timer.cancel()
        if watching is not None:
            watching.cancel()


async def judge_again(
    allowed: AllowedRequest, authorizer: Authorizer, response: UpstreamResponse
) -> None:
    """Judge a `response` whose head came late. Raises `NoLongerAllowed`. Whatever it raises, the
    response is finished: the agent may also leave while this waits."""
    try:
        await _judge(allowed, authorizer)
    except BaseException:
        await response.finish()
        raise


async def _judge(allowed: AllowedRequest, authorizer: Authorizer) -> None:
    try:
        await authorizer.reauthorize(allowed.sources, allowed.routed.attribution)
    except (Denied, SluiceError) as error:
        raise NoLongerAllowed(error) from error


async def _watch(
    request: HttpRequest,
    allowed: AllowedRequest,
    body: BodyStream,
    authorizer: Authorizer,
    seconds: float,
) -> None:
    try:
        while True:
            await _judge(allowed, authorizer)
            await asyncio.sleep(seconds)
    except NoLongerAllowed as error:
        log.info("a response is cut: %s", error)
        body.fail(error)
    except Exception as error:
        log.exception("a response can't be judged again, so it is cut")
        body.fail(NoLongerAllowed(SluiceError(str(error))))
    # A body that is complete no longer fails, but what is made of it may not have left yet.
    if request.response_started or body.complete:
        request.reset()
