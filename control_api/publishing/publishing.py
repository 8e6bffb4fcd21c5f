"""Publishing put together: what a process with a Redis runs. Knows none of its parts' rules."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from control_api.metrics.metrics import Instruments
from control_api.publishing.heartbeats import Heartbeats
from control_api.publishing.push_queue import PushQueue
from control_api.publishing.reconcile import GoOn, Reconciler
from control_api.publishing.redis_client import RedisClient
from control_api.publishing.redis_sets import RedisSets
from control_api.publishing.session_claims import SessionClaims
from control_api.publishing.set_signer import SetSigner
from control_api.publishing.state_logger import OutageLogger
from control_api.store.queries.sessions import SessionRow
from control_api.store.store import Store
from policies.ground.clock import Clock
from policies.ground.redis_url import RedisUrl
from policies.ground.signing import KeyRing

LAST_SECONDS = 2.0
"""How long a service that stops waits for what is on its way to Redis."""
_log = logging.getLogger("sluice.publishing")


class Publishing:
    """Made before the first write, so that nothing is published that it does not hear of. It needs
    no Redis to be made."""

    def __init__(
        self,
        url: RedisUrl,
        store: Store,
        ring: KeyRing,
        epoch: str,
        clock: Clock,
        entropy: Callable[[int], bytes],
        instruments: Instruments,
        go_on: GoOn,
    ) -> None:
        self._link = RedisClient(url)
        seal = SetSigner(ring, epoch)
        sets = RedisSets(self._link)
        process = entropy(8).hex()
        mender = Reconciler(store, sets, seal, lambda: f"{process}:{entropy(8).hex()}", go_on)
        trouble = OutageLogger(_log, f"policy sets can't be pushed to Redis at {self._link.place}")
        self._pushes = PushQueue(
            store.group, sets, mender, seal, instruments, clock.monotonic, trouble
        )
        self._heartbeats = Heartbeats(self._link, store, self._pushes, seal, instruments, clock.now)
        self._sessions = SessionClaims(store.group, self._link, seal, instruments)
        self._clock = clock
        store.on_published(self._pushes.published)

    @property
    def loops(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        """Each runs as long as the service."""
        return self._heartbeats.run, self._pushes.run, self._sessions.run

    def session(self, tenant_id: str, row: SessionRow) -> None:
        """A session was claimed or revoked, and that is committed."""
        self._sessions.tell(tenant_id, row, row.state(self._clock.now()))

    async def close(self) -> None:
        """Let what is on its way arrive, for a moment. What does not is found by the next replica
        that a sidecar asks."""
        for each in (self._pushes, self._heartbeats, self._sessions):
            each.close()
        end = self._clock.monotonic() + LAST_SECONDS
        while (self._pushes.busy or self._sessions.busy) and self._clock.monotonic() < end:  # noqa: ASYNC110  once
            await asyncio.sleep(0.01)
        await self._link.close()
