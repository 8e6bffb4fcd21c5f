"""A run that is interrupted counts what an uninterrupted one counts: wherever it is cut, and
whichever process continues it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from control_api.policy import impact_process, impact_queries
from control_api.policy.impact_counts import ImpactCounts
from control_api.policy.impact_loop import LEASE, HeldRun
from control_api.policy.impact_process import DONE, Job, Message, ReplayRun
from control_api.policy.impact_queries import Reached, RunState, StoredRun
from control_api.store.opening import open_beside
from control_api.store.transaction import Transaction
from policies.ground.canonical import encode
from policies.ground.clock import Clock
from tests.control_api.policy.traffic import TOMORROW, as_counted, by_hand, entries_of, record_all
from tests.control_api.store.databases import postgresql_url
from tests.control_api.test_change_notices import replicas
from tests.support.control_api import ControlApi, running_control_api
from tests.support.control_api_process import call
from tests.support.open_store import TENANT, opened, sql
from tests.support.waiting import until

__all__ = ["postgresql_url"]
POLICIES = encode([{**each, "policy_id": "", "version": 0} for each in TOMORROW])
CLOCK = Clock(lambda: time.time_ns() // 1000, time.monotonic)


class Cut(Exception):
    """the process dies"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlApi, Job]]:
    """Traffic of every kind, and the job to replay all of it."""
    with running_control_api(tmp_path_factory.mktemp("interrupted")) as api:
        record_all(api, 300)
        entries = entries_of(api)
        settings, log = api.settings, entries[0]["log"]
        whole = (log, 0, len(entries), b"", None, b"")
        yield api, Job(settings.database_url, settings.database, "default", "imp_1", *whole)


def told(job: Job, most: int | None = None) -> list[Message]:
    """What the process tells, until it dies with message number `most`. Each message goes over the
    wire."""
    messages: list[Message] = []

    def tell(message: Message) -> None:
        if len(messages) == most:
            raise Cut
        messages.append(Message.from_line(message.to_line()))

    async def run() -> None:
        store = await open_beside(job.database_url, job.limits, CLOCK)
        try:
            await ReplayRun(Job.from_line(job.to_line()), store, POLICIES, tell).run()
        except Cut:
            pass
        finally:
            await store.close()

    asyncio.run(run())
    return messages


def continued(job: Job, reached: Reached) -> Job:
    return replace(
        job,
        next_seq=reached.next_seq,
        last_leaf=reached.last_leaf,
        last_eid=reached.last_eid,
        counts=reached.counts,
    )


def counts_of(reached: Reached) -> dict[str, Any]:
    """What the run's route would show of its counts."""
    counts = ImpactCounts.from_wire(orjson.loads(reached.counts))
    why = [{"why": each, "count": count} for each, count in counts.unreplayable.items()]
    renamed = {"groups": [asdict(each) for each in counts.renamed.shown()]}
    groups = [asdict(each) for each in counts.groups.shown()]
    return {**asdict(counts), "unreplayable": why, "groups": groups, "renamed": renamed}


@pytest.mark.deep(stands_in="test_a_run_continues_where_a_killed_process_had_stopped")
def test_a_run_counts_the_same_wherever_it_is_interrupted(
    recorded: tuple[ControlApi, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, job = recorded
    monkeypatch.setattr(impact_process, "SECONDS", 0.0)
    monkeypatch.setattr(impact_process, "FIRST_ROWS", 17)
    monkeypatch.setattr(impact_process, "MAX_ROWS", 17)
    whole = told(job)
    assert len(whole) > 20
    assert whole[-1].end == DONE
    for most in range(1, len(whole), 3):
        last = told(job, most)[-1].reached
        assert last is not None
        assert job.next_seq < last.next_seq < job.until + 1
        again = told(continued(job, last))
        assert again[-1] == whole[-1]
    # Cut again and again: the process never gets further than one page.
    left, steps = job, 0
    while (message := told(left, 1)[-1]).end is None:
        assert message.reached is not None
        left, steps = continued(left, message.reached), steps + 1
    assert steps > 20
    assert message == whole[-1]


def test_the_size_of_the_pages_changes_no_count(
    recorded: tuple[ControlApi, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, job = recorded
    one = told(job)[-1].reached
    monkeypatch.setattr(impact_process, "PAGE_BYTES", 1)
    rows = told(job)[-1].reached
    assert rows == one
    assert one is not None
    expected = by_hand(entries_of(api)[: job.until], TOMORROW)
    assert as_counted(counts_of(one)) == expected


def test_a_purge_of_what_is_still_to_be_read_ends_the_run(
    recorded: tuple[ControlApi, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, job = recorded

    def purged(_: str) -> object:
        from sqlalchemy import literal

        return literal(40)

    monkeypatch.setattr(impact_process, "first_kept", purged)
    assert told(job)[-1].end == (
        "retention removed the entries from seq 0 to 39 before they were read"
    )
    later = replace(job, next_seq=40)
    assert told(later)[-1].end == DONE


def test_a_changed_or_missing_entry_ends_the_run(recorded: tuple[ControlApi, Job]) -> None:
    api, job = recorded
    url = api.settings.database_url

    def execute(statement: str, **values: object) -> list[Any]:
        return asyncio.run(sql(url, f"{statement} tenant_id = 'default' AND seq = 50", **values))

    [row] = execute("SELECT entry FROM log_entries WHERE")
    entry = bytes(row.entry)
    for new, told_of in (
        (entry.replace(b'"ts":"2', b'"ts":"3'), "chain_broken: seq 51"),
        (entry, None),
    ):
        execute("UPDATE log_entries SET entry = :new WHERE", new=new)
        end = told(job)[-1].end
        assert end == DONE if told_of is None else (end or "").startswith(told_of), end
    execute("UPDATE log_entries SET seq = 100050 WHERE")
    end = told(job)[-1].end
    asyncio.run(sql(url, "UPDATE log_entries SET seq = 50 WHERE seq = 100050"))
    assert (end or "").startswith("entries_missing: seq 50")


ROUTE = "/v1/policies/impact"


def started(api: ControlApi, monkeypatch: pytest.MonkeyPatch, job: Job, script: str) -> str:
    """The route of a run of which this shell script is the process."""
    program = ["sh", "-c", script]
    monkeypatch.setattr("control_api.policy.impact_loop.this_program", lambda: program)
    body = {"policies": TOMORROW, "to": str(job.until)}
    return f"{ROUTE}/{api.admin('POST', ROUTE, body)['impact_id']}"


def ended(api: ControlApi, route: str) -> dict[str, Any]:
    until("the run ends", lambda: api.admin("GET", route)["state"] != "running")
    found: dict[str, Any] = api.admin("GET", route)
    return found


def test_an_entry_that_is_not_the_log_s_fails_the_run(
    recorded: tuple[ControlApi, Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, job = recorded
    lines = tmp_path / "lines"

    def changed(seq: int) -> dict[str, Any]:
        """A run whose process met another entry at `seq`."""
        place = f"WHERE tenant_id = 'default' AND seq = {seq}"
        url = api.settings.database_url
        [row] = asyncio.run(sql(url, f"SELECT entry FROM log_entries {place}"))
        entry = bytes(row.entry)
        update = f"UPDATE log_entries SET entry = :new {place}"
        asyncio.run(sql(url, update, new=entry.replace(b'"ts":"2', b'"ts":"3')))
        lines.write_bytes(b"".join(each.to_line() for each in told(job)))
        asyncio.run(sql(url, update, new=entry))
        return ended(api, started(api, monkeypatch, job, f"cat {lines}"))

    found = changed(50)
    assert (found["state"], found["checkpoint_size"]) == ("failed", None)
    assert found["reason"].startswith("chain_broken: seq 51")
    # The last entry has no successor that cites it, but the signed tree holds another.
    found = changed(job.until - 1)
    assert (found["state"], found["entries"]) == ("failed", job.until)
    assert "can't be proven" in found["reason"]


def test_a_run_continues_where_a_killed_process_had_stopped(
    recorded: tuple[ControlApi, Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, job = recorded
    monkeypatch.setattr(impact_process, "SECONDS", 0.0)
    monkeypatch.setattr(impact_process, "FIRST_ROWS", 17)
    [first] = told(job, 1)
    assert first.reached is not None
    given, line = tmp_path / "given", tmp_path / "line"
    line.write_bytes(first.to_line())
    looked = list[None]()

    async def look(_: object) -> bool:
        looked.append(None)
        return False

    with monkeypatch.context() as patch:
        patch.setattr("control_api.policy.impact_loop.ImpactLoop.once", look)
        # Each process tells how far it came, and dies.
        route = started(api, monkeypatch, job, f"head -n 1 >> {given}; cat {line}")
        before = len(looked)
        until("the service has looked for it", lambda: len(looked) > before)
    # From here on it is as if another replica had been asked, and had died.
    until(
        "it is taken up again", lambda: given.exists() and len(given.read_bytes().split(b"\n")) > 2
    )
    api.admin("DELETE", route)
    begun, again = (Job.from_line(each) for each in given.read_bytes().splitlines()[:2])
    assert (begun.next_seq, begun.counts) == (0, b"")
    assert again == continued(begun, first.reached)
    assert told(again)[-1] == told(begun)[-1]
    asyncio.run(another_s_once_its_lease_is_over(tmp_path))


async def another_s_once_its_lease_is_over(tmp_path: Path) -> None:
    """A run of a service that died is taken up by another once its lease is over."""
    async with opened(f"sqlite:///{tmp_path}/sluice.db") as world:
        app: Any = SimpleNamespace(store=world.store)
        here, there = (HeldRun(app, TENANT, "imp_1", lease) for lease in ("here", "there"))

        async def due() -> list[tuple[str, str]]:
            async with world.store.reading_all_tenants() as connection:
                return await impact_queries.due(connection, world.now(), 10)

        async def saved(lease: str, reached: Reached) -> bool:
            async def work(tx: Transaction) -> bool:
                run = (tx.tenant_id, "imp_1", lease, reached, tx.now + LEASE)
                return await impact_queries.save(tx.connection, *run)

            return await world.store.write(TENANT, work)

        run = StoredRun(
            "imp_1", RunState.running, None, "key_1", 0, None, 0, 9, 0, b"", None, b"", None, 0,
            None, 0,
        )  # fmt: skip
        await world.store.write(
            TENANT, lambda tx: impact_queries.add(tx.connection, TENANT, run, b"[]")
        )
        assert await due() == [(TENANT, "imp_1")]
        assert await here.claim() is not None
        reached = Reached(7, bytes(32), "event", b'{"entries":7}')
        assert await saved("here", reached)
        assert (await due(), await there.claim()) == ([], None)
        # It is saved every second, so it died.
        world.now.ahead += 10_000_000
        assert await due() == [(TENANT, "imp_1")]
        taken = await there.claim()
        assert taken is not None
        assert (taken.next_seq, taken.last_eid, taken.counts) == (7, "event", reached.counts)
        # If it was slow only, it counts nothing any more.
        assert not await saved("here", reached)
        assert not await here.renew()
        assert await there.renew()


def test_a_silent_process_keeps_the_run_until_it_is_cancelled(
    recorded: tuple[ControlApi, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, job = recorded
    monkeypatch.setattr("control_api.policy.impact_loop.RENEW_SECONDS", 0.02)
    monkeypatch.setattr("control_api.policy.impact_loop.PATIENCE", 1_000_000)
    route = started(api, monkeypatch, job, "exec sleep 600")
    leases = set[int]()

    def renewed() -> bool:
        query = "SELECT leased_until FROM impact_runs WHERE leased_until IS NOT NULL"
        rows = asyncio.run(sql(api.settings.database_url, query))
        leases.update(row.leased_until for row in rows)
        return len(leases) > 3

    until("the lease is renewed", renewed)
    assert api.admin("GET", route)["state"] == "running"
    api.admin("DELETE", route)
    # Its process is ended, and the next run is taken up.
    lines = f"echo '{Message(None, 'damaged').to_line().decode().strip()}'"
    assert ended(api, started(api, monkeypatch, job, lines))["reason"] == "damaged"


@pytest.mark.deep(stands_in="test_a_run_continues_where_a_killed_process_had_stopped")
def test_another_replica_continues_a_run(tmp_path: Path, postgresql_url: str) -> None:
    route = ROUTE
    with replicas(tmp_path, postgresql_url) as both:
        here, there = (each.ready() for each in both)
        key = both[0].first_keys()["admin_key"]
        items = [
            {
                "agent_role": "support",
                "user_id": "ann",
                "source_id": source,
                "sensitivity_level": "low",
            }
            for source in ("handbook", "payroll", "wiki", "contracts") * 25
        ]
        for port in (here, there):
            status, _ = call(port, key, "POST", "/v1/context/evaluate/batch", {"items": items})
            assert status == 200
        asked = {"policies": TOMORROW, "to": "150"}

        def ended(impact_id: str) -> dict[str, object]:
            path = f"{route}/{impact_id}"
            until("it ends", lambda: call(there, key, "GET", path)[1]["state"] != "running")
            found: dict[str, object] = call(there, key, "GET", path)[1]
            return found

        whole = ended(call(there, key, "POST", route, asked)[1]["impact_id"])
        # Both take up runs at the same time, and each is counted once.
        runs = [call(port, key, "POST", route, asked)[1]["impact_id"] for port in (here, there)]
        for each in runs:
            assert as_counted(ended(each)) == as_counted(whole)
        _, run = call(here, key, "POST", route, asked)
        both[0].process.kill()
        assert as_counted(ended(run["impact_id"])) == as_counted(whole)
        assert whole["entries"] == 150
