"""Checks the log lines that our processes write when their output is not a terminal."""

from __future__ import annotations

import json
import re
from typing import Any

ALWAYS = ["time", "level", "logger", "message"]
MEMBERS = {*ALWAYS, "request_id", "error"}
LEVELS = {"debug", "info", "warning", "error", "critical"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
# Printed by a first start, on standard output, and documented in control_api/README.md.
FIRST_START = re.compile(
    r"first start: tenant \S+|  the keys are in .*, which only its owner can read"
)


def entries(log: str) -> list[dict[str, Any]]:
    """Return every line as an entry, except those that a first start prints."""
    found: list[dict[str, Any]] = []
    for line in log.splitlines():
        if FIRST_START.fullmatch(line):
            continue
        entry = json.loads(line)
        assert list(entry)[:4] == ALWAYS, line
        assert entry.keys() <= MEMBERS, line
        assert entry["level"] in LEVELS, line
        assert TIME.fullmatch(entry["time"]), line
        found.append(entry)
    assert found, "it said nothing"
    return found
