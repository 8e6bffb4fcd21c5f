"""A full replica that polls a control API, without the rest of a sidecar."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from policies.sets.policy_set import PolicySet
from sidecar.control.client import ControlClient
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.full_replica import FullStore, PollLoop
from sidecar.policy_cache.long_poll import LongPoll
from sidecar.policy_cache.policy_store import CacheFile
from sidecar.policy_cache.replica import ReplicaState
from tests.support.fake_control_api import SIDECAR_KEY, FakeControlApi
from tests.support.sidecar import FakeClock
from tests.support.waiting import until_async


class PollingReplica:
    """A poll loop and its store, without the rest of a sidecar."""

    def __init__(
        self, directory: Path, control: ControlClient, clock: FakeClock, limit: float
    ) -> None:
        self.clock = clock
        self.file = CacheFile(directory)
        self.documents = FullStore(self.file)
        self.fetched: list[str] = []
        self.policy_set = PolicySet(self._fetch)
        self.freshness = Freshness(limit, clock.clock)
        self.other_stores = 0
        self.changes: list[Any] = []
        state = ReplicaState(
            self.policy_set, self.freshness, clock.clock, self.changes.append, self._other_store
        )
        self.follower = PollLoop(state, self.documents, LongPoll(control, limit / 4))

    def _fetch(self, name: str) -> bytes | None:
        self.fetched.append(name)
        return self.documents.fetch(name)

    def _other_store(self) -> None:
        self.other_stores += 1

    def stale(self) -> bool:
        return self.freshness.stale(self.clock.clock.monotonic())

    def rows(self) -> int:
        (count,) = self.file.connection.execute("SELECT count(*) FROM documents").fetchone()
        return int(count)

    async def sync(self) -> None:
        """Polls until there is no more to fetch at once."""
        await self.follower.step()
        while self.documents.next_position != self.documents.position:
            await self.follower.step()


@asynccontextmanager
async def polling_replica(
    tmp_path: Path, control: FakeControlApi, *, clock: FakeClock | None = None, limit: float = 2.0
) -> AsyncIterator[PollingReplica]:
    async with ControlClient(control.address, SIDECAR_KEY) as connection:
        made = PollingReplica(tmp_path / "cache", connection, clock or FakeClock(), limit)
        try:
            yield made
        finally:
            made.file.close()


async def run_until(replica: PollingReplica, what: str, true: Any) -> None:
    running = asyncio.create_task(replica.follower.run())
    try:
        await until_async(what, true)
    finally:
        running.cancel()
