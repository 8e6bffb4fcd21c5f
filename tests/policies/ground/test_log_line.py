"""A log line is one line whatever it contains, and JSON always parses."""

from __future__ import annotations

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.log_line import (
    LONGEST_ERROR,
    LONGEST_MESSAGE,
    Entry,
    json_line,
    renderer,
    text_line,
)
from policies.ground.process import json_logging
from tests.support.properties import examples

ENTRY = Entry(0, "warning", "sluice.test", "it is so", "find-me", "Traceback:\n  boom")
TEXT = st.text(st.characters(exclude_categories=[]))


def test_json_has_the_documented_members_in_order() -> None:
    assert json_line(ENTRY) == (
        '{"time":"1970-01-01T00:00:00.000000Z","level":"warning","logger":"sluice.test",'
        '"message":"it is so","request_id":"find-me","error":"Traceback:\\n  boom"}'
    )
    bare = json.loads(json_line(Entry(0, "info", "a", "b")))
    assert list(bare) == ["time", "level", "logger", "message"]


def test_text_is_for_people() -> None:
    assert text_line(ENTRY) == (
        "1970-01-01T00:00:00.000000Z WARNING sluice.test: it is so [find-me]\n"
        "    | Traceback:\n"
        "    |   boom"
    )


def test_a_terminal_gets_text_and_anything_else_json_unless_set_otherwise() -> None:
    for form, terminal, expected in (
        (None, True, text_line), (None, False, json_line), ("prose", True, text_line),
        ("text", True, text_line), ("text", False, text_line),
        ("json", True, json_line), ("json", False, json_line),
    ):  # fmt: skip
        assert renderer(form, terminal=terminal) is expected, (form, terminal)


@pytest.mark.parametrize("service", ["sidecar", "sluice"])
@pytest.mark.parametrize("form", ["json", "text", None])
def test_each_service_checks_whether_it_writes_to_a_terminal(
    service: str, form: str | None
) -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in ("sidecar", "sluice")}
    for terminal in (True, False):
        stream = io.StringIO()
        stream.isatty = lambda terminal=terminal: terminal  # type: ignore[method-assign,misc]
        try:
            json_logging.configure(service, "info", lambda: 0, stream, form)
            logging.getLogger("any").error("it is so")
        finally:
            root.handlers[:] = before
            root.setLevel(level)
            for name, each in levels.items():
                logging.getLogger(name).setLevel(each)
        is_text = form == "text" or (form is None and terminal)
        assert stream.getvalue().startswith("1970" if is_text else '{"time"')


@pytest.mark.parametrize("end", ["\n", "\r", "\x1b[2K", "\x85", "\u2028", "\x0b", "\x00", "\u202e"])
def test_a_value_can_not_begin_a_line_of_its_own(end: str) -> None:
    forged = f"a{end}1970-01-01T00:00:00.000000Z INFO sluice: all is well"
    line = text_line(Entry(0, "info", "a", forged, f"id{end}x", f"trace{end}x"))
    assert not {"\r", "\x1b", "\x85", "\u2028", "\x0b", "\x00", "\u202e"} & set(line)
    assert all(each.startswith("    | ") for each in line.split("\n")[1:])
    assert json.loads(json_line(Entry(0, "info", "a", forged)))["message"] == forged
    # `splitlines` splits at more characters than `\n`, and so do other readers.
    assert len(json_line(Entry(0, "info", "a", forged, forged, forged)).splitlines()) == 1


@examples(100)
@given(TEXT, TEXT, TEXT)
def test_any_text_makes_a_line(message: str, request_id: str, error: str) -> None:
    entry = Entry(0, "info", "a", message, request_id, error)
    assert json.loads(json_line(entry)).keys() >= {"time", "level", "logger", "message"}
    assert text_line(entry).encode().count(b"\n") == error.count("\n") + 1


def test_a_line_is_bounded() -> None:
    entry = Entry(0, "info", "a", "m" * 1_000_000, None, "e" * 1_000_000 + "the cause")
    found = json.loads(json_line(entry))
    assert (len(found["message"]), len(found["error"])) == (LONGEST_MESSAGE, LONGEST_ERROR)
    assert found["error"].endswith("the cause")
