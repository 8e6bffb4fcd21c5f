"""What one process commits is in force in another because PostgreSQL told it: the half-second clock
(`TenantCache.follow`) does not run here. And what happens while PostgreSQL can't tell."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from control_api.store import notices
from control_api.store.notices import CHANNEL, Notice
from control_api.store.postgresql import notice_listener
from control_api.store.postgresql.notice_listener import NoticeListener
from control_api.store.tenant_cache import TenantCache
from control_api.store.transaction import Transaction
from control_api.store.url import UnusableDatabase, parse_url
from policies.definitions.model import Key
from policies.ground.keys import key_digest
from policies.sets.policy_set import key_document, key_name
from tests.control_api.store.databases import postgresql_url
from tests.support import pgbouncer
from tests.support.open_store import OTHER, TENANT, OpenStore, opened
from tests.support.postgres import Server
from tests.support.waiting import PATIENCE, until_async

__all__ = ["postgresql_url"]
DIGEST = key_digest("a key")
SETTING = "SLUICE_LISTEN_DATABASE_URL"


@dataclass
class Replica:
    """A process on the database: its store, its cache, and its listener."""

    world: OpenStore
    cache: TenantCache
    listener: NoticeListener
    heard: list[Notice] = field(default_factory=list)
    states: list[bool] = field(default_factory=list)
    probe: Callable[[str], Awaitable[None]] = field(init=False)

    async def key_in_force(self) -> str | None:
        found = await (await self.cache.get(TENANT)).find_key(DIGEST)
        return None if found is None else found.key_id

    def has_key(self, expected: str | None) -> Callable[[], Awaitable[bool]]:
        async def true() -> bool:
            return await self.key_in_force() == expected

        return true

    @property
    def listens(self) -> bool:
        return self.states[-1]


@asynccontextmanager
async def replica(url: str, listen_at: str | None = None) -> AsyncIterator[Replica]:
    async with opened(url) as world, asyncio.TaskGroup() as group:
        cache = TenantCache(world.store)
        made: Replica

        async def probe(channel: str) -> None:
            async with world.store.reading_all_tenants() as connection:
                await notices.send_to(connection, channel)

        def heard(notice: Notice) -> None:
            made.heard.append(notice)
            cache.noticed(notice)

        states: list[bool] = []

        def listening(state: bool) -> None:
            states.append(state)

        async def probing(channel: str) -> None:
            await made.probe(channel)  # a test may replace it

        listener = NoticeListener(parse_url(listen_at or url), SETTING, probing, heard, listening)
        made = Replica(world, cache, listener, states=states)
        made.probe = probe
        tasks = [group.create_task(each) for each in (listener.run(), cache.follow_notices())]
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()


@pytest.fixture
async def pair(postgresql_url: str) -> AsyncIterator[tuple[Replica, Replica]]:
    async with replica(postgresql_url) as here, replica(postgresql_url) as there:
        for each in (here, there):
            await until_async("it listens", lambda each=each: each.listens)  # type: ignore[misc]
        yield here, there


async def publish(world: OpenStore, key_id: str | None, **others: bytes) -> None:
    body = None if key_id is None else key_document(Key(key_id, "evaluate"))

    async def work(tx: Transaction) -> None:
        await tx.publish({key_name(DIGEST): body, **others})

    await world.store.write(TENANT, work)


async def roll_back(world: OpenStore) -> None:
    """A transaction that publishes, and is rolled back."""

    async def work(tx: Transaction) -> None:
        await tx.publish({"lost": b"1", "too": b"2"})
        raise LookupError

    with pytest.raises(LookupError):
        await world.store.write(TENANT, work)


async def test_a_change_at_one_replica_is_in_force_at_the_other(
    pair: tuple[Replica, Replica], caplog: pytest.LogCaptureFixture
) -> None:
    """Also once a connection that was lost is back."""
    here, there = pair
    await publish(there.world, "live")
    assert await here.key_in_force() == "live"
    await roll_back(there.world)
    await publish(there.world, None)
    await until_async("the key is revoked", here.has_key(None))
    assert here.heard == [Notice(TENANT, 1), Notice(TENANT, 2)]  # nothing of what was rolled back
    before = len(here.states)
    await here.world.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'sluice notices' AND datname = current_database()"
    )
    await until_async("it is lost", lambda: False in here.states[before:])
    await until_async("it listens again", lambda: here.listens)
    assert f"{SETTING}: the connection was closed: " in caplog.text
    assert "recovered: notices of other processes' changes arrive again" in caplog.text
    await publish(there.world, "live")
    await until_async("the key is in force", here.has_key("live"))


@pytest.mark.deep(
    stands_in="tests/control_api/store/test_tenant_cache.py::test_a_revision_missed_by_this_process_hides_nothing"
)
async def test_two_replicas_that_write_at_once_agree(pair: tuple[Replica, Replica]) -> None:
    here, there = pair
    await publish(here.world, "first")
    states = [await each.cache.get(TENANT) for each in pair]

    async def write(each: Replica, name: str) -> None:
        for number in range(20):
            await publish(each.world, f"{name}-{number}", **{f"{name}-{number}": b"1"})

    await asyncio.gather(write(here, "here"), write(there, "there"))
    async with here.world.store.reading(TENANT) as connection:
        last = await tenant_revision(connection)
    await until_async(
        "both have the last revision",
        lambda: all(state.policy_set.revision == last for state in states),
    )
    assert await here.key_in_force() == await there.key_in_force()


async def tenant_revision(connection: Any) -> int:
    from control_api.store.queries import documents

    return await documents.current(connection, TENANT)


@pytest.mark.deep(
    stands_in="tests/control_api/store/test_tenant_cache.py::test_notices_that_arrive_during_a_read_cause_only_one_more"
)
async def test_a_storm_of_notices_causes_few_reads(
    pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = pair
    await publish(there.world, "before")
    assert await here.key_in_force() == "before"
    reads, read = 0, here.world.database.reading
    begun, released = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def held(tenant_id: str) -> AsyncIterator[Any]:
        nonlocal reads
        reads += 1
        async with read(tenant_id) as connection:
            begun.set()
            await released.wait()
            yield connection

    monkeypatch.setattr(here.world.database, "reading", held)
    await publish(there.world, "0")
    await begun.wait()
    for number in range(1, 50):
        await publish(there.world, str(number))
    last = here.heard[0].revision + 50
    await until_async(
        "it hears of the last revision",
        lambda: bool(here.heard) and here.heard[-1].revision == last,
    )
    released.set()
    state = await here.cache.get(TENANT)
    await until_async("it has the last revision", lambda: state.policy_set.revision == last)
    assert await here.key_in_force() == "49"
    # One that was under way, one for all that came meanwhile.
    assert reads <= 2


@pytest.mark.deep(stands_in="test_a_change_at_one_replica_is_in_force_at_the_other")
async def test_a_transaction_that_rolls_back_sends_no_notice(
    pair: tuple[Replica, Replica],
) -> None:
    here, there = pair
    await roll_back(there.world)
    await publish(there.world, "kept")
    await until_async("it hears a notice", lambda: bool(here.heard))
    assert here.heard == [Notice(TENANT, 1)]


@pytest.mark.deep(stands_in="test_only_a_payload_in_our_form_is_a_notice")
async def test_a_payload_that_is_not_a_notice_is_ignored(pair: tuple[Replica, Replica]) -> None:
    """Every role of the database may send on the channel."""
    here, there = pair
    await publish(there.world, "live")
    assert await here.key_in_force() == "live"
    for payload in ("", "7", f"-7 {TENANT}", f"x {TENANT}", f"{'9' * 40} {TENANT}", "7 ", "٧ a"):
        await there.world.rows("SELECT pg_notify(:c, :p)", c=CHANNEL, p=payload)
    # One that is ours in form, of a change that never was: it is looked for, and not found.
    for tenant_id in (TENANT, OTHER, "absent"):
        await there.world.rows("SELECT pg_notify(:c, :p)", c=CHANNEL, p=f"999 {tenant_id}")
    await until_async("it hears the notice", lambda: here.heard[-1:] == [Notice("absent", 999)])
    assert [each.tenant_id for each in here.heard] == [TENANT, TENANT, OTHER, "absent"]
    await publish(there.world, None)
    await until_async("the key is revoked", here.has_key(None))


@pytest.mark.deep(stands_in="test_a_role_that_loses_its_right_later_stops_only_the_notices")
async def test_a_listening_connection_that_ends_is_restored(
    pair: tuple[Replica, Replica], caplog: pytest.LogCaptureFixture
) -> None:
    here, there = pair
    caplog.set_level(logging.WARNING, "sluice.store")
    await publish(there.world, "live")
    assert await here.key_in_force() == "live"
    before = len(here.states)
    ended = await here.world.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'sluice notices' AND datname = current_database()"
    )
    assert len(ended) == 2  # one for each process
    for each in pair:
        await until_async(
            "it listens again",
            lambda each=each: False in each.states[before:] and each.listens,  # type: ignore[misc]
        )
    await publish(there.world, None)
    await until_async("the key is revoked", here.has_key(None))
    told = [record.getMessage() for record in caplog.records]
    lost = f"{SETTING}: the connection was closed: changes of other processes are found within"
    assert sum(each.startswith(lost) for each in told) == 2
    assert told.count("recovered: notices of other processes' changes arrive again") == 2


@pytest.mark.deep(stands_in="test_a_listener_without_a_server_tries_again_and_logs_it_once")
async def test_an_unreachable_server_is_tried_again(
    postgresql_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a listener's address without a server."""
    caplog.set_level(logging.WARNING, "sluice.store")
    nowhere = "postgresql+asyncpg://sluice:s3cret@127.0.0.1:1/sluice"
    async with replica(postgresql_url, nowhere) as here:
        await until_async("the connection has changed twice", lambda: len(here.states) >= 3)
        assert True not in here.states
    (told,) = [each.getMessage() for each in caplog.records]
    assert told.startswith(f"{SETTING}: PostgreSQL at `127.0.0.1:1`: connection refused")
    assert "s3cret" not in told


@pytest.mark.deep(stands_in="test_a_connection_whose_probe_does_not_arrive_is_refused")
async def test_a_connection_that_brings_no_notices_is_refused(
    postgresql_url: str,
    postgres_server: Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """To another database of the server, as behind a pooler in transaction mode: a LISTEN there
    succeeds."""
    caplog.set_level(logging.WARNING, "sluice.store")
    monkeypatch.setattr(notice_listener, "PROBE_SECONDS", 0.2)
    with postgres_server.database() as other:
        async with replica(postgresql_url, other) as here:
            await until_async("the connection has changed twice", lambda: len(here.states) >= 3)
            assert True not in here.states
    (told,) = [each.getMessage() for each in caplog.records]
    assert "a notice that was sent through SLUICE_DATABASE_URL does not arrive" in told


@pytest.mark.deep(stands_in="test_a_connection_whose_probe_does_not_arrive_is_refused")
async def test_a_pooler_in_transaction_mode_is_refused(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sluice.store")
    monkeypatch.setattr(notice_listener, "PROBE_SECONDS", 0.5)
    with pgbouncer.before(postgresql_url) as pooled:
        async with replica(postgresql_url, pooled) as here:
            await until_async("the connection has changed twice", lambda: len(here.states) >= 3)
            assert True not in here.states
    told = caplog.records[0].getMessage()
    assert told.startswith(f"{SETTING}: ")
    assert "without a pooler in transaction mode" in told


def test_only_a_payload_in_our_form_is_a_notice() -> None:
    for payload in ("", "7", f"-7 {TENANT}", f"x {TENANT}", f"{'9' * 40} {TENANT}", "7 ", "٧ a"):
        assert notices.parse(payload) is None, payload
    assert notices.parse(f"7 {TENANT}") == Notice(TENANT, 7)
    assert notices.parse(f"{'9' * 18} a b") == Notice("a b", 10**18 - 1)


async def test_a_listener_without_a_server_tries_again_and_logs_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "sluice.store")
    nowhere = parse_url("postgresql+asyncpg://sluice:s3cret@127.0.0.1:1/sluice")
    states: list[bool] = []

    async def probe(_: str) -> None:
        raise AssertionError("there is no connection")

    listener = NoticeListener(nowhere, SETTING, probe, lambda _: None, states.append)
    running = asyncio.ensure_future(listener.run())
    try:
        await until_async("it has tried twice", lambda: len(states) >= 3)
    finally:
        running.cancel()
    assert True not in states
    (told,) = caplog.messages
    assert told.startswith(f"{SETTING}: PostgreSQL at `127.0.0.1:1`: connection refused")
    assert "s3cret" not in told


async def test_a_connection_whose_probe_does_not_arrive_is_refused(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sluice.store")
    monkeypatch.setattr(notice_listener, "PROBE_SECONDS", 0.05)
    states: list[bool] = []

    async def elsewhere(_: str) -> None:
        """Where it is sent, no one listens."""

    listener = NoticeListener(
        parse_url(postgresql_url), SETTING, elsewhere, lambda _: None, states.append
    )
    running = asyncio.ensure_future(listener.run())
    try:
        await until_async("the connection has changed twice", lambda: len(states) >= 3)
    finally:
        running.cancel()
    assert True not in states
    (told,) = caplog.messages
    assert told.startswith(
        f"{SETTING}: a notice that was sent through SLUICE_DATABASE_URL does not"
    )
    assert "without a pooler in transaction mode" in told


async def test_a_url_that_can_never_work_is_fatal(postgresql_url: str) -> None:
    url = f"{postgresql_url}?nonsense=s3cret"
    with pytest.raises(ExceptionGroup) as raised:
        async with replica(postgresql_url, url):
            await asyncio.sleep(PATIENCE)
    assert raised.group_contains(UnusableDatabase, match=f"{SETTING}: the host or the parameters")
    assert not raised.group_contains(UnusableDatabase, match="s3cret")


@pytest.mark.deep(
    stands_in="tests/control_api/store/test_tenant_cache.py::test_notices_that_arrive_during_a_read_cause_only_one_more"
)
@pytest.mark.parametrize("failing", [TENANT, OTHER])
async def test_an_unreadable_tenant_does_not_affect_others_of_its_round(
    pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Whichever of the two is read first: the round is a set, so both take their turn to fail."""
    here, there = pair
    states = {name: await here.cache.get(name) for name in (TENANT, OTHER)}
    spared = OTHER if failing == TENANT else TENANT
    read, begun, released = here.world.database.reading, asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def partly(tenant_id: str) -> AsyncIterator[Any]:
        begun.set()
        await released.wait()
        if tenant_id == failing:
            raise ConnectionError
        async with read(tenant_id) as connection:
            yield connection

    async def write(tenant_id: str, key_id: str) -> None:
        body = key_document(Key(key_id, "evaluate"))
        work = functools.partial(Transaction.publish, changed={key_name(DIGEST): body})
        await there.world.store.write(tenant_id, work)

    monkeypatch.setattr(here.world.database, "reading", partly)
    # The first round holds one that fails, so the second has both.
    await write(failing, "first")
    await begun.wait()
    await write(failing, "second")
    await write(spared, "second")
    await until_async("it hears three notices", lambda: len(here.heard) == 3)
    released.set()
    await until_async(
        "the spared tenant is read again", lambda: states[spared].policy_set.revision == 1
    )
    assert states[failing].policy_set.revision == 0


async def test_a_role_that_loses_its_right_later_stops_only_the_notices(
    postgresql_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends the start (`test_a_url_that_can_never_work_is_fatal`), but not a running service."""
    caplog.set_level(logging.WARNING, "sluice.store")
    async with replica(postgresql_url) as here:
        await until_async("it listens", lambda: here.listens)
        allowed = False
        probe = here.probe

        async def refused(channel: str) -> None:
            if not allowed:
                raise UnusableDatabase("permission denied for database")
            await probe(channel)

        here.probe = refused
        await here.world.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'sluice notices' AND datname = current_database()"
        )
        await until_async(
            "the refusal is logged",
            lambda: any("permission denied" in each for each in caplog.messages),
        )
        assert not here.listens
        allowed = True
        await until_async("it listens", lambda: here.listens)
    lost = f"{SETTING}: the connection was closed: changes of other processes are found within"
    assert caplog.messages[0].startswith(lost)
    assert caplog.messages[-1] == "recovered: notices of other processes' changes arrive again"
