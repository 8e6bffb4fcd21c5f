"""The levels of sources in the console: stated, changed, deleted, and only by who may."""

from __future__ import annotations

import pytest

from tests.control_api.console.reader import Shown, Visitor
from tests.support.control_api import ControlApi

LIST = "/console/policies/sources"
ONE = "/console/policies/source"


def stated(console: Visitor, pattern: str, level: str) -> Shown:
    fields = {"source_pattern": pattern, "sensitivity_level": level}
    return console.submit(console.get(f"{LIST}/new"), "/console/source/put", **fields)


def test_a_level_is_stated_changed_and_deleted(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    assert "No level" in console.get(LIST).text
    shown = stated(console, "rest://crm/*", "high")
    assert "The level holds from now on" in shown.text
    assert "rest://crm/*" in shown.text
    shown = console.get(f"{ONE}?id=rest%3A%2F%2Fcrm%2F%2A")
    assert "decided at high at least" in shown.text
    console.submit(shown, "/console/source/put", sensitivity_level="critical")
    [level] = tenant.admin("GET", "/v1/sources")
    assert level == {"source_pattern": "rest://crm/*", "sensitivity_level": "critical"}
    assert console.submit(shown, "/console/source/delete").status == 422
    shown = console.submit(shown, "/console/source/delete", confirm="yes")
    assert "The level is gone" in shown.text
    assert tenant.admin("GET", "/v1/sources") == []
    assert console.get(f"{ONE}?id=rest%3A%2F%2Fcrm%2F%2A").status == 404


@pytest.mark.parametrize(
    ("pattern", "level", "text"),
    [("", "low", "`source_pattern` is missing"), ("a", "secret", "sensitivity_level")],
)
def test_an_incomplete_form_of_a_level_is_refused(
    console: Visitor, pattern: str, level: str, text: str
) -> None:
    shown = stated(console, pattern, level)
    assert shown.status == 422
    assert text in shown.text
    assert shown.main.find("input", name="source_pattern").attributes["value"] == pattern


def test_a_reader_sees_levels_and_cannot_change_them(tenant: ControlApi) -> None:
    stated(Visitor(tenant).sign_in(tenant.admin_key), "salaries", "critical")
    reader = Visitor(tenant).sign_in(tenant.new_key("read"))
    shown = reader.get(LIST)
    assert "salaries" in shown.text
    assert "New level" not in shown.text
    assert not shown.main.find_all("form")
    for path in (f"{LIST}/new", f"{ONE}?id=salaries"):
        assert reader.get(path).status == 403


def test_answers_about_access_note_that_levels_of_sources_are_not_applied(console: Visitor) -> None:
    for path in ("/console/access", "/console/access/why?source_id=handbook"):
        shown = console.get(path)
        assert "which may raise it, are not applied" in shown.text
