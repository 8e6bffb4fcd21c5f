"""The verification that runs in the background: it is started by a request, and names what it
found."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from control_api.log.scheduled import loop, self_check
from tests.support.control_api import ControlApi, running_control_api
from tests.support.waiting import until

PATH = "/v1/audit/verification"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlApi]:
    # Only what is asked for is verified.
    monkeypatch.setattr(loop, "FIRST_SECONDS", 3600.0)
    monkeypatch.setattr(self_check, "ENTRIES", 5)
    # A checkpoint that is made meanwhile finds the changed row too, and remembers it for a while.
    with running_control_api(tmp_path, SLUICE_CHECKPOINT_SECONDS="3600") as started:
        yield started


def ended(api: ControlApi) -> Any:
    answer = api.call("POST", PATH)
    assert answer.status == 202, answer.raw
    until("the verification ends", lambda: not api.admin("GET", PATH)["running"])
    return api.admin("GET", PATH)


@pytest.mark.deep(stands_in="test_a_changed_row_is_named_and_its_repair_is_noticed")
def test_a_run_verifies_the_whole_log_and_its_result_stays(api: ControlApi) -> None:
    before = api.admin("GET", PATH)
    assert (before["state"], before["finished_at"]) == ("pending", None)
    for _ in range(12):
        api.evaluate()
    after = ended(api)
    assert (after["state"], after["reason"]) == ("valid", None)
    assert after["reached"] == after["total"] == after["finished_size"]
    api.restart()
    assert api.admin("GET", PATH) == after


def test_a_changed_row_is_named_and_its_repair_is_noticed(api: ControlApi) -> None:
    before = api.admin("GET", PATH)
    assert (before["state"], before["finished_at"]) == ("pending", None)
    events = [api.evaluate()["event_id"] for _ in range(12)]
    assert ended(api)["state"] == "valid"
    database = api.directory / "data" / "sluice.db"

    def store(entry: bytes) -> None:
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("UPDATE log_entries SET entry = ? WHERE eid = ?", (entry, events[6]))

    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT seq, entry FROM log_entries WHERE eid = ?"
        seq, entry = connection.execute(query, (events[6],)).fetchone()
    store(entry.replace(b"ALLOW", b"DENIE"))
    for _ in range(2):
        found = ended(api)
        assert (found["state"], found["broken_seq"]) == ("damaged", seq)
        assert found["broken_at"] == events[6]
        assert found["reason"].startswith("hash_mismatch: ")
    store(entry)
    repaired = ended(api)
    assert (repaired["state"], repaired["finished_size"]) == ("valid", repaired["total"])
    assert repaired["reached"] == repaired["total"]
    api.restart()
    assert api.admin("GET", PATH) == repaired


def test_a_requested_run_counts_as_running_until_it_has_looked_again(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged log that was repaired: the old finding must not pass for the new answer."""
    event_id = api.evaluate()["event_id"]
    with closing(sqlite3.connect(api.directory / "data" / "sluice.db")) as connection, connection:
        connection.execute("UPDATE log_entries SET kind = 'x' WHERE eid = ?", (event_id,))
    assert ended(api)["state"] == "damaged"
    held, step = threading.Event(), self_check.SelfChecker.step

    async def late(self: self_check.SelfChecker, *args: Any) -> Any:
        await asyncio.to_thread(held.wait, 60)
        return await step(self, *args)

    monkeypatch.setattr(self_check.SelfChecker, "step", late)
    asked = api.call("POST", PATH).body
    assert (asked["running"], asked["queued"]) == (True, True)
    again = api.call("POST", PATH, key=api.new_key("read"))
    assert (again.status, again.body["running"]) == (202, True)
    assert api.admin("GET", PATH)["running"]
    held.set()
    until("the verification ends", lambda: not api.admin("GET", PATH)["running"])


@pytest.mark.deep(stands_in="test_a_requested_run_counts_as_running_until_it_has_looked_again")
def test_a_run_can_be_requested_again_while_it_runs(api: ControlApi) -> None:
    for _ in range(12):
        api.evaluate()
    for _ in range(5):
        assert api.call("POST", PATH, key=api.new_key("read")).status == 202
    assert ended(api)["state"] == "valid"


@pytest.mark.deep(
    stands_in="tests/control_api/log/test_self_check.py::test_only_one_process_at_a_time_verifies_a_log"
)
@pytest.mark.parametrize(("module", "name"), [(self_check, "scan"), (loop, "compare_counts")])
def test_a_verification_that_is_stopped_delays_none_after_it(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    api.evaluate()
    begun, true = threading.Event(), getattr(module, name)

    async def endless(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(module, name, endless)
    assert api.call("POST", PATH).status == 202
    assert begun.wait(60)
    shown = api.admin("GET", PATH)
    assert (shown["running"], shown["queued"]) == (True, False)
    monkeypatch.setattr(module, name, true)
    api.restart()
    shown = api.admin("GET", PATH)
    assert (shown["running"], shown["queued"]) == (True, True)
    after = ended(api)
    assert (after["state"], after["queued"], after["reached"]) == ("valid", False, after["total"])
