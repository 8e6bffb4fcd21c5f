"""Log lines are JSON, whatever is logged, and hold nothing that a caller sent."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from policies.ground.log_line import json_line
from policies.ground.process import json_logging as journal


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    root, ours = logging.getLogger(), logging.getLogger("sluice")
    before, levels = list(root.handlers), (root.level, ours.level)
    stream = io.StringIO()
    journal.configure("sluice", "debug", lambda: 0, stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_the_request_s_id(written: io.StringIO) -> None:
    token = journal.REQUEST_ID.set("find-me")
    logging.getLogger("sluice.test").warning("it is %s", "so")
    journal.REQUEST_ID.reset(token)
    assert lines(written) == [
        {
            "time": "1970-01-01T00:00:00.000000Z",
            "level": "warning",
            "logger": "sluice.test",
            "message": "it is so",
            "request_id": "find-me",
        }
    ]


def test_an_entry_s_own_request_id_precedes_the_context_s(written: io.StringIO) -> None:
    log = logging.getLogger("sluice.test")
    token = journal.REQUEST_ID.set("another")
    log.warning("one", extra=journal.about("find-me"))
    journal.REQUEST_ID.reset(token)
    log.warning("two", extra=journal.about(None))
    assert [line.get("request_id") for line in lines(written)] == ["find-me", None]


def test_a_name_that_is_not_utf_8_is_still_logged() -> None:
    # Not through a logger: the test runner would send on what it captured, and can't.
    record = logging.LogRecord("x", logging.INFO, "", 1, "file `%s`", ("a\udcff\nb",), None)
    line = journal.JsonFormatter(json_line, lambda: 0).format(record)
    assert json.loads(line)["message"] == "file `a\\udcff\nb`"


def test_a_statement_that_failed_is_logged_without_its_values(written: io.StringIO) -> None:
    sent = {"a": "u-" + "private"}  # in pieces: a trace shows lines of source too
    try:
        with create_engine("sqlite://").connect() as connection:
            connection.execute(text("SELECT * FROM nowhere WHERE a = :a"), sent)
    except DBAPIError:
        logging.getLogger("sluice.test").exception("a request failed")
    (line,) = lines(written)
    assert "no such table" in line["error"]
    assert "u-private" not in written.getvalue()


def test_a_library_s_debug_lines_are_not_written(written: io.StringIO) -> None:
    """SQLite's driver logs each statement with its values at `debug`."""
    logging.getLogger("sluice.test").debug("ours")
    logging.getLogger("aiosqlite").debug("executing %s", ("u-private",))
    assert [line["message"] for line in lines(written)] == ["ours"]
