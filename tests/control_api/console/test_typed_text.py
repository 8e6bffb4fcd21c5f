"""What a visitor types, or a browser calls itself, comes back as text, on a service without data.
All payloads and all pages are tried in `test_hostile_content.py`."""

from __future__ import annotations

import re
import sqlite3
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlencode

from tests.control_api.console.reader import Shown, Visitor
from tests.support.control_api import ControlApi

FILTERED = ("/console/decisions", "/console/policies", "/console/access")
TYPED = """"'><hostile onx=1>&lt;"""
"""It ends an attribute in either quotes, and begins an element that no template writes."""


def check(shown: Shown, where: str) -> None:
    assert shown.status < 500, where
    assert not shown.page.find_all("hostile"), where


def test_text_typed_into_a_filter_is_shown_as_text(console: Visitor) -> None:
    for path in FILTERED:
        names = {"id", "done", "to"}
        for kind in ("input", "select", "textarea"):
            fields = console.get(path).main.find_all(kind)
            names |= {each.attributes.get("name", "id") for each in fields}
        # An event's id leads to the event's page, whatever else is typed.
        names.discard("event_id")
        shown = console.get(f"{path}?{urlencode(dict.fromkeys(names, TYPED))}")
        check(shown, path)
        assert shown.main.find_all("input", value=TYPED), path
    check(console.get(f"/console/decisions?{urlencode({'event_id': TYPED})}"), "an event's id")
    # Jinja escapes all else that a template shows.
    templates = files("control_api.console").joinpath("templates")
    for each in Path(str(templates)).rglob("*.html"):
        assert not re.search(r"\|\s*safe\b|autoescape", each.read_text()), each


def test_the_name_that_a_browser_sends_is_shown_as_text(api: ControlApi, console: Visitor) -> None:
    with sqlite3.connect(api.directory / "data" / "sluice.db") as connection:
        connection.execute("UPDATE console_sessions SET person = ?, browser = ?", (TYPED, TYPED))
    shown = console.get("/console/account")
    check(shown, shown.address)
    assert shown.text.count(TYPED) >= 2
