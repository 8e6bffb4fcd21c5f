"""The sessions' pages: search, one session in order, ending one and many."""

from __future__ import annotations

from tests.control_api.console.reader import Visitor
from tests.support.control_api import ControlApi


def test_a_session_shows_its_trail_and_is_revoked(api: ControlApi, console: Visitor) -> None:
    for source, level in (("handbook", "low"), ("payroll", "high"), ("handbook", "low")):
        api.evaluate(session_id="s/1", source_id=source, sensitivity_level=level)
    listed = console.get("/console/sessions?status=active&agent_role=support")
    link = next(each for each in listed.main.find_all("a") if each.text == "s/1")
    shown = console.get(link.attributes["href"])
    rows = [row.text for row in shown.main.find("tbody").find_all("tr")]
    assert [("DENY" in row, "higher than before" in row) for row in rows] == [
        (False, False), (True, True), (False, False),
    ]  # fmt: skip
    refused = console.submit(shown, "/console/session/revoke", reason=" ")
    assert refused.status == 422
    done = console.submit(shown, "/console/session/revoke", reason="lost laptop")
    assert "Revoked." in done.text
    assert "lost laptop" in done.text
    assert api.evaluate(session_id="s/1")["policy_name"] == "session_revoked"
    assert not done.main.find_all("form")


def test_many_sessions_are_revoked_after_their_number_is_shown(
    api: ControlApi, console: Visitor
) -> None:
    api.approved("agt_many")
    for number in range(3):
        api.evaluate(session_id=f"many-{number}", agent_id="agt_many")
    asked = console.get("/console/sessions/revoke")
    assert not asked.page.find_all("form", method="post", action="/console/sessions/revoke")
    looked = console.get("/console/sessions/revoke?agent_id=agt_many")
    assert "3 sessions would be revoked" in looked.text
    assert api.evaluate(session_id="many-0", agent_id="agt_many")["decision"] == "ALLOW"
    [form] = looked.page.find_all("form", method="post", action="/console/sessions/revoke")
    held = {each.attributes["name"]: each.attributes["value"] for each in form.find_all("input")}
    refused = console.post("/console/sessions/revoke", held)
    assert (refused.status, "say why" in refused.text) == (422, True)
    done = console.post("/console/sessions/revoke", {**held, "reason": "leak"})
    assert "3 sessions were revoked" in done.text
    assert api.evaluate(session_id="many-0", agent_id="agt_many")["decision"] == "DENY"
    nothing = {"csrf": held["csrf"], "reason": "x"}
    assert console.post("/console/sessions/revoke", nothing).status == 422


def test_an_absent_or_forbidden_page_of_sessions_is_refused(
    api: ControlApi, console: Visitor, reader: Visitor
) -> None:
    assert console.get("/console/session?id=none").status == 404
    assert console.get("/console/sessions?status=wrong").status == 422
    assert "No session matches" in console.get("/console/sessions?agent_role=none").text
    api.evaluate(session_id="s-read")
    assert not reader.get("/console/session?id=s-read").main.find_all("form")
    assert reader.get("/console/sessions/revoke").status == 403
