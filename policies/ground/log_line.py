"""Renders the lines that every process of Sluice logs: JSON for machines, text for a terminal.

`policies.ground.process.json_logging` sends lines to a stream, since this package may not import
`logging`.

Also writes the output of commands safely: text from strangers can't control the terminal, and the
reader, such as `head`, may go away before all is written.
"""

import os
import sys
from collections.abc import Callable
from typing import NamedTuple, Protocol

import orjson

from policies.ground.canonical import rfc3339

FORMATS = ("json", "text")
"""The values of `SLUICE_LOG_FORMAT`; the default is `text` on a terminal and `json` elsewhere."""
LEVELS = ("debug", "info", "warning", "error")
"""The values of `SLUICE_LOG_LEVEL`."""
LONGEST_MESSAGE = 16 * 1024
LONGEST_ERROR = 64 * 1024
"""The most characters of a traceback in a line. A longer one keeps its end, which names the
exception. `LONGEST_MESSAGE` is the same limit for a message, which keeps its beginning."""

# Log injection: a control character could end a line and begin a forged one, or move a terminal's
# cursor. A bidirectional character could make a line read as another. U+2028 and U+2029 end lines
# for some readers only.
_ENDS_OR_HIDES = [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]
_BIDIRECTIONAL = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_ESCAPED = {c: repr(chr(c))[1:-1] for c in (*_ENDS_OR_HIDES, *_BIDIRECTIONAL)}
# JSON allows most of these characters unescaped, and many readers split lines at some of them.
_ESCAPED_IN_JSON = {c: f"\\u{c:04x}" for c in _ESCAPED if c >= 0x7F}


class Entry(NamedTuple):
    """The contents of one log line. `time` is in microseconds since 1970 UTC, `level` in lower
    case. `error` is a traceback or another description of a failure, in several lines."""

    time: int
    level: str
    logger: str
    message: str
    request_id: str | None = None
    error: str | None = None


class LogRecord(Protocol):
    """The attributes of a `logging.LogRecord` that a log line uses."""

    levelname: str
    name: str

    def getMessage(self) -> str: ...  # noqa: N802  # the standard library's name


def entry_of(record: LogRecord, time: int, request_id: str | None, error: str | None) -> Entry:
    """Return the contents of the log line for `record`. `time` is in microseconds since 1970
    UTC."""
    level, message = record.levelname.lower(), record.getMessage()
    return Entry(time, level, record.name, message, request_id, error)


def renderer(form: str | None, *, terminal: bool) -> Callable[[Entry], str]:
    """Return the function that renders log lines in `form`, one of `FORMATS`. If `form` is None or
    unknown, a terminal gets text and anything else gets JSON."""
    # An unknown form counts as absent: the settings report it, in a line of this log.
    text = terminal if form not in FORMATS else form == "text"
    return text_line if text else json_line


def threshold(level: str) -> str:
    """Return the name that `logging` has for `level`; `INFO` for an unknown level, which the
    settings report."""
    return level.upper() if level in LEVELS else "INFO"


def json_line(entry: Entry) -> str:
    """Render a log line as JSON: `{time, level, logger, message}`, and `request_id` and `error` if
    they are set."""
    line = {
        "time": rfc3339(entry.time),
        "level": entry.level,
        "logger": entry.logger,
        "message": _encodable(entry.message[:LONGEST_MESSAGE]),
    }
    if entry.request_id is not None:
        line["request_id"] = _encodable(entry.request_id)
    if entry.error is not None:
        line["error"] = _encodable(entry.error[-LONGEST_ERROR:])
    # Safe on the whole line: such a character can occur only inside strings.
    return orjson.dumps(line).decode().translate(_ESCAPED_IN_JSON)


def text_line(entry: Entry) -> str:
    """Render a log line as `time LEVEL logger: message [request_id]`, then each line of the error
    behind a bar, so that none can be mistaken for another entry."""
    head = f"{rfc3339(entry.time)} {entry.level.upper()} {entry.logger}: "
    line = head + _escaped(entry.message[:LONGEST_MESSAGE])
    if entry.request_id is not None:
        line += f" [{_escaped(entry.request_id)}]"
    if entry.error is not None:
        shown = entry.error[-LONGEST_ERROR:].split("\n")
        line += "".join(f"\n    | {_escaped(each)}" for each in shown)
    return line


def _escaped(text: str) -> str:
    """Return `text` with every character escaped that could end a line or move the cursor."""
    return _encodable(text).translate(_ESCAPED)


def _encodable(text: str) -> str:
    """Return `text` without lone surrogates, which come from file names that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


GONE = 0
"""The exit code of a command whose reader went away before the command had an exit code."""


def printable(text: str) -> str:
    """Return `text` on one line, with unprintable characters escaped: control characters, ends of
    lines and paragraphs, and characters that change the writing direction. A terminal would obey
    them."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def plural(count: int, noun: str) -> str:
    """Return a number with its noun, such as `1 entry` or `2,000 entries`. The noun must have a
    regular plural."""
    if count == 1:
        return f"1 {noun}"
    many = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{count:,} {many}"


def for_a_reader(run: Callable[[], int], gone: int = GONE) -> int:
    """Run a command that writes to standard output, flush that, and return the exit code.

    If the reader goes away, such as `head`, the command ends without a complaint: with its own exit
    code if it has one by then, else with `gone`.
    """
    code = gone
    try:
        code = run()
        if sys.stdout is not None:  # the shell may have closed it
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes its buffer once more at exit, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
