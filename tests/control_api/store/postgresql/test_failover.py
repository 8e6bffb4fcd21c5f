"""A primary with a synchronous standby: what was answered survives the primary, and what was not
confirmed by the standby is not answered."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from control_api.database_limits import DatabaseLimits
from control_api.log.verify import verify
from control_api.store.errors import WriteFault
from control_api.store.migrate import migrate
from control_api.store.store import Store
from tests.chaos.servers import Postgres
from tests.support import postgres, waiting
from tests.support.open_store import TENANT, OpenStore, decision, opened
from tests.support.ports import free_port

LIMITS = DatabaseLimits(seconds=1)


@pytest.fixture
def servers() -> Iterator[list[Postgres]]:
    """A primary. A test adds standbys."""
    with tempfile.TemporaryDirectory(prefix="sluice-failover-") as made:
        folder = Path(made)
        folder.chmod(0o711)  # as root, `nobody` must get through
        servers = [Postgres(folder / "primary", free_port())]
        try:
            servers[0].make()
            yield servers
        finally:
            for server in servers:
                server.stop()


class Writers:
    """Tasks that append until `stop`. `answered` has the places that they were told."""

    def __init__(self, world: OpenStore, count: int = 8) -> None:
        self.answered: set[tuple[int, str]] = set()
        self.refused = 0
        self._world, self._over = world, asyncio.Event()
        self._tasks = [asyncio.ensure_future(self._write()) for _ in range(count)]

    async def _write(self) -> None:
        while not self._over.is_set():
            try:
                place = await self._world.log.append(TENANT, decision())
            except WriteFault:
                self.refused += 1
                await asyncio.sleep(0.05)
            else:
                self.answered.add((place.seq, place.eid))

    async def stop(self) -> None:
        self._over.set()
        await asyncio.gather(*self._tasks)

    async def more(self, count: int = 100) -> None:
        enough = len(self.answered) + count
        await waiting.until_async("records are answered", lambda: len(self.answered) >= enough)


async def stored(store: Store) -> set[tuple[int, str]]:
    async with store.reading(TENANT) as connection:
        rows = await connection.exec_driver_sql("SELECT seq, eid FROM log_entries")
        return {(row.seq, row.eid) for row in rows}


async def a_failover_under_load(world: OpenStore, primary: Postgres, standby: Postgres) -> None:
    writers = Writers(world)
    await writers.more()
    primary.signal(signal.SIGKILL)
    await waiting.until_async("writes fail", lambda: writers.refused > 0)
    await asyncio.to_thread(standby.promote)
    await writers.more()
    await writers.stop()
    assert writers.answered <= await stored(world.store)


async def a_failover_to_a_standby_that_lagged(
    world: OpenStore, primary: Postgres, standby: Postgres
) -> None:
    """Nothing is answered, or shown to a reader, before the standby has it."""
    writers = Writers(world)
    await writers.more()
    standby.signal(signal.SIGKILL)
    # Twice as many as can have been on their way: each was tried again.
    await waiting.until_async("writes fail", lambda: writers.refused >= 16)
    answered, shown = set(writers.answered), await stored(world.store)
    await waiting.until_async("writes fail still", lambda: writers.refused >= 32)
    assert writers.answered == answered
    assert await stored(world.store) == shown
    primary.signal(signal.SIGKILL)
    await asyncio.to_thread(standby.start)
    await asyncio.to_thread(standby.promote)
    await writers.more()
    await writers.stop()
    assert answered | shown | writers.answered <= await stored(world.store)


@pytest.mark.deep(
    stands_in="tests/control_api/store/postgresql/test_hosts.py::test_the_host_that_serves_is_found_and_tried_first"
)
async def test_failovers_lose_nothing_that_was_answered(servers: list[Postgres]) -> None:
    primary, ports = servers[0], (servers[0].port, free_port())
    service = primary.url(postgres.SERVICE, *ports)
    await migrate(primary.url(postgres.OWNER, primary.port), service)
    servers.append(await asyncio.to_thread(primary.standby, ports[1]))
    async with opened(service, LIMITS) as world:
        await a_failover_under_load(world, *servers)
        servers.append(await asyncio.to_thread(servers[1].standby, ports[0]))
        await a_failover_to_a_standby_that_lagged(world, *servers[1:])
        held = await stored(world.store)
        assert len({eid for _, eid in held}) == len(held)
        report = await verify(world.store, TENANT)
        assert (report["valid"], report["total"]) == (True, len(held))
