"""Every answer from the log says how far the log was verified, and the console says on each page
that lists may be wrong: from when a verification finds it until it was repaired."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from control_api.log.commands import rebuild_lists
from control_api.log.scheduled import loop
from control_api.routes import ROUTES
from control_api.settings import read
from policies.ground.canonical import micros
from policies.ground.ids import RandomBuffer
from tests.control_api.audit.test_verification import PATH, ended
from tests.control_api.console.reader import Visitor
from tests.support.control_api import ControlApi, running_control_api

EVENTS, STATS = "/v1/audit/events", "/v1/audit/stats"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlApi]:
    # Only what is asked for is verified.
    monkeypatch.setattr(loop, "FIRST_SECONDS", 3600.0)
    with running_control_api(tmp_path) as started:
        yield started


def change(api: ControlApi, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(api.directory / "data" / "sluice.db")) as connection, connection:
        connection.execute(statement, values)


def standing(api: ControlApi, path: str = EVENTS) -> tuple[str | None, str | None]:
    headers = api.call("GET", path).headers
    return headers["X-Sluice-Verification"], headers["X-Sluice-Verified-At"]


def paths_of_the_log(**values: str) -> list[str]:
    """The routes whose answers depend on the log."""
    paths = [route.path.format(**values) for route in ROUTES if route.of_log]
    assert len(paths) == 12
    return paths


def repair(api: ControlApi) -> str:
    """What the command says, beside the running service."""
    told: list[str] = []
    settings = read({"SLUICE_DATA_DIR": str(api.directory / "data")})
    clock, entropy = api.time.clock(), RandomBuffer(os.urandom)
    assert asyncio.run(rebuild_lists(settings, clock, entropy, api.tenant_id, told.append))
    return "\n".join(told)


def banner(api: ControlApi) -> str:
    page = Visitor(api).sign_in(api.new_key("read")).get("/console/decisions").page
    return " ".join(each.text for each in page.find_all("aside", aria_label="Verification"))


@pytest.mark.deep(stands_in="test_every_list_reports_an_event_that_was_hidden_from_lists")
def test_every_answer_from_the_log_has_the_time_of_the_last_verification(api: ControlApi) -> None:
    event_id = api.evaluate(session_id="s1")["event_id"]
    api.admin("POST", "/v1/agents", {"agent_id": "a1", "agent_role": "support"})
    assert standing(api) == ("never", None)
    before = api.time.now()
    found = ended(api)
    assert before <= micros(found["verified_at"]) <= api.time.now()
    for path in paths_of_the_log(event_id=event_id, session_id="s1", agent_id="a1"):
        assert standing(api, path) == ("ok", found["verified_at"]), path
    assert "X-Sluice-Verification" not in api.call("GET", "/v1/keys").headers
    assert banner(api) == ""
    assert "log verified " in Visitor(api).sign_in(api.admin_key).get("/console/keys").page.text


def test_the_overview_shows_one_age_of_the_last_verification(api: ControlApi) -> None:
    api.evaluate()
    assert ended(api)["state"] == "valid"
    # The walk over the whole log began long before its end.
    change(api, "UPDATE self_checks SET verified_at = verified_at - 7500000000")
    page = Visitor(api).sign_in(api.admin_key).get("/console").page
    assert "valid 2 h ago" in page.find("section", aria_labelledby="log").text
    assert "log verified 2 h ago" in page.find("footer").text


def test_every_list_reports_an_event_that_was_hidden_from_lists(api: ControlApi) -> None:
    fields = {"source_id": "payroll", "session_id": "s1"}
    events = [api.evaluate(**fields)["event_id"] for _ in range(3)]
    api.admin("POST", "/v1/agents", {"agent_id": "a1", "agent_role": "support"})
    assert standing(api) == ("never", None)
    begun = api.time.now()
    assert ended(api)["state"] == "valid"
    verified_at = standing(api)[1]
    assert begun <= micros(verified_at or "") <= api.time.now()
    assert "X-Sluice-Verification" not in api.call("GET", "/v1/keys").headers
    change(api, "UPDATE log_entries SET decision = 'ALLOW' WHERE eid = ?", events[1])
    listed = [each["event_id"] for each in api.admin("GET", f"{EVENTS}?decision=DENY")]
    assert listed == [events[2], events[0]]
    assert ended(api)["reason"].startswith("column_mismatch: ")
    # What was last found right was so then.
    for path in paths_of_the_log(event_id=events[0], session_id="s1", agent_id="a1"):
        assert standing(api, path) == ("column_mismatch", verified_at), path
    assert "sluice rebuild-lists --tenant default" in banner(api)
    api.restart()
    assert standing(api) == ("column_mismatch", verified_at)
    assert "recorded by entry" in repair(api)
    assert ended(api)["state"] == "valid"
    assert standing(api)[0] == "ok"
    listed = [each["event_id"] for each in api.admin("GET", f"{EVENTS}?decision=DENY")]
    assert listed == events[::-1]
    assert banner(api) == ""
    assert "recorded by entry" not in repair(api)
    # So is a count that was changed.
    change(api, "UPDATE tallies SET denied = 0 WHERE facet = 0")
    reason = "the counts by `source_type` are 0 allowed and 0 denied, and those of the entries 0"
    assert ended(api)["reason"].startswith(f"column_mismatch: {reason} and 3")
    assert standing(api)[0] == standing(api, STATS)[0] == "column_mismatch"


@pytest.mark.deep(stands_in="test_every_list_reports_an_event_that_was_hidden_from_lists")
def test_every_list_reports_a_count_that_was_changed(api: ControlApi) -> None:
    for _ in range(3):
        api.evaluate(source_id="payroll")
    assert ended(api)["state"] == "valid"
    change(api, "UPDATE tallies SET denied = 0 WHERE facet = 0")
    assert api.admin("GET", STATS)["denied"] == 0
    found = ended(api)
    assert (found["state"], found["broken_at"], found["broken_seq"]) == ("damaged", None, None)
    assert found["reason"] == (
        "column_mismatch: the counts by `source_type` are 0 allowed and 0 denied, and those of the "
        "entries 0 and 3"
    )
    assert standing(api)[0] == standing(api, STATS)[0] == "column_mismatch"
    ready = api.call("GET", "/health/ready").body["self_verification"]
    assert ready["state"] == "damaged"
    assert "sluice_self_verification_findings 1.0" in api.call("GET", "/metrics").raw.decode()
    console = Visitor(api).sign_in(api.new_key("read"))
    for address in ("/console", "/console/decisions", "/console/audit", "/console/keys"):
        told = console.get(address).page.find("aside", aria_label="Verification")
        assert "sluice rebuild-lists --tenant default" in told.text, address
    repair(api)
    assert api.admin("GET", STATS)["denied"] == 3
    whats = [each["action"] for each in api.admin("GET", "/v1/audit/changes?object_type=log")]
    assert whats == ["rebuilt", "rebuild_begun"]
    assert ended(api)["state"] == "valid"
    assert standing(api)[0] == "ok"
    assert banner(api) == ""
    assert api.admin("GET", PATH)["reason"] is None
