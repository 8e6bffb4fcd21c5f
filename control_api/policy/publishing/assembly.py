"""Assembles the objects that publish policy sets, heartbeats and sessions to Redis. A process runs
them if it is configured with a Redis."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from control_api.metrics.metrics import RedisMetrics
from control_api.policy.publishing.heartbeats import Heartbeats
from control_api.policy.publishing.push_queue import PushQueue
from control_api.policy.publishing.reconcile import Reconciler, Resume
from control_api.policy.publishing.redis_client import RedisClient
from control_api.policy.publishing.redis_sets import RedisSets, SetSigner
from control_api.policy.publishing.session_claims import SessionClaims
from control_api.store.queries.session_rows import SessionRow
from control_api.store.store import Store
from policies.ground.addresses import RedisUrl
from policies.ground.clock import Clock
from policies.ground.process.outage_logger import OutageLogger

CLOSE_SECONDS = 2.0
"""The seconds for which a stopping service waits for pushes that are under way."""
_log = logging.getLogger("sluice.publishing")


class Publishing:
    """Publishes policy sets, heartbeats and sessions to Redis. Create it before the first write to
    the store, so that it sees every publication. Redis need not be up yet."""

    def __init__(
        self,
        url: RedisUrl,
        store: Store,
        signer: SetSigner,
        clock: Clock,
        entropy: Callable[[int], bytes],
        metrics: RedisMetrics,
        resume: Resume,
    ) -> None:
        client = self._client = RedisClient(url)
        sets = RedisSets(client)
        # Lock tokens name the process, so that it can take over the lock that its own failed
        # attempt left behind.
        process = entropy(8).hex()
        reconciler = Reconciler(
            store, sets, signer, lambda: f"{process}:{entropy(8).hex()}", resume
        )
        outage = OutageLogger(
            _log,
            f"policy sets can't be pushed to Redis at {client.address}",
            f"policy sets are pushed to Redis at {client.address} again",
        )
        self.pushes = PushQueue(
            store.group, sets, reconciler, signer, metrics, clock.monotonic, outage
        )
        self._heartbeats = Heartbeats(client, store, self.pushes, signer, metrics, clock.now)
        self._sessions = SessionClaims(store.group, client, signer, metrics)
        self._clock = clock
        store.on_published(self.pushes.published)

    @property
    def loops(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        """The coroutine functions that run for as long as the service does."""
        return self._heartbeats.run, self.pushes.run, self._sessions.run

    def session(self, tenant_id: str, row: SessionRow) -> None:
        """Publish a session's claim or revocation to Redis. Call it after the commit."""
        self._sessions.send(tenant_id, row, row.state(self._clock.now()))

    async def close(self) -> None:
        """Stop publishing, and give pushes under way a moment to finish. What is left over is found
        and pushed by another replica, when a sidecar asks that one for a heartbeat."""
        for each in (self.pushes, self._heartbeats, self._sessions):
            each.close()
        end = self._clock.monotonic() + CLOSE_SECONDS
        while (self.pushes.busy or self._sessions.busy) and self._clock.monotonic() < end:  # noqa: ASYNC110  once
            await asyncio.sleep(0.01)
        await self._client.close()
