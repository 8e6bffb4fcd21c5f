"""The pages of policies: the list, one policy, the editor with its review, and the history."""

from __future__ import annotations

import json
from typing import Any

import pytest

from control_api.console.views.policies.one import line_changes
from control_api.console.views.policies.policy_text import read, written
from policies.definitions.policy_form import FIELDS, LISTS
from tests.control_api.console.payloads import NAMES
from tests.control_api.console.reader import Shown, Visitor
from tests.support.control_api import ControlApi

TEXT = """\
name: {name}
agent_role: teller
allowed_sources: [{sources}]
denied_sources: []
max_sensitivity: low
"""
PAYROLL = """\
tests:
  - name: tellers don't read payroll
    ask: {agent_role: teller, source_id: payroll, sensitivity_level: low}
    expect: {decision: DENY}
"""


def text(name: str, *sources: str) -> str:
    return TEXT.format(name=name, sources=", ".join(sources or ("handbook",)))


def made(api: ControlApi, name: str, *sources: str) -> str:
    body, _ = read(text(name, *sources))
    return str(api.admin("POST", "/v1/policies", body)["policy_id"])


def review(console: Visitor, shown: Shown, typed: str, **more: str) -> Shown:
    return console.submit(shown, "/console/policy/review", text=typed, **more)


def edit(console: Visitor, policy_id: str) -> Shown:
    return console.get(f"/console/policy/edit?id={policy_id}")


def forms(shown: Shown) -> set[str]:
    return {each.attributes["action"] for each in shown.main.find_all("form")}


def test_any_policy_is_written_as_text_that_reads_as_the_same() -> None:
    for name in NAMES:
        body: dict[str, Any] = {key: [name, "no", "1"] if key in LISTS else name for key in FIELDS}
        body |= {"max_sensitivity": "low", "session_ttl_minutes": 5}
        assert read(written(body)) == (body, []), name
        bare = {**body, **{key: [] for key in LISTS}, "industry": None}
        assert read(written(bare)).body == bare, name


def test_each_fault_of_a_text_has_the_line_to_correct() -> None:
    def lines(typed: str) -> list[int]:
        found = read(typed)
        assert found.body is None
        return [each.line for each in found.faults]

    assert lines("name: a\nagent_role: b\ncolour: red\n") == [1, 1, 3]
    assert lines("name: a\nall\n\n\n") == [2]
    assert lines("") == [0]
    assert lines("policies: []\n") == [0]
    assert lines("- name: a\n- name: b\n")[0] == 1
    assert lines("name: a\nname: &x b\nrole: \x07") == [3]
    file = "policies:\n  - {name: a, agent_role: b, allowed_sources: [], denied_sources: [], "
    assert read(file + "max_sensitivity: low}\n").faults == []


def test_a_difference_leaves_out_distant_lines() -> None:
    old = "".join(f"{number}\n" for number in range(20))
    found = line_changes(old, old.replace("10\n", "ten\n"))
    assert [each for each in found if each[0] in "+-"] == [("-", "10"), ("+", "ten")]
    assert len(found) == 9
    assert line_changes(old, old) == []


def test_policies_are_searched_and_a_page_begins_behind_its_cursor(
    tenant: ControlApi, one_a_page: None
) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    for name in ("older", "newer"):
        made(tenant, name, f"desk-{name}")
    shown = console.get("/console/policies?name=ER")
    (following,) = shown.main.find_all("a", rel="next")
    last = console.get(following.attributes["href"])
    for page, name in ((shown, "newer"), (last, "older")):
        (row,) = page.main.find("tbody").find_all("tr")
        assert row.find("th").find("a").text == name
    assert not last.main.find_all("a", rel="next")
    (row,) = console.get("/console/policies?source=sk-n").main.find("tbody").find_all("tr")
    assert row.find("th").find("a").text == "newer"
    assert "No policy matches" in console.get("/console/policies?industry=mining").text
    assert console.get("/console/policies?cursor=x").status == 422


@pytest.mark.deep(stands_in="test_policies_are_searched_and_a_page_begins_behind_its_cursor")
def test_policies_are_searched_and_paged(fresh: ControlApi) -> None:
    console = Visitor(fresh).sign_in(fresh.admin_key)
    for number in range(53):
        made(fresh, f"teller-{number}", f"desk-{number % 2}")
    first = console.get("/console/policies?name=TELLER-")
    assert len(first.main.find("tbody").find_all("tr")) == 50
    second = console.get(first.main.find("a", rel="next").attributes["href"])
    assert len(second.main.find("tbody").find_all("tr")) == 3
    some = console.get("/console/policies?source=sk-1&agent_role=teller")
    assert len(some.main.find("tbody").find_all("tr")) == 26
    assert "No policy matches" in console.get("/console/policies?industry=mining").text
    assert console.get("/console/policies?cursor=x").status == 422


def test_a_policy_is_shown_with_its_text_and_its_origin(api: ControlApi, console: Visitor) -> None:
    filed = api.admin("GET", "/v1/policies?agent_role=support")[0]
    shown = console.get(f"/console/policy?id={filed['policy_id']}")
    lines = [each.text for each in shown.main.find("ol", class_="lines").find_all("li")]
    assert lines == written(filed).splitlines()
    assert "as in the file" in shown.text
    assert console.get("/console/policy?id=pol_unknown").status == 404
    assert console.get("/console/policy").status == 422


def test_an_edit_that_a_guardrail_refuses_is_saved_once_corrected(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    policy_id = made(tenant, "tellers")
    tenant.admin(
        "POST", "/v1/guardrails", {"name": "no-payroll", "never": {"sources": ["payroll"]}}
    )
    wide = review(
        console, edit(console, policy_id), text("tellers", "handbook", "pay*"), tests=PAYROLL
    )
    assert wide.status == 200
    for words in ("widens access", "refused by a guardrail", "no-payroll", "1 of 1 test fails"):
        assert words in wide.text, words
    assert "teller may now read pay*" in wide.text
    assert "/console/policy/save" not in forms(wide)
    # A browser that saves all the same is refused, and keeps what was typed.
    fields = {"id": policy_id, "version": "1", "text": text("tellers", "pay*")}
    csrf = wide.main.find("input", name="csrf").attributes["value"]
    forced = console.post("/console/policy/save", {**fields, "csrf": csrf})
    assert (forced.status, "A guardrail refuses the change" in forced.text) == (409, True)
    mended = review(console, wide, text("tellers", "handbook", "desk"), tests=PAYROLL)
    assert "guardrails hold" in mended.text
    assert "The test passes" in mended.text
    assert "Allowed sources: added desk" in mended.text
    candidate = next(
        each for each in mended.main.find_all("form", action="/console/candidate/create")
    )
    assert "desk" in candidate.find("textarea", name="policies").text
    run = console.submit(mended, "/console/impact/start")
    assert (run.status, "The run has begun" in run.text) == (200, True)
    saved = console.submit(mended, "/console/policy/save")
    assert "The change is in force" in saved.text
    late = console.submit(mended, "/console/policy/save")  # it has changed
    assert late.status == 412
    assert "added desk" in late.main.find("div", role="alert").text
    assert tenant.admin("GET", f"/v1/policies/{policy_id}")["allowed_sources"] == [
        "handbook",
        "desk",
    ]


@pytest.mark.deep(stands_in="test_an_edit_that_a_guardrail_refuses_is_saved_once_corrected")
def test_a_change_by_another_is_shown_and_not_overwritten(
    api: ControlApi, console: Visitor
) -> None:
    policy_id = made(api, "contested")
    mine = review(console, edit(console, policy_id), text("contested", "handbook", "mine"))
    theirs, _ = read(text("contested", "handbook", "theirs"))
    api.admin("PUT", f"/v1/policies/{policy_id}", theirs)
    refused = console.submit(mine, "/console/policy/save")
    assert refused.status == 412
    assert "changed while you wrote" in refused.text
    assert "added theirs" in refused.main.find("div", role="alert").text
    assert "mine" in refused.main.find("textarea", id="f-text").text
    assert "/console/policy/save" not in forms(refused)
    again = console.submit(refused, "/console/policy/review")
    assert (again.status, "removed theirs" in again.text) == (200, True)
    assert "The change is in force" in console.submit(again, "/console/policy/save").text


def test_faults_are_shown_at_their_lines_without_a_script(console: Visitor) -> None:
    new = console.get("/console/policy/new")
    shown = review(console, new, text("faulty").replace(": low", ": enormous") + "colour: red\n")
    assert shown.status == 422
    assert "2 faults" in shown.main.find("div", role="alert").text
    for line, key in ((5, "max_sensitivity"), (6, "colour")):
        assert key in shown.main.find("li", id=f"line-{line}").find("p", class_="fault").text
    assert "enormous" in shown.main.find("textarea", id="f-text").text
    csrf = new.main.find("input", name="csrf").attributes["value"]
    fields = {"csrf": csrf, "text": "name: 1\n", "as": "faults"}
    found = json.loads(console.post("/console/policy/review", fields).raw)["faults"]
    assert [(each["line"], each["key"]) for each in found][-1] == (1, "name")
    fields["text"] = "#" * 300_000
    [large] = json.loads(console.post("/console/policy/review", fields).raw)["faults"]
    assert "is larger than" in large["message"]


def test_a_policy_is_created_under_a_free_name(api: ControlApi, console: Visitor) -> None:
    made(api, "taken")
    new = console.get("/console/policy/new")
    refused = review(console, new, text("taken"))
    assert (refused.status, "already exists" in refused.text) == (409, True)
    assert "taken" in refused.main.find("textarea", id="f-text").text
    shown = review(console, refused, text("brand-new"))
    assert "A new policy" in shown.text
    assert "The policy is in force" in console.submit(shown, "/console/policy/save").text
    wrong = review(console, shown, text("other"), version="x")
    assert wrong.status == 422


def test_a_candidate_made_from_a_rename_leaves_out_the_old_name(
    api: ControlApi, console: Visitor
) -> None:
    policy_id = made(api, "before-rename")
    shown = review(console, edit(console, policy_id), text("after-rename"))
    assert "decides everything alike" in shown.text
    candidate = shown.main.find("form", action="/console/candidate/create")
    assert candidate.find("input", name="without").attributes["value"] == "before-rename"


def test_the_history_shows_what_each_version_changed_and_restores_one(
    api: ControlApi, console: Visitor
) -> None:
    policy_id = made(api, "lived")
    for sources in (("handbook", "desk"), ("desk",)):
        api.admin("PUT", f"/v1/policies/{policy_id}", read(text("lived", *sources)).body)
    shown = console.get(f"/console/policy/history?id={policy_id}")
    newest, middle, first = shown.main.find("ol", class_="timeline").find_all("h2")
    assert ["Version 3" in newest.text, "Version 2" in middle.text] == [True, True]
    assert "created" in first.text
    assert "removed handbook" in shown.text
    compared = console.get(f"/console/policy/compare?id={policy_id}&from=1&to=3")
    assert "teller may now read desk" in compared.text
    assert "teller may no longer read handbook" in compared.text
    assert console.get(f"/console/policy/compare?id={policy_id}&from=1&to=9").status == 404
    restored = console.submit(shown, "/console/policy/review")
    assert "Allowed sources: added handbook" in restored.text
    console.submit(restored, "/console/policy/save")
    sources = api.admin("GET", f"/v1/policies/{policy_id}")["allowed_sources"]
    assert sources == ["handbook", "desk"]


def test_a_deletion_is_reviewed_and_can_be_taken_back(api: ControlApi, console: Visitor) -> None:
    policy_id = made(api, "doomed", "attic")
    shown = console.get(f"/console/policy/delete?id={policy_id}")
    assert "teller may no longer read attic" in shown.text
    gone = console.submit(shown, "/console/policy/delete")
    assert "The policy is deleted" in gone.text
    assert console.get(f"/console/policy?id={policy_id}").status == 404
    again = console.submit(gone, "/console/policy/review")
    assert "teller may now read attic" in again.text
    assert "The policy is in force" in console.submit(again, "/console/policy/save").text


def test_a_reader_can_try_a_change_and_not_save_it(
    api: ControlApi, console: Visitor, reader: Visitor
) -> None:
    policy_id = made(api, "read-only")
    shown = review(reader, edit(reader, policy_id), text("read-only", "cellar"))
    assert "may now read cellar" in shown.text
    assert not forms(shown) & {"/console/policy/save", "/console/candidate/create"}
    csrf = shown.main.find("input", name="csrf").attributes["value"]
    for path in ("/console/policy/save", "/console/policy/delete", "/console/policies/reload"):
        assert reader.post(path, {"csrf": csrf, "id": policy_id}).status == 403
    assert reader.get(f"/console/policy/delete?id={policy_id}").status == 403
    assert "/console/policies/reload" not in forms(reader.get("/console/policies"))
    reloaded = console.submit(console.get("/console/policies"), "/console/policies/reload")
    assert "The policy files were read" in reloaded.text


def test_a_policy_returns_to_its_file(fresh: ControlApi) -> None:
    console = Visitor(fresh).sign_in(fresh.admin_key)
    filed = fresh.admin("GET", "/v1/policies")[0]
    policy_id = filed["policy_id"]
    assert fresh.admin("GET", f"/v1/policies/{policy_id}/file") == {
        name: filed[name] for name in FIELDS
    }
    same = review(console, edit(console, policy_id), written(filed))
    assert "There is nothing to save" in same.text
    assert not same.main.find_all("form", action="/console/policy/save")
    changed = written(filed).replace(filed["name"], "renamed-here")
    shown = review(console, edit(console, policy_id), changed)
    assert "a reload of the files skips the policy" in shown.text
    saved = console.submit(shown, "/console/policy/save")
    assert "changed here" in saved.text
    assert f"/console/policy/restore?id={policy_id}" in {
        each.attributes["href"] for each in saved.main.find_all("a")
    }
    asked = console.get(f"/console/policy/restore?id={policy_id}")
    assert "It allows nothing that is denied now" in asked.text
    assert "from renamed-here to" in asked.text
    assert "follows the file again" in console.submit(asked, "/console/policy/restore").text
    fresh.admin("DELETE", f"/v1/policies/{policy_id}")
    back = console.get(f"/console/policy/restore?id={policy_id}")
    assert "comes back" in back.text
    console.submit(back, "/console/policy/restore")
    assert fresh.admin("GET", f"/v1/policies/{policy_id}")["name"] == filed["name"]
    other = made(fresh, "never-filed")
    assert console.get(f"/console/policy/restore?id={other}").status == 404


def test_a_policy_names_its_denials_that_a_call_without_an_agent_escapes(
    tenant: ControlApi,
) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    common = {"agent_role": "escaping", "max_sensitivity": "high"}
    wide = {"name": "reads-all", "allowed_sources": ["*"], "denied_sources": []}
    strict = {"name": "no-pay", "allowed_sources": [], "denied_sources": ["pay*"]}
    tenant.admin("POST", "/v1/policies", {**common, **wide})
    strict |= {**common, "permitted_agent_ids": ["agt_1"]}
    policy = tenant.admin("POST", "/v1/policies", strict)
    shown = console.get(f"/console/policy?id={policy['policy_id']}").main.text
    assert "require_agent_id" in shown
    assert "reads-all allows it" in shown
