"""One line of a log, as every process of Sluice writes it: JSON for machines, text for a terminal.

Both services put their own `logging.Formatter` around these two functions, so that their lines have
the same members. Knows nothing of where lines go, and reads no clock.
"""

from typing import NamedTuple

import orjson

from policies.ground.canonical import rfc3339

FORMATS = ("json", "text")
"""What `SLUICE_LOG_FORMAT` may be; without it, `text` on a terminal and `json` elsewhere."""
LEVELS = ("debug", "info", "warning", "error")
"""What `SLUICE_LOG_LEVEL` may be."""
LONGEST_MESSAGE = 16 * 1024
LONGEST_ERROR = 64 * 1024
"""Characters; of a longer trace the end is kept, which names what was raised."""

# A control character could end a line and begin one that we never wrote, or move a terminal's
# cursor; a bidirectional one could make a line read as another. Line separators that only some
# readers know are among them.
_ENDS_OR_HIDES = [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]
_BIDIRECTIONAL = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_ESCAPED = {c: repr(chr(c))[1:-1] for c in (*_ENDS_OR_HIDES, *_BIDIRECTIONAL)}
# JSON allows most of them as they are, and many readers split lines at some of them.
_ESCAPED_IN_JSON = {c: f"\\u{c:04x}" for c in _ESCAPED if c >= 0x7F}


class Entry(NamedTuple):
    """What a line says. `time` is in microseconds since 1970 UTC; `level` is in lower case; `error`
    is the trace of an exception, or another account of a failure, in several lines."""

    time: int
    level: str
    logger: str
    message: str
    request_id: str | None = None
    error: str | None = None


def json_line(entry: Entry) -> str:
    """`{time, level, logger, message}`, and `request_id` and `error` where there are any."""
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
    # Only strings can hold any of them.
    return orjson.dumps(line).decode().translate(_ESCAPED_IN_JSON)


def text_line(entry: Entry) -> str:
    """`time LEVEL logger: message [request_id]`, and below it each line of the error behind a bar:
    no line can be mistaken for another entry."""
    head = f"{rfc3339(entry.time)} {entry.level.upper()} {entry.logger}: "
    line = head + _plain(entry.message[:LONGEST_MESSAGE])
    if entry.request_id is not None:
        line += f" [{_plain(entry.request_id)}]"
    if entry.error is not None:
        shown = entry.error[-LONGEST_ERROR:].split("\n")
        line += "".join(f"\n    | {_plain(each)}" for each in shown)
    return line


def _plain(text: str) -> str:
    """`text` in which nothing ends a line or moves a cursor."""
    return _encodable(text).translate(_ESCAPED)


def _encodable(text: str) -> str:
    """A file's name may hold bytes that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()
