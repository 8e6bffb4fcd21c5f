"""Runs a tunnel: splices two connections, and asks once a second whether they may stay joined. A
revocation cuts them.

Knows connections. Leaves the decision to its caller.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from policies.ground.errors import SluiceError
from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.connections.splice import Ended, Splice
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.pipeline.authorizer import Denied
from sidecar.proxy.pipeline.lineage import COMPLETED, TRUNCATED

log = logging.getLogger(__name__)


class TunnelResult(NamedTuple):
    """How a tunnel ended, the bytes from the agent (`up`) and to it (`down`), and the SHA-256 of
    the latter in hex."""

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
    """Joins the two connections until both have ended, one is lost, nothing passes for
    `tunnel_idle_seconds`, or `reauthorize` raises `Denied`. That denial has been recorded; only the
    end of the connection can tell the agent.

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
