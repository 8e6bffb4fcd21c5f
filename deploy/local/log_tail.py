"""What a child writes to its log, passed on to the terminal where it is a warning or worse.

The services write one entry a line: JSON, or text where `SLUICE_LOG_FORMAT` says so
(`control_api/README.md`, "Log"). Knows those two forms, and passes nothing else on: a sample data
source's own chatter stays in its file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

LEVELS = ("warning", "error", "critical")
AT_ONCE = 64 * 1024
"""Bytes that are read at a time: a child that floods its log must not hold up the watch."""
LONGEST_LINE = 1024 * 1024
_TEXT = re.compile(r"\S+Z (?P<level>[A-Z]+) \S+: (?P<message>.*)")
# Whatever could move the cursor, or end the line: JSON escapes it, and decoding brings it back.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class LogTail:
    """The end of a log, as far as it was not read yet. `name` is the child's."""

    def __init__(self, name: str, log: Path) -> None:
        self._name = name
        self._log = log
        self._at = 0
        self._rest = b""

    def news(self) -> list[str]:
        """What to show of the lines that were written since the last call."""
        with self._log.open("rb") as log:
            log.seek(self._at)
            read = log.read(AT_ONCE)
        self._at += len(read)
        *lines, self._rest = (self._rest + read).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            self._rest = b""
        shown = (_shown(self._name, line.decode(errors="replace")) for line in lines)
        return [line for line in shown if line is not None]


def readable(line: str) -> list[str]:
    """A line of a child's log for a reader: an entry with its trace, or the line as it is."""
    level, message = _entry(line)
    if not level or _TEXT.fullmatch(line):
        return [line]
    trace = str(json.loads(line).get("error", "")).splitlines()
    return [f"{level}: {_safe(message)}", *(f"    | {_safe(each)}" for each in trace)]


def _shown(name: str, line: str) -> str | None:
    level, message = _entry(line)
    return f"{name}: {level}: {_safe(message)}" if level in LEVELS else None


def _safe(text: str) -> str:
    return _UNSAFE.sub(lambda found: repr(found[0])[1:-1], text)


def _entry(line: str) -> tuple[str, str]:
    """Level and message; two empty texts where the line is no entry of ours."""
    if match := _TEXT.fullmatch(line):
        return match["level"].lower(), match["message"]
    try:
        entry = json.loads(line)
    except ValueError:
        return "", ""
    if not isinstance(entry, dict):
        return "", ""
    return str(entry.get("level", "")), str(entry.get("message", ""))
