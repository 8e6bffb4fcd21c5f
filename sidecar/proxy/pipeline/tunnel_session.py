"""What lasts as long as two joined connections do: the splice between them, and the question, asked
again every while, whether they may still be joined. A revocation cuts them.

Knows connections. Knows nothing of what may be: `still` does.
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


class TunnelSession(NamedTuple):
    """How it ended, bytes from the agent and to it, and the SHA-256 in hex of the latter."""

    outcome: str
    up: int
    down: int
    sha256: str


async def joined(
    agent: BufferedConnection,
    upstream: BufferedConnection,
    limits: ProxyLimits,
    still: Callable[[], Awaitable[None]],
    done: Callable[[TunnelSession], None],
    lasting: set[Splice],
) -> None:
    """Joins the two until both have ended, one is lost, nothing passes for long, or `still` raises
    `Denied`: it has been recorded, and there is nobody to tell but by the end of the connection.
    `done` hears what came of it, also where this is cancelled; it is among `lasting` meanwhile."""
    digest = hashlib.sha256()
    splice = Splice(agent.transport, upstream.transport, limits.tunnel_idle_seconds, digest.update)
    agent.join(splice, splice.up, splice.down)
    upstream.join(splice, splice.down, splice.up)
    lasting.add(splice)
    finished = asyncio.get_running_loop().create_task(splice.finished())
    try:
        while not (await asyncio.wait((finished,), timeout=limits.rejudge_seconds))[0]:
            await still()
    except (Denied, SluiceError) as error:
        log.info("a tunnel is cut: %s", error)
    finally:
        # Whoever runs this may be cancelled by the very end of the connection.
        outcome = COMPLETED if splice.how is Ended.BOTH else TRUNCATED
        splice.lost()
        finished.cancel()
        lasting.remove(splice)
        done(TunnelSession(outcome, splice.up.count, splice.down.count, digest.hexdigest()))
