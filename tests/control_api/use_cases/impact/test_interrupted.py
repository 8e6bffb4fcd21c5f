"""A run that is interrupted counts what an uninterrupted one counts: wherever it is cut, and
whichever process continues it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from control_api.store.queries.impact_runs import Reached
from control_api.store.read_only import open_beside
from control_api.workers.impact import process
from control_api.workers.impact.process import ReplayRun
from control_api.workers.impact.wire import DONE, Job, Message
from policies.ground.canonical import encode
from policies.ground.clock import Clock
from tests.control_api.store.databases import postgresql_url
from tests.control_api.test_change_notices import replicas
from tests.control_api.use_cases.impact.traffic import (
    TOMORROW,
    as_counted,
    by_hand,
    entries_of,
    record_all,
)
from tests.support.control_api import ControlApi, running_control_api
from tests.support.control_api_process import call
from tests.support.open_store import sql
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


def test_a_run_counts_the_same_wherever_it_is_cut(
    recorded: tuple[ControlApi, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, job = recorded
    monkeypatch.setattr(process, "SECONDS", 0.0)
    monkeypatch.setattr(process, "FIRST_ROWS", 17)
    monkeypatch.setattr(process, "MAX_ROWS", 17)
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


def test_the_pages_change_no_count(
    recorded: tuple[ControlApi, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, job = recorded
    one = told(job)[-1].reached
    monkeypatch.setattr(process, "PAGE_BYTES", 1)
    rows = told(job)[-1].reached
    assert rows == one
    assert one is not None
    expected = by_hand(entries_of(api)[: job.until], TOMORROW)
    counts = orjson.loads(one.counts)
    for name in ("read", "unchanged", "newly_denied", "newly_allowed"):
        assert counts[name] == expected["counts"][name], name


def test_a_purge_of_what_is_still_to_be_read_ends_the_run(
    recorded: tuple[ControlApi, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, job = recorded

    def purged(_: str) -> object:
        from sqlalchemy import literal

        return literal(40)

    monkeypatch.setattr(process, "first_kept", purged)
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


@pytest.mark.deep(stands_in="test_a_run_counts_the_same_wherever_it_is_cut")
def test_another_replica_continues_a_run(tmp_path: Path, postgresql_url: str) -> None:
    route = "/v1/policies/impact"
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
