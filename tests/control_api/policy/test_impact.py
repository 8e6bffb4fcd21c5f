"""Recorded traffic under other policies, end to end: the counts are those of each entry decided by
hand, whatever interrupts the run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests.control_api.policy.traffic import TOMORROW, as_counted, by_hand, entries_of, record_all
from tests.support.control_api import ControlApi, running_control_api
from tests.support.control_api_process import ControlApiProcess, call, process
from tests.support.open_store import sql
from tests.support.waiting import until

__all__ = ["process"]
ROUTE = "/v1/policies/impact"
DECISIONS = 600
CHANGE = "UPDATE log_entries SET entry = CAST(replace(CAST(entry AS TEXT), '{}', '{}') AS BLOB)"


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    """A service with traffic of every kind. Shared: no test may change the log."""
    with running_control_api(tmp_path_factory.mktemp("impact")) as api:
        record_all(api, DECISIONS)
        yield api


def started(api: ControlApi, **fields: Any) -> str:
    answer = api.call("POST", ROUTE, {"policies": TOMORROW, **fields})
    assert answer.status == 202, answer.raw
    impact_id: str = answer.body["impact_id"]
    return impact_id


def shown(api: ControlApi, impact_id: str) -> dict[str, Any]:
    found: dict[str, Any] = api.admin("GET", f"{ROUTE}/{impact_id}")
    return found


def ended(api: ControlApi, impact_id: str) -> dict[str, Any]:
    until("the run has ended", lambda: shown(api, impact_id)["state"] != "running")
    return shown(api, impact_id)


def execute(api: ControlApi, statement: str, **values: Any) -> list[Any]:
    return asyncio.run(sql(api.settings.database_url, statement, **values))


@pytest.mark.deep(
    stands_in="tests/control_api/policy/test_interrupted.py::test_the_size_of_the_pages_changes_no_count"
)
def test_the_counts_are_those_of_each_entry_decided_by_hand(either: ControlApi) -> None:
    record_all(either, DECISIONS)
    found = ended(either, started(either))
    expected = by_hand(entries_of(either)[: found["until_seq"]], TOMORROW)
    assert as_counted(found) == expected
    # The traffic has something of everything.
    counts, why = expected["counts"], expected["unreplayable"]
    assert min(counts[name] for name in ("unchanged", "newly_denied", "newly_allowed")) > 20
    assert why == {"no_facts": 3, "unknown_check": 2, "unknown_level": 1, "masked": 1}
    assert found["renamed"]["count"] > 20
    changed = found["unchanged"] + found["newly_denied"] + found["newly_allowed"]
    assert changed + sum(why.values()) == found["read"]
    assert (found["state"], found["reason"], found["progress"]) == ("done", None, 1.0)
    assert found["checkpoint_size"] >= found["until_seq"]
    assert execute(either, "SELECT * FROM impact_policies") == []


@pytest.mark.deep(
    stands_in="tests/control_api/policy/test_interrupted.py::test_the_size_of_the_pages_changes_no_count"
)
def test_the_policies_in_force_change_nothing(busy: ControlApi) -> None:
    fields = ("name", "agent_role", "allowed_sources", "denied_sources", "max_sensitivity")
    own = [
        {name: each[name] for name in (*fields, "denied_tasks")}
        for each in busy.admin("GET", "/v1/policies")
    ]
    found = ended(busy, started(busy, policies=own, to=str(DECISIONS)))
    assert (found["newly_denied"], found["newly_allowed"], found["groups"]) == (0, 0, [])
    assert found["renamed"] == {"count": 0, "groups": [], "left_out": 0}


def test_at_most_two_runs_are_active_and_a_cancelled_one_makes_room(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_api.policy.impact_loop.ImpactLoop.once", _never)
    for _ in range(4):
        fresh.evaluate()
    at = execute(fresh, "SELECT entry FROM log_entries WHERE seq = 5")[0].entry
    first = started(fresh, **{"from": "3", "to": orjson.loads(bytes(at))["ts"]})
    found = shown(fresh, first)
    assert (found["first_seq"], found["until_seq"], found["state"]) == (3, 5, "running")
    assert (found["progress"], found["entries"]) == (0, 0)
    second = started(fresh)
    answer = fresh.call("POST", ROUTE, {"policies": TOMORROW})
    assert answer.status == 409
    assert "2 impact runs go on already" in answer.body["message"]
    assert fresh.call("DELETE", f"{ROUTE}/{second}").status == 200
    found = shown(fresh, second)
    assert found["state"] == "cancelled"
    kept = execute(fresh, "SELECT impact_id FROM impact_policies")
    assert [row.impact_id for row in kept] == [first]
    started(fresh)
    fresh.admin("DELETE", f"{ROUTE}/{second}")
    assert shown(fresh, second) == found


@pytest.mark.deep(stands_in="test_at_most_two_runs_are_active_and_a_cancelled_one_makes_room")
def test_a_part_is_read_from_the_first_bound_up_to_the_second(busy: ControlApi) -> None:
    entries = entries_of(busy)
    first, until_seq = 100, 300
    found = ended(busy, started(busy, **{"from": str(first), "to": entries[until_seq]["ts"]}))
    times = [each["ts"] for each in entries]
    end = times.index(times[until_seq])
    assert (found["first_seq"], found["until_seq"]) == (first, end)
    assert as_counted(found) == by_hand(entries[first:end], TOMORROW)
    empty = ended(busy, started(busy, **{"from": "300", "to": "300"}))
    assert (empty["state"], empty["entries"], empty["progress"]) == ("done", 0, 1.0)


@pytest.mark.deep(stands_in="test_at_most_two_runs_are_active_and_a_cancelled_one_makes_room")
def test_a_run_is_cancelled_and_stays_so(busy: ControlApi) -> None:
    impact_id = started(busy)
    assert busy.call("DELETE", f"{ROUTE}/{impact_id}").status == 200
    found = shown(busy, impact_id)
    assert found["state"] == "cancelled"
    # Another run is taken up after it, so nothing goes on with the cancelled one.
    assert ended(busy, started(busy))["state"] == "done"
    assert shown(busy, impact_id) == found
    assert busy.call("DELETE", f"{ROUTE}/{impact_id}").status == 200
    assert execute(busy, "SELECT * FROM impact_policies") == []


@pytest.mark.deep(stands_in="test_at_most_two_runs_are_active_and_a_cancelled_one_makes_room")
def test_a_third_run_at_once_is_refused(busy: ControlApi) -> None:
    runs = [started(busy) for _ in range(2)]
    answer = busy.call("POST", ROUTE, {"policies": TOMORROW})
    assert answer.status == 409
    assert "2 impact runs go on already" in answer.body["message"]
    for each in runs:
        busy.admin("DELETE", f"{ROUTE}/{each}")
    busy.admin("DELETE", f"{ROUTE}/{started(busy)}")


def test_two_policies_of_one_name_are_refused(busy: ControlApi) -> None:
    answer = busy.call("POST", ROUTE, {"policies": [TOMORROW[0], TOMORROW[0]]})
    assert answer.status == 422
    assert "several policies have the name `support-wiki`" in answer.body["details"]


def test_a_request_of_two_mebibytes_is_read(
    busy: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps({"policies": TOMORROW, "form": "1"}).encode()
    answer = busy.call("POST", ROUTE, raw=b" " * (2 * 1024 * 1024) + body)
    assert answer.status == 422
    assert answer.body["details"] == "form: is not a known field"
    # Nothing of such a set is left out.
    monkeypatch.setattr("control_api.policy.impact_loop.ImpactLoop.once", _never)
    many = [{**TOMORROW[1], "name": f"p{number}"} for number in range(500)]
    impact_id = started(busy, policies=[*TOMORROW, *many])
    [row] = execute(busy, f"SELECT body FROM impact_policies WHERE impact_id = '{impact_id}'")
    stored = [each["name"] for each in orjson.loads(bytes(row.body))]
    assert stored == [each["name"] for each in (*TOMORROW, *many)]
    busy.admin("DELETE", f"{ROUTE}/{impact_id}")


async def _never(_: Any) -> bool:
    return False


@pytest.mark.deep(stands_in="test_a_request_of_two_mebibytes_is_read")
def test_a_large_set_is_taken_like_a_small_one(busy: ControlApi) -> None:
    many = [
        {**TOMORROW[1], "name": f"policy-{number}", "agent_role": f"role-{number}"}
        for number in range(10_000)
    ]
    found = ended(busy, started(busy, policies=[*TOMORROW, *many]))
    whole = ended(busy, started(busy, to=str(found["until_seq"])))
    assert as_counted(found) == as_counted(whole)
    answer = busy.call("POST", ROUTE, {"policies": many, "form": "1"})
    assert answer.status == 422
    assert answer.body["details"] == "form: is not a known field"


@pytest.mark.deep(
    stands_in="tests/control_api/policy/test_interrupted.py::test_an_entry_that_is_not_the_log_s_fails_the_run"
)
def test_a_log_that_was_changed_fails_the_run(fresh: ControlApi) -> None:
    for _ in range(5):
        fresh.evaluate()
    change = CHANGE.format("ALLOW", "DENY")
    last = execute(fresh, "SELECT max(seq) AS seq FROM log_entries")[0].seq
    execute(fresh, f"{change} WHERE seq = {last - 2}")
    found = ended(fresh, started(fresh))
    assert found["state"] == "failed"
    assert found["reason"].startswith(f"chain_broken: seq {last - 1}")
    execute(fresh, f"DELETE FROM log_entries WHERE seq = {last - 2}")
    assert ended(fresh, started(fresh))["reason"].startswith(f"entries_missing: seq {last - 2}")


@pytest.mark.deep(
    stands_in="tests/control_api/policy/test_interrupted.py::test_an_entry_that_is_not_the_log_s_fails_the_run"
)
def test_an_end_that_was_rewritten_is_not_proven(fresh: ControlApi) -> None:
    """The last entry has no successor that cites it, but the signed tree holds another."""
    fresh.evaluate()
    fresh.evaluate(source_id="payroll")
    event = fresh.events("?limit=1")[0]["event_id"]
    proof = f"/v1/audit/proof/{event}"
    until("a checkpoint", lambda: fresh.call("GET", proof).status == 200)
    change = CHANGE.format("payroll", "payrolx")
    execute(fresh, f"{change} WHERE eid = '{event}'")
    found = ended(fresh, started(fresh))
    assert found["state"] == "failed"
    assert "can't be proven" in found["reason"]


@pytest.mark.deep(
    stands_in="tests/control_api/policy/test_interrupted.py::test_a_run_continues_where_a_killed_process_had_stopped"
)
def test_a_service_that_was_killed_continues_the_run(process: Any) -> None:
    service: ControlApiProcess = process()
    port = service.ready()
    key = service.first_keys()["admin_key"]
    items = [
        {"agent_role": "support", "user_id": "ann", "source_id": source, "sensitivity_level": "low"}
        for source in ("handbook", "payroll", "wiki", "contracts") * 25
    ]
    for _ in range(5):
        assert call(port, key, "POST", "/v1/context/evaluate/batch", {"items": items})[0] == 200
    _, run = call(port, key, "POST", ROUTE, {"policies": TOMORROW, "to": "400"})
    service.process.kill()
    service.ended()
    (service.directory / "output").write_text("")
    again: ControlApiProcess = process()
    port = again.ready()
    route = f"{ROUTE}/{run['impact_id']}"
    until("it has ended", lambda: call(port, key, "GET", route)[1]["state"] != "running")
    _, found = call(port, key, "GET", route)
    _, other = call(port, key, "POST", ROUTE, {"policies": TOMORROW, "to": "400"})
    route = f"{ROUTE}/{other['impact_id']}"
    until("it has ended", lambda: call(port, key, "GET", route)[1]["state"] != "running")
    _, whole = call(port, key, "GET", route)
    assert found["state"] == whole["state"] == "done"
    assert as_counted(found) == as_counted(whole)
    assert found["entries"] == 400


def test_a_process_that_keeps_dying_fails_the_run(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_api.policy.impact_loop.this_program", lambda: ["false"])
    found = ended(fresh, started(fresh))
    assert found["state"] == "failed"
    assert found["reason"] == "its process ended 5 times and had saved nothing"


@pytest.mark.deep(
    stands_in="tests/control_api/policy/test_interrupted.py::test_a_silent_process_keeps_the_run_until_it_is_cancelled"
)
def test_a_process_that_is_slow_keeps_the_run(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = (
        "import os, sys, time; time.sleep(1)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'control_api', *sys.argv[1:]])"
    )
    command = [sys.executable, "-c", slow]
    monkeypatch.setattr("control_api.policy.impact_loop.this_program", lambda: command)
    monkeypatch.setattr("control_api.policy.impact_loop.RENEW_SECONDS", 0.05)
    impact_id, leases = started(fresh), set[int]()

    def renewed() -> bool:
        query = "SELECT leased_until FROM impact_runs WHERE leased_until IS NOT NULL"
        leases.update(row.leased_until for row in execute(fresh, query))
        return len(leases) > 3

    until("the lease is renewed", renewed)
    assert shown(fresh, impact_id)["entries"] == 0
    assert ended(fresh, impact_id)["state"] == "done"


def test_a_process_that_can_t_be_started_does_not_harm_the_service(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control_api.policy.impact_loop.this_program", lambda: ["/nowhere"])
    found = ended(fresh, started(fresh))
    assert found["state"] == "failed"
    assert fresh.evaluate()["decision"] == "ALLOW"
