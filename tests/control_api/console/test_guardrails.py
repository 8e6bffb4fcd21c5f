"""Guardrails in the console: in words, created, changed, deleted, and refused with the request that
breaks them."""

from __future__ import annotations

import pytest

from tests.control_api.console.reader import Shown, Visitor
from tests.support.control_api import ControlApi

LIST = "/console/policies/guardrails"
ONE = "/console/policies/guardrail"


def created(console: Visitor, **fields: str) -> Shown:
    return console.submit(console.get(f"{LIST}/new"), "/console/guardrail/create", **fields)


def test_a_guardrail_is_created_changed_and_deleted(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    refused = created(console, name="no-handbook", sources="handbook")
    assert (refused.status, "policies in force break it" in refused.text) == (409, True)
    assert "No guardrail" in console.get(LIST).text
    shown = created(
        console, name="payroll", sources="payroll*\nsalaries", except_roles="hr", levels="low"
    )
    assert "The guardrail holds from now on" in shown.text
    assert "no role except hr may ever read payroll* , salaries at low." in shown.text
    shown = console.get(f"{ONE}?id=payroll")
    assert shown.main.find("input", type="checkbox", value="low").attributes.keys() >= {"checked"}
    shown = console.submit(shown, "/console/guardrail/replace", tasks="absent")
    assert "at low, for calls without a task." in shown.text
    (rule,) = tenant.admin("GET", "/v1/guardrails")
    assert rule["never"]["sources"] == ["payroll*", "salaries"]
    shown = console.get(f"{ONE}?id=payroll")
    assert console.submit(shown, "/console/guardrail/delete").status == 422
    shown = console.submit(shown, "/console/guardrail/delete", confirm="yes")
    assert "The guardrail is gone" in shown.text
    assert tenant.admin("GET", "/v1/guardrails") == []


def test_a_guardrail_that_policies_in_force_break_is_refused(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    shown = created(console, name="no-handbook", sources="handbook")
    assert shown.status == 409
    assert "The policies in force break it already" in shown.text
    assert "source id handbook" in shown.text
    assert shown.main.find("textarea", name="sources").text == "handbook"
    always = {"kind": "always", "roles": "support", "levels": "low", "tasks": "absent"}
    created(console, name="open", sources="handbook", **always)
    assert (
        "support may always read handbook at low, for calls without a task"
        in console.get(LIST).text
    )
    shown = console.get(f"{ONE}?id=open")
    shown = console.submit(shown, "/console/guardrail/replace", sources="payroll")
    assert shown.status == 409
    assert shown.heading == "Guardrail open"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "", "sources": "x"}, "`name` is missing"),
        ({"name": "a", "kind": "maybe"}, "choose whether"),
        ({"name": "a", "kind": "always", "sources": "x"}, "roles"),
    ],
)
def test_an_incomplete_form_of_a_guardrail_is_refused(
    console: Visitor, fields: dict[str, str], text: str
) -> None:
    shown = created(console, **fields)
    assert shown.status == 422
    assert text in shown.text


def test_a_files_guardrail_is_changed_in_its_file(api: ControlApi, tenant: ControlApi) -> None:
    file = api.directory / "policies" / tenant.tenant_id / "guardrails.yaml"
    file.parent.mkdir()
    file.write_text("guardrails:\n  - name: filed\n    never: {sources: [payroll]}\n")
    tenant.admin("POST", "/v1/policies/reload")
    console = Visitor(tenant).sign_in(tenant.admin_key)
    assert f"the file {tenant.tenant_id}/guardrails.yaml" in console.get(LIST).text
    shown = console.get(f"{ONE}?id=filed")
    assert "It is changed there" in shown.text
    assert not shown.main.find_all("form")
    reader = Visitor(tenant).sign_in(tenant.new_key("read"))
    assert "New guardrail" not in reader.get(LIST).text
    assert reader.get(f"{LIST}/new").status == 403
