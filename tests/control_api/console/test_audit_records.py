"""The audit pages of what people did: changes, legal holds, erasures and retention."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from control_api import purge
from control_api.audit.event_models import PurgeAnchor, Retention
from control_api.audit.retention_operations import show_retention
from control_api.console.page import Console, Visit
from control_api.console.views.audit.changes import show_changes
from control_api.edge.answers import Page
from control_api.edge.route import Operation
from control_api.edge.router import Bundles
from tests.control_api.console.reader import Element, Visitor
from tests.support.control_api import ControlApi
from tests.support.waiting import until

DAY = 86_400


def _rows(page: Element) -> list[Element]:
    return page.find("tbody").find_all("tr")


def test_a_change_names_who_made_it_and_what_changed(api: ControlApi, console: Visitor) -> None:
    key = api.new_key("admin", name="Ann Okafor")
    agent = {"agent_id": "agt_changed", "agent_role": "support", "display_name": "before"}
    api.admin("POST", "/v1/agents", agent)
    status = {"status": "pending_approval", "reason": "the board asked for it"}
    api.call("PATCH", "/v1/agents/agt_changed/status", status, key=key)
    # A key that was revoked since is named, too.
    [made] = [each for each in api.admin("GET", "/v1/keys") if each["name"] == "Ann Okafor"]
    api.admin("DELETE", f"/v1/keys/{made['key_id']}")
    shown = console.get("/console/audit/changes?object_type=agent&object_id=agt_changed")
    assert shown.status == 200
    newest, oldest = _rows(shown.main)
    assert "Ann Okafor" in newest.find("th").text
    assert "the board asked for it" in newest.text
    assert newest.find("del").text == "draft"
    assert newest.find("ins").text == "pending_approval"
    assert "created" in oldest.text
    assert not oldest.find_all("del")


async def test_changes_are_requested_by_page_and_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, dict[str, Any]] = {}

    async def call(_: Visit, operation: Any, **fields: Any) -> Any:
        asked[operation.__name__] = fields
        return Page([])

    monkeypatch.setattr(Visit, "call", call)
    query = {"object_type": "agent", "object_id": "a", "cursor": "here", "colour": "red", "to": ""}
    shown = await show_changes(Visit(cast(Console, None), Bundles(), "/audit/changes", query))
    filters = {"object_type": "agent", "object_id": "a"}
    assert asked["list_changes"] == {"limit": "50", "cursor": "here", **filters}
    assert shown.values["given"] == filters


def test_a_page_of_changes_leads_to_the_next_by_the_same_filter(
    api: ControlApi, console: Visitor, one_a_page: None
) -> None:
    for name in ("agt_older", "agt_newer"):
        api.admin("POST", "/v1/agents", {"agent_id": name, "agent_role": "paged"})
        api.new_key("read")
    shown = console.get("/console/audit/changes?object_type=agent")
    for name in ("agt_newer", "agt_older"):
        (row,) = _rows(shown.main)
        assert name in row.text
        given = shown.main.find("input", name="object_type").attributes["value"]
        assert given == "agent"
        shown = console.get(shown.main.find("a", rel="next").attributes["href"])


@pytest.mark.deep(stands_in="test_a_page_of_changes_leads_to_the_next_by_the_same_filter")
def test_changes_are_paged_and_filtered(api: ControlApi, console: Visitor) -> None:
    for number in range(51):
        api.admin("POST", "/v1/agents", {"agent_id": f"agt_{number}", "agent_role": "paged"})
    first = console.get("/console/audit/changes?object_type=agent")
    assert len(_rows(first.main)) == 50
    second = console.get(first.main.find("a", rel="next").attributes["href"])
    assert len(_rows(second.main)) >= 1
    assert all("agent" in row.text for row in _rows(second.main))
    none = console.get("/console/audit/changes?object_id=absent")
    assert "No change matches" in none.text
    assert none.main.find("input", name="object_id").attributes["value"] == "absent"


def test_changes_are_searched_by_times_as_commands_take_them(
    api: ControlApi, console: Visitor
) -> None:
    api.admin("POST", "/v1/agents", {"agent_id": "agt_timed", "agent_role": "support"})
    for query, found in (("from=1h", True), ("from=2000-01-01", True), ("to=1h", False)):
        shown = console.get(f"/console/audit/changes?object_id=agt_timed&{query}")
        assert ("No change matches" not in shown.text) == found, query
        name, _, typed = query.partition("=")
        assert shown.main.find("input", name=name).attributes["value"] == typed


@pytest.mark.parametrize("query", ["from=yesterday", "cursor=made-up"])
def test_changes_with_a_wrong_filter_are_refused(console: Visitor, query: str) -> None:
    shown = console.get(f"/console/audit/changes?{query}")
    assert shown.status == 422
    assert shown.main.find("div", role="alert").text
    none = console.get("/console/audit/changes?object_id=absent")
    assert "No change matches" in none.text
    assert none.main.find("input", name="object_id").attributes["value"] == "absent"


@pytest.mark.deep(stands_in="test_a_hold_is_listed_and_keeps_from_erasure_until_it_is_released")
def test_a_hold_is_placed_keeps_from_erasure_and_is_released(
    api: ControlApi, console: Visitor
) -> None:
    api.evaluate(user_id="held-user", session_id="s-held")
    page = console.get("/console/audit/holds")
    placed = console.submit(
        page, "/console/audit/holds/place",
        object_type="session", object_id="s-held", reason="litigation 2026-9",
    )  # fmt: skip
    assert "is placed" in placed.text
    assert "litigation 2026-9" in _rows(placed.main)[0].text

    erase = {"kind": "user_id", "whose": "held-user", "reason": "request 1", "final": "yes"}
    page = console.get("/console/audit/erasures")
    refused = console.submit(page, "/console/audit/erasures/erase", **erase)
    assert refused.status == 409
    assert "hold" in refused.main.find("div", role="alert").text
    assert refused.main.find("textarea", name="whose").text == "held-user"

    released = console.submit(placed, "/console/audit/holds/release", why="settled")
    assert "is released" in released.text
    assert "s-held" not in released.text
    assert "s-held" in console.get("/console/audit/holds?all=yes").text

    erased = console.submit(page, "/console/audit/erasures/erase", **erase)
    assert "Erased." in erased.text
    assert "request 1" in _rows(erased.main)[0].text
    assert api.events("?session_id=s-held")[0]["user_id"] is None
    again = console.submit(page, "/console/audit/erasures/erase", **erase)
    assert "There was nothing to erase" in again.text


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"final": ""}, "can't be undone"),
        ({"kind": "everyone"}, "choose whose"),
        ({"whose": " "}, "exactly one is required"),
        ({"reason": ""}, "reason"),
    ],
)
def test_an_incomplete_erasure_is_refused(
    console: Visitor, fields: dict[str, str], told: str
) -> None:
    whole = {"kind": "event_ids", "whose": "a b", "reason": "request 2", "final": "yes"}
    page = console.get("/console/audit/erasures")
    shown = console.submit(page, "/console/audit/erasures/erase", **whole | fields)
    assert shown.status == 422
    assert told in shown.main.find("div", role="alert").text


def test_an_incomplete_hold_is_refused_and_keeps_what_was_typed(console: Visitor) -> None:
    page = console.get("/console/audit/holds")
    shown = console.submit(
        page, "/console/audit/holds/place", object_type="user", object_id="u-1", reason=""
    )
    assert shown.status == 422
    assert shown.main.find("input", name="object_id").attributes["value"] == "u-1"
    csrf = page.main.find("input", name="csrf").attributes["value"]
    fields = {"csrf": csrf, "hold_id": "hld_absent", "why": "it ended"}
    assert console.post("/console/audit/holds/release", fields).status == 404


def test_a_hold_is_listed_and_keeps_from_erasure_until_it_is_released(tenant: ControlApi) -> None:
    tenant.evaluate(user_id="held", session_id="s-kept")
    console = Visitor(tenant).sign_in(tenant.admin_key)
    page = console.get("/console/audit/holds")
    placed = console.submit(
        page, "/console/audit/holds/place",
        object_type="session", object_id="s-kept", reason="litigation 2026-8",
    )  # fmt: skip
    [row] = _rows(placed.main)
    assert "litigation 2026-8" in row.text
    erase = {"kind": "user_id", "whose": "held", "reason": "request 1", "final": "yes"}
    page = console.get("/console/audit/erasures")
    refused = console.submit(page, "/console/audit/erasures/erase", **erase)
    assert (refused.status, "hold" in refused.main.find("div", role="alert").text) == (409, True)
    released = console.submit(placed, "/console/audit/holds/release", why="settled")
    assert "s-kept" not in released.text
    assert "s-kept" in console.get("/console/audit/holds?all=yes").text
    for told in ("Erased.", "There was nothing to erase"):
        assert told in console.submit(page, "/console/audit/erasures/erase", **erase).text
    assert tenant.events("?session_id=s-kept")[0]["user_id"] is None


def test_a_reader_sees_holds_and_erasures_and_changes_neither(
    api: ControlApi, reader: Visitor
) -> None:
    body = {"object_type": "agent", "object_id": "agt_held", "reason": "litigation 7"}
    api.admin("POST", "/v1/audit/holds", body)
    for path in ("holds", "erasures", "retention"):
        shown = reader.get(f"/console/audit/{path}")
        assert shown.status == 200
        assert not shown.main.find_all("form"), path
    for action in ("holds/place", "holds/release", "erasures/erase", "retention/change"):
        assert reader.post(f"/console/audit/{action}", {}).status == 403


def test_the_offered_proof_begins_with_the_purged_entries(
    api: ControlApi, console: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    anchor = replace(PurgeAnchor(**PurgeAnchor.example), tree_size=2, root_hash="ab" * 32)
    purged = Retention(**Retention.example | {"anchor": anchor})
    call = Visit.call

    async def as_purged(visit: Visit, operation: Operation, **fields: Any) -> Any:
        return purged if operation is show_retention else await call(visit, operation, **fields)

    monkeypatch.setattr(Visit, "call", as_purged)
    shown = console.get("/console/audit/retention").main.find("section", aria_labelledby="purged")
    assert "The first 2 entries are gone" in shown.text
    assert anchor.root_hash in shown.text
    proof = shown.find("a", download="purged-2.json").attributes["href"]
    until("a checkpoint", lambda: console.get(proof).status == 200)
    assert json.loads(console.get(proof).raw)["from"] == 2


@pytest.mark.deep(stands_in="test_the_offered_proof_begins_with_the_purged_entries")
def test_purged_entries_are_shown_with_their_proof(
    fresh: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "FIRST_SECONDS", 0.2)
    fresh.evaluate()
    until("a checkpoint", lambda: fresh.admin("GET", "/v1/audit/checkpoints"))
    fresh.time.ahead = 400 * DAY
    fresh.restart()
    until("a purge", lambda: fresh.admin("GET", "/v1/audit/retention")["anchor"])
    anchor = fresh.admin("GET", "/v1/audit/retention")["anchor"]
    console = Visitor(fresh).sign_in(fresh.admin_key)
    shown = console.get("/console/audit/retention")
    assert f"The first {anchor['tree_size']} entries are gone" in shown.text
    assert anchor["root_hash"] in shown.text
    proof = shown.main.find("section", aria_labelledby="purged").find_all("a")[-1]
    path = f"/v1/audit/consistency?from={anchor['tree_size']}"
    until("a checkpoint", lambda: fresh.call("GET", path).status == 200)
    proven = json.loads(console.get(proof.attributes["href"]).raw)
    assert proven["from"] == anchor["tree_size"]
    assert proven["checkpoint"]


def test_the_retention_of_records_can_be_changed(fresh: ControlApi) -> None:
    fresh.evaluate()
    console = Visitor(fresh).sign_in(fresh.admin_key)
    shown = console.get("/console/audit/retention")
    assert "Nothing: the log is there from its first entry on." in shown.text
    changed = console.submit(
        shown, "/console/audit/retention/change", retention_days="10", session_retention_days="20"
    )
    assert "The next purge" in changed.text
    assert fresh.admin("GET", "/v1/settings/retention")["retention_days"] == 10
    wrong = console.submit(shown, "/console/audit/retention/change", retention_days="-1")
    assert wrong.status == 422
    assert wrong.main.find("input", name="retention_days").attributes["value"] == "-1"
    over = console.submit(shown, "/console/audit/retention/change", retention_days="9999")
    assert over.status == 422
