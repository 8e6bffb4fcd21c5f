"""A partial replica that follows the control API, without Redis and the rest of a sidecar."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from policies.ground.keys import key_digest
from policies.sets.policy_set import TENANT, PolicySet, key_name
from sidecar.control.client import ControlClient
from sidecar.policy_cache.feed import FeedPage, Position
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.key_pin import verify_origin
from sidecar.policy_cache.long_poll import LongPoll
from sidecar.policy_cache.partial_replica.control_loop import ControlLoop
from sidecar.policy_cache.partial_replica.incremental_sync import IncrementalSync
from sidecar.policy_cache.partial_replica.working_set import PartialState, WorkingSet
from sidecar.policy_cache.policy_store import CacheFile
from tests.support.fake_control_api import SIDECAR_KEY, FakeControlApi
from tests.support.sidecar import FakeClock

REQUIRED = (TENANT, key_name(key_digest(SIDECAR_KEY)))


class LookingReplica:
    """A loop that follows the control API, and its working set."""

    def __init__(self, directory: Path, control: ControlClient, limit: float) -> None:
        self.clock = FakeClock()
        self.file = CacheFile(directory)
        self.held = WorkingSet(self.file, REQUIRED)
        self.policy_set = PolicySet(self.held.fetch)
        self.freshness = Freshness(limit, self.clock.clock)
        self.blocked: str | None = None
        state = PartialState(
            self.policy_set,
            self.freshness,
            self.clock.clock,
            lambda _: None,
            lambda: None,
            self.held,
            REQUIRED,
            lambda: self.blocked,
        )
        sync = IncrementalSync(state, self._put_in_force)
        self.loop = ControlLoop(state, LongPoll(control, limit / 4), sync, self._verify)

    def _put_in_force(self, former: Position, changed: set[str] | None) -> None:
        pass

    def _verify(self, page: FeedPage) -> None:
        held = self.held
        pin = verify_origin(page, held.tenant_id, held.pin, self.clock.clock.now())
        held.set_origin(page.tenant_id, pin)

    def stale(self) -> bool:
        return self.freshness.stale(self.clock.clock.monotonic())

    def names(self) -> set[str]:
        """Of the documents that are held, or known not to exist."""
        return set(self.held.digests())

    async def sync(self) -> None:
        """Polls twice: the first one may only begin."""
        await self.loop.step(0.0)
        await self.loop.step(0.0)


@asynccontextmanager
async def looking_replica(
    tmp_path: Path, control: FakeControlApi, *, limit: float = 60.0
) -> AsyncIterator[LookingReplica]:
    async with ControlClient(control.address, SIDECAR_KEY) as connection:
        made = LookingReplica(tmp_path / "cache", connection, limit)
        try:
            yield made
        finally:
            made.file.close()
