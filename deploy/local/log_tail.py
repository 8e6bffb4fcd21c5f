"""Reads a child's log and passes warnings and errors on to the terminal.

The services write one entry per line, as JSON or, with `SLUICE_LOG_FORMAT=text`, as text
(`control_api/README.md`, "Log"). Lines in other forms, such as the sample data source's, are not
passed on.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

LEVELS = ("warning", "error", "critical")
READ_BYTES = 64 * 1024
"""The most bytes read at a time: a child that floods its log must not delay watching the others."""
MAX_LINE = 1024 * 1024
_TEXT = re.compile(r"\S+Z (?P<level>[A-Z]+) \S+: (?P<message>.*)")
# Characters that could move the cursor or end the line. A JSON log escapes them; decoding it
# restores them, so they are escaped again before printing.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class LogTail:
    """Reads a child's log, each time from where it stopped before. `name` is the child's."""

    def __init__(self, name: str, log: Path) -> None:
        self._name = name
        self._log = log
        self._offset = 0
        self._rest = b""

    def read_new(self) -> list[str]:
        """Return the warnings and errors among the lines written since the last call."""
        with self._log.open("rb") as log:
            log.seek(self._offset)
            read = log.read(READ_BYTES)
        # A line may be written in parts: the text after the last line break waits for the rest.
        self._offset += len(read)
        *lines, self._rest = (self._rest + read).split(b"\n")
        if len(self._rest) > MAX_LINE:
            self._rest = b""  # no entry is that long; keeping it could fill the memory
        shown = (_shown(self._name, line.decode(errors="replace")) for line in lines)
        return [line for line in shown if line is not None]


def readable(line: str) -> list[str]:
    """Return a line of a child's log in readable form: an entry with its trace, or the line
    unchanged."""
    level, message = _entry(line)
    if not level or _TEXT.fullmatch(line):
        return [line]  # readable as it is
    trace = str(json.loads(line).get("error", "")).splitlines()
    return [f"{level}: {_safe(message)}", *(f"    | {_safe(each)}" for each in trace)]


def _shown(name: str, line: str) -> str | None:
    level, message = _entry(line)
    return f"{name}: {level}: {_safe(message)}" if level in LEVELS else None


def _safe(text: str) -> str:
    return _UNSAFE.sub(lambda found: repr(found[0])[1:-1], text)


def _entry(line: str) -> tuple[str, str]:
    """Return level and message; two empty strings if the line is not a service's entry."""
    if match := _TEXT.fullmatch(line):
        return match["level"].lower(), match["message"]
    try:
        entry = json.loads(line)
    except ValueError:
        return "", ""
    if not isinstance(entry, dict):
        return "", ""
    return str(entry.get("level", "")), str(entry.get("message", ""))
