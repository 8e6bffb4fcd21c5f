"""Decides again, every second, about what lasts: a response that is still arriving, and a tunnel,
which joins two connections. If access is revoked, both are cut. Nothing is recorded while the
access stays allowed.

The handshake of a WebSocket is decided like any retrieval, and the two connections are joined once
the data source has answered 101. Until then, no byte that follows the request reaches the data
source (Pingora CVE-2026-2833). Frames aren't read; whether the connection may go on is asked again
every second.

Knows when to ask and how to cut. Leaves the decision to its caller.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from policies.ground.errors import SluiceError
from sidecar.http.messages.body import BodyStream, ConnectionLost
from sidecar.http.messages.response_parser import SWITCHING
from sidecar.http.server.request import HttpRequest, ResponseSent
from sidecar.proxy.connections import BufferedConnection, Ended, Splice, take_over
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages.request_reader import switching_head
from sidecar.proxy.messages.response_relay import RelayedResponse
from sidecar.proxy.pipeline.authorizer import Authorizer, Denied
from sidecar.proxy.pipeline.lineage import COMPLETED, TRUNCATED
from sidecar.proxy.pipeline.request_context import AllowedRequest, decision_fields
from sidecar.proxy.proxy_metrics import UpstreamNoResponse
from sidecar.proxy.upstream.exchange import UpstreamResponse

log = logging.getLogger(__name__)


class NoLongerAllowed(Exception):
    """the response is not allowed any more. `cause` is the denial, which has been recorded, or why
    none could be"""

    def __init__(self, cause: Denied | SluiceError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextmanager
def reauthorizing(
    request: HttpRequest,
    allowed: AllowedRequest,
    body: BodyStream,
    authorizer: Authorizer,
    seconds: float,
) -> Iterator[None]:
    """Decide every `seconds`, while the `with` block reads and relays a response, whether the
    request is still allowed. If it isn't, the response's `body` fails with `NoLongerAllowed`. If
    the agent has part of the response, or if all of it has arrived and is still being inspected,
    the connection to the agent is reset: its end must not look like the end of the response."""
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


async def reauthorize_late_response(
    allowed: AllowedRequest, authorizer: Authorizer, response: UpstreamResponse
) -> None:
    """Decide anew before a `response` is relayed whose head took long to arrive. Raises
    `NoLongerAllowed`. If it raises anything, the response is finished first: the agent may also
    leave while this waits."""
    try:
        await _reauthorize(allowed, authorizer)
    except BaseException:
        await response.finish()
        raise


async def _reauthorize(allowed: AllowedRequest, authorizer: Authorizer) -> None:
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
            await _reauthorize(allowed, authorizer)
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


class TunnelResult(NamedTuple):
    """The result of a tunnel that has ended: its `outcome`, the numbers of bytes from the agent
    (`up`) and to it (`down`), and the SHA-256, in hex, of the bytes to the agent."""

    outcome: str
    up: int
    down: int
    sha256: str


async def run_tunnel(
    agent: BufferedConnection,
    upstream: BufferedConnection,
    limits: ProxyLimits,
    reauthorize: Callable[[], Awaitable[None]],
    done: Callable[[TunnelResult], None],
    open_splices: set[Splice],
) -> None:
    """Splice the two connections until both have ended, one is lost, nothing passes for
    `tunnel_idle_seconds`, or `reauthorize`, called every `reauthorize_seconds`, raises `Denied`.
    That denial has been recorded; the agent only sees that its connection ends.

    Calls `done` with the result, even when cancelled. `open_splices` holds the splice until then.
    """
    digest = hashlib.sha256()
    splice = Splice(agent.transport, upstream.transport, limits.tunnel_idle_seconds, digest.update)
    agent.hand_to(splice.up)
    upstream.hand_to(splice.down)
    open_splices.add(splice)
    try:
        # Unlike `wait_for`, `wait` leaves the splice running when the time is up.
        while not (await asyncio.wait((splice.finished,), timeout=limits.reauthorize_seconds))[0]:
            await reauthorize()
    except (Denied, SluiceError) as error:
        log.info("a tunnel is cut: %s", error)
    finally:
        # The end of the connection may itself cancel the task that runs this, so the result is
        # reported here.
        outcome = COMPLETED if splice.how is Ended.BOTH else TRUNCATED
        # Only after the outcome is read: aborting the splice would make it LOST.
        splice.abort()
        open_splices.remove(splice)
        done(TunnelResult(outcome, splice.up.count, splice.down.count, digest.hexdigest()))


async def run_websocket(
    request: HttpRequest,
    allowed: AllowedRequest,
    response: UpstreamResponse,
    authorizer: Authorizer,
    limits: ProxyLimits,
    relayed: RelayedResponse,
    alias: str,
) -> ResponseSent:
    """Grant a WebSocket to the agent and run it to its end. `response` is the 101 of the data
    source `alias`."""
    try:
        event = decision_fields(allowed.decisions)
        request.start_response(switching_head(response.message, event, alias))
        relayed.begin(response)
        agent, _ = take_over(request, limits.buffer_bytes)
        source = response.detach()
    except BaseException as error:
        await response.finish()
        if isinstance(error, ConnectionLost):
            raise UpstreamNoResponse(
                f"the data source `{alias}` closed the connection with its 101"
            ) from error
        raise

    async def reauthorize() -> None:
        await authorizer.reauthorize(allowed.sources, allowed.routed.attribution)

    def done(result: TunnelResult) -> None:
        relayed.record_tunnel(result.outcome, result.down, result.sha256)

    await run_tunnel(agent, source, limits, reauthorize, done, set())
    # The connection now never carries HTTP again.
    return ResponseSent(keep_alive=False, status=SWITCHING)
