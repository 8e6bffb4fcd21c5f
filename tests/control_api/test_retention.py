"""What is too old goes: by its settings, every hour, and from the command line."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from control_api import purge
from control_api.fleet.isolation import SidecarOwners
from control_api.metrics.metrics import Instruments
from control_api.purge import PurgeParts, RetentionLoop
from control_api.purge import purge as purge_command
from control_api.settings import read
from control_api.store import tenant_state
from control_api.store.queries.sidecar_rows import FleetReports
from policies.ground.clock import Clock
from policies.ground.errors import NotFound
from policies.ground.signing import KeyRing
from tests.control_api.log.purging import SIGNER, keep_days, maker
from tests.control_api.store.databases import sqlite_url
from tests.support import fork_server
from tests.support.control_api import ControlApi
from tests.support.loop_clock import moving_clock
from tests.support.open_store import (
    OTHER,
    TENANT,
    OpenStore,
    decision,
    event_id,
    opened,
    sql,
)
from tests.support.waiting import until

__all__ = ["sqlite_url"]
DAY = 86_400.0


def aged(api: ControlApi, days: float = 3) -> list[str]:
    """Events that are older than a retention of a day; and the ids of those that are not."""
    for _ in range(20):
        api.evaluate()
    api.time.ahead += days * DAY
    api.admin("PUT", "/v1/settings/retention", {"retention_days": 1})
    return [api.evaluate()["event_id"] for _ in range(5)]


def command(api: ControlApi, *arguments: str) -> subprocess.CompletedProcess[str]:
    given = [sys.executable, "-m", "control_api", *arguments]
    return fork_server.run(given, {**os.environ, **api.environ})


def test_retention_is_shown_in_words_and_its_settings_change_one_by_one(tenant: ControlApi) -> None:
    shown = tenant.admin("GET", "/v1/settings/retention")
    assert (shown["retention_days"], shown["session_retention_days"]) == (365, 90)
    assert "365 days" in shown["audit_policy"]
    assert "90 days" in shown["session_policy"]
    changed = tenant.admin("PUT", "/v1/settings/retention", {"retention_days": 0})
    assert (changed["retention_days"], changed["session_retention_days"]) == (0, 90)
    assert "forever" in changed["audit_policy"]
    assert tenant.admin("GET", "/v1/settings/retention") == changed
    again = tenant.admin("PUT", "/v1/settings/retention", {"session_retention_days": 1})
    assert (again["retention_days"], again["session_retention_days"]) == (0, 1)
    assert "1 day ago" in again["session_policy"]
    assert tenant.admin("PUT", "/v1/settings/retention", {}) == again
    tenant.verified()


@pytest.mark.parametrize(
    "body", [{"retention_days": -1}, {"retention_days": 3651}, {"retention_days": None}, {"x": 1}]
)
def test_settings_out_of_bounds_are_refused(api: ControlApi, body: object) -> None:
    assert api.call("PUT", "/v1/settings/retention", body).status == 422


def test_only_an_admin_changes_the_retention(api: ControlApi) -> None:
    key = api.new_key("read")
    body = {"retention_days": 1}
    assert api.call("PUT", "/v1/settings/retention", body, key=key).status == 403
    assert api.call("GET", "/v1/settings/retention", key=key).status == 200


def test_there_is_no_anchor_before_a_purge(api: ControlApi) -> None:
    shown = api.admin("GET", "/v1/audit/retention")
    assert shown["anchor"] is None
    assert shown.keys() == {"retention_days", "policy", "anchor", "held_from"}


async def test_a_round_of_purges_begins_every_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 0

    async def once(_: RetentionLoop) -> None:
        nonlocal rounds
        rounds += 1

    monkeypatch.setattr(RetentionLoop, "once", once)
    app: Any = SimpleNamespace(
        store=None, ring=None, checkpoints=None, new_id=None, entropy=os.urandom
    )
    with moving_clock() as clock:
        task = asyncio.ensure_future(RetentionLoop(app).run())
        await clock.skip(purge.FIRST_SECONDS * 0.7)
        assert rounds == 0
        await clock.skip(purge.FIRST_SECONDS * 0.6)
        for number in (1, 2, 3):
            assert rounds == number
            await clock.skip(purge.INTERVAL_SECONDS * 1.3)
        task.cancel()


@pytest.mark.deep(
    stands_in="tests/control_api/test_purges.py::test_the_service_purges_old_sessions_and_old_events_by_itself"
)
def test_every_hour_old_data_is_purged(either: ControlApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge, "FIRST_SECONDS", 0.2)
    monkeypatch.setattr(purge, "INTERVAL_SECONDS", 0.2)
    either.restart()
    young = aged(either)

    def purged() -> object:
        return either.admin("GET", "/v1/audit/retention")["anchor"]

    until("a purge", purged)
    until("the oldest entries are purged", lambda: either.verified()["first_seq"] >= 20)
    events = either.events("?limit=1000")
    assert [each["event_id"] for each in events] == young[::-1]
    # Counts go with the rows, which no query shows any more.
    until(
        "the counts are those of what is left",
        lambda: either.admin("GET", "/v1/audit/stats")["total"] == len(young),
    )
    report = either.verified()
    assert report["anchor"] == purged()
    assert report["checkpoint"]["size"] > report["anchor"]["tree_size"]
    until(
        "the purge is counted", lambda: b'sluice_purges_total{outcome="purged"}' in _metrics(either)
    )
    either.restart()
    either.verified()


async def test_a_round_purges_all_tenants_but_one_whose_log_does_not_verify(
    sqlite_url: str,
) -> None:
    async with opened(sqlite_url) as world:
        await a_round_over_two_tenants(world)


async def a_round_over_two_tenants(world: OpenStore) -> None:
    for tenant_id in (TENANT, OTHER):
        await keep_days(world, 1, tenant_id)
        for _ in range(3):
            await world.log.append(tenant_id, decision())
    world.now.ahead += 3 * int(DAY * 1e6)
    await world.rows("UPDATE log_entries SET ts = ts + 1 WHERE tenant_id = 'default' AND seq = 1")
    instruments = Instruments(CollectorRegistry())
    ring = KeyRing(SIGNER)
    signin: Any = SimpleNamespace(store=world.store, settings=read({}))
    parts = PurgeParts(
        world.store,
        ring,
        maker(world, ring),
        FleetReports(world.store),
        SidecarOwners(world.store),
        signin,
        os.urandom,
        event_id,
        instruments.jobs.purges,
    )
    await RetentionLoop(parts).once()
    purged = await world.rows("SELECT tenant_id FROM purges")
    assert [each.tenant_id for each in purged] == [OTHER]
    counted = {
        sample.labels["outcome"]: sample.value
        for family in instruments.jobs.purges.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }
    assert {outcome: many for outcome, many in counted.items() if many} == {
        "refused": 1,
        "purged": 1,
    }


@pytest.mark.deep(stands_in="test_a_round_purges_all_tenants_but_one_whose_log_does_not_verify")
def test_a_tenant_whose_log_does_not_verify_delays_no_other(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "FIRST_SECONDS", 0.2)
    monkeypatch.setattr(purge, "INTERVAL_SECONDS", 0.2)
    aged(fresh)
    made = fresh.admin("POST", "/v1/admin/tenants", {"name": "another"})
    body = {"retention_days": 1}
    path = "/v1/settings/retention"
    assert fresh.call("PUT", path, body, key=made["admin_key"]).status == 200
    _sql(fresh, "UPDATE log_entries SET ts = ts + 1 WHERE tenant_id = 'default' AND seq = 2")
    fresh.time.ahead += 3 * DAY
    fresh.restart()

    def purged() -> object:
        shown = fresh.call("GET", "/v1/audit/retention", key=made["admin_key"]).body
        return shown["anchor"]

    until("the other tenant's purge", purged)
    assert fresh.admin("GET", "/v1/audit/retention")["anchor"] is None
    until(
        "the refusal is counted",
        lambda: b'sluice_purges_total{outcome="refused"}' in _metrics(fresh),
    )


def _metrics(api: ControlApi) -> bytes:
    return api.call("GET", "/metrics").raw


def _sql(api: ControlApi, statement: str) -> None:
    with sqlite3.connect(api.directory / "data" / "sluice.db", timeout=10) as connection:
        connection.execute(statement)
    connection.close()


def test_the_command_purges_a_tenant_and_shows_the_anchor(
    api: ControlApi, tenant: ControlApi
) -> None:
    """Beside the running service, and three days later by its own clock."""
    said: list[str] = []

    def command_at(days: int, tenant_id: str) -> bool:
        clock = Clock(lambda: api.time.now() + days * int(DAY * 1e6), time.monotonic)
        return asyncio.run(purge_command(api.settings, clock, os.urandom, tenant_id, said.append))

    tenant.evaluate()
    name = tenant.tenant_id
    assert command_at(0, name)
    assert said.pop() == f"{name}: 0 entries and 0 sessions removed; nothing was ever purged"
    tenant.admin("PUT", "/v1/settings/retention", {"retention_days": 1})
    assert command_at(3, name)
    anchor = tenant.admin("GET", "/v1/audit/retention")["anchor"]
    assert anchor["purged_count"] > 1
    assert said.pop() == (
        f"{name}: {anchor['purged_count']} entries and 0 sessions removed; anchor: "
        f"{anchor['tree_size']} entries until {anchor['purged_before']}, root {anchor['root_hash']}"
    )
    tenant.evaluate()
    tenant.verified()
    with pytest.raises(BaseExceptionGroup) as refused:
        command_at(0, "nobody")
    assert refused.group_contains(NotFound, match="no such tenant: `nobody`")
    assert said == []


@pytest.mark.deep(
    stands_in="tests/control_api/test_purges.py::test_the_command_purges_old_data_and_exits_by_its_result"
)
def test_the_command_purges_beside_a_running_service(either: ControlApi) -> None:
    """By the real clock: nothing is old enough; the command says so, and all goes on."""
    either.evaluate()
    done = command(either, "purge")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "default: 0 entries and 0 sessions removed; nothing was ever purged\n"
    either.evaluate()
    either.verified()


@pytest.fixture(params=["sqlite", "postgresql"])
def long_ago(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlApi]:
    """One that was first started ten days ago: the command has the real clock."""
    url = None
    if request.param == "postgresql":
        url = request.getfixturevalue("migrated_url")
    api = ControlApi(tmp_path, database_url=url)
    api.time.ahead = -10 * DAY
    api.start()
    try:
        yield api
    finally:
        api.stop()


@pytest.mark.deep(
    stands_in="tests/control_api/test_purges.py::test_the_command_purges_old_data_and_exits_by_its_result"
)
def test_the_command_purges_old_data_and_shows_the_anchor(long_ago: ControlApi) -> None:
    for _ in range(30):
        long_ago.evaluate()
    long_ago.admin("PUT", "/v1/settings/retention", {"retention_days": 1})
    long_ago.time.ahead = 0
    young = long_ago.evaluate()["event_id"]
    done = command(long_ago, "purge", "--tenant", "default")
    assert done.returncode == 0, done.stderr
    anchor = long_ago.admin("GET", "/v1/audit/retention")["anchor"]
    count = anchor["purged_count"]
    assert done.stdout.startswith(f"default: {count} entries and 0 sessions removed; anchor: ")
    assert anchor["root_hash"] in done.stdout
    assert [each["event_id"] for each in long_ago.events()] == [young]
    long_ago.verified()


@pytest.mark.deep(
    stands_in="tests/control_api/test_purges.py::test_the_command_purges_old_data_and_exits_by_its_result"
)
def test_the_command_exits_with_2_for_an_unknown_tenant_and_1_for_a_failure(
    fresh: ControlApi,
) -> None:
    done = command(fresh, "purge", "--tenant", "nobody")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no such tenant: `nobody`" in done.stderr
    assert command(fresh, "purge", "--tenant").returncode == 2
    fresh.stop()
    key = fresh.directory / "data" / "log.key"
    kept = key.read_bytes()
    key.unlink()
    try:
        done = command(fresh, "purge")
        assert done.returncode == 1
        assert "log.key" in done.stderr
    finally:
        key.write_bytes(kept)
        key.chmod(0o600)
        fresh.start()


@pytest.mark.deep(
    stands_in="tests/control_api/test_purges.py::test_the_service_purges_old_sessions_and_old_events_by_itself"
)
def test_sessions_are_purged_independently_and_stay_ended(
    either: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert either.evaluate(session_id="s-expired")["decision"] == "ALLOW"
    assert either.evaluate(session_id="s-revoked")["decision"] == "ALLOW"
    either.admin("DELETE", "/v1/sessions/s-revoked?reason=left")
    either.admin("PUT", "/v1/settings/retention", {"session_retention_days": 2})
    either.time.ahead += 4 * DAY
    assert either.evaluate(session_id="s-young")["decision"] == "ALLOW"
    events = len(either.events("?limit=1000"))
    monkeypatch.setattr(purge, "FIRST_SECONDS", 0.2)
    monkeypatch.setattr(purge, "INTERVAL_SECONDS", 0.2)
    either.restart()

    def ids() -> list[str]:
        return [each["session_id"] for each in either.admin("GET", "/v1/sessions")]

    until("the purge of sessions", lambda: ids() == ["s-young"])
    assert len(either.events("?limit=1000")) == events
    for name, why in (("s-expired", "session_expired"), ("s-revoked", "session_revoked")):
        assert either.call("GET", f"/v1/sessions/{name}").status == 404
        assert either.call("DELETE", f"/v1/sessions/{name}").status == 404
        for _ in range(2):
            assert either.evaluate(session_id=name, user_id="bob")["policy_name"] == why
        dry = {"agent_role": "support", "user_id": "bob", "source_id": "handbook"}
        body = {**dry, "sensitivity_level": "low", "session_id": name}
        assert either.admin("POST", "/v1/context/simulate", body)["policy_name"] == why
        claimed = {"session_id": name, "agent_role": "support", "user_id": "bob"}
        answer = either.admin("POST", "/v1/sidecars/sessions/claim", claimed)
        assert answer["state"] == why.removeprefix("session_")
    assert ids() == ["s-young"]
    assert either.evaluate(session_id="s-young")["decision"] == "ALLOW"
    documents = either.admin("GET", "/v1/sidecars/policy-set?since=0")["documents"]
    gone = [each for each in documents if each["name"].startswith("session/")]
    assert all(each["body"] is None for each in gone)
    changes = _changes(either)
    assert changes == [{"revoked": 1, "sessions": 2}]
    either.verified()


def _changes(api: ControlApi) -> list[Any]:
    rows = asyncio.run(
        sql(api.settings.database_url, "SELECT entry FROM log_entries WHERE kind = 'change'")
    )
    entries = [json.loads(bytes(row.entry))["pub"] for row in rows]
    return [each["detail"] for each in entries if each["what"] == "sessions.purged"]


@pytest.mark.deep(
    stands_in="tests/control_api/log/test_holds.py::test_a_held_session_keeps_its_row"
)
def test_a_claim_that_meets_the_purge_finds_an_ended_session(
    long_ago: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that claims while a session is being purged never gets a new one."""
    # Otherwise the cache would answer, and no claim would get to the database.
    monkeypatch.setattr(tenant_state, "MAX_SESSIONS", 1)
    for number in range(40):
        long_ago.evaluate(session_id=f"s-{number}")
    long_ago.admin("PUT", "/v1/settings/retention", {"session_retention_days": 1})
    long_ago.time.ahead = 0
    answers: list[str] = []

    def claim() -> None:
        for number in range(40):
            answers.append(long_ago.evaluate(session_id=f"s-{number}")["policy_name"])

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert command(long_ago, "purge").returncode == 0
    for thread in threads:
        thread.join()
    assert answers == ["session_expired"] * 160
    claim()
    assert set(answers) == {"session_expired"}
    assert long_ago.admin("GET", "/v1/sessions") == []
    long_ago.verified()
