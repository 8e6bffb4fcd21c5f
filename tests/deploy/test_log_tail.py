"""Warnings and errors of children reach the terminal of `sluice up` once, and safely."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.local.processes import READ_BYTES, LogTail, readable
from policies.ground.log_line import Entry, json_line, text_line


def entry(level: str, message: str, error: str | None = None) -> Entry:
    return Entry(0, level, "sluice.policies", message, None, error)


def test_warnings_and_errors_are_shown_once_and_other_lines_are_not(tmp_path: Path) -> None:
    log = tmp_path / "control-API.log"
    log.touch()
    tail = LogTail("control API", log)
    assert tail.read_new() == []
    for form in (json_line, text_line):
        with log.open("a") as file:
            for level in ("debug", "info", "warning", "error", "critical"):
                file.write(form(entry(level, f"it is {level}", "a trace\nof two")) + "\n")
        assert tail.read_new() == [
            f"control API: {level}: it is {level}" for level in ("warning", "error", "critical")
        ]
        assert tail.read_new() == []


def test_an_incomplete_line_is_shown_once_it_is_complete(tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = json_line(entry("error", "x" * 3000)).encode() + b"\n"
    tail, news = LogTail("sidecar", log), list[str]()
    for at in range(0, len(line), 1000):
        with log.open("ab") as file:
            file.write(line[at : at + 1000])
        news = tail.read_new()
        assert len(news) == (at + 1000 >= len(line))
    assert news == ["sidecar: error: " + "x" * 3000]


def test_lines_of_the_data_source_stay_in_its_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('ERROR all is lost\n[1]\n{}\n"error"\nplain\n' + "y" * 3 * READ_BYTES + "\n")
    tail = LogTail("sample data source", log)
    assert [tail.read_new() for _ in range(5)] == [[]] * 5


def test_a_logged_value_can_not_move_the_cursor(tmp_path: Path) -> None:
    log = tmp_path / "log"
    forged = "a\x1b[2J\nsluice is up\u2028"
    log.write_text(json.dumps({"level": "error", "message": forged}) + "\n")
    (line,) = LogTail("sidecar", log).read_new()
    assert line == "sidecar: error: a\\x1b[2J\\nsluice is up\\u2028"


def test_the_last_lines_are_readable() -> None:
    line = json_line(entry("critical", "the process ends", "Traceback\n  boom"))
    assert readable(line) == ["critical: the process ends", "    | Traceback", "    |   boom"]
    assert readable("Killed") == ["Killed"]
