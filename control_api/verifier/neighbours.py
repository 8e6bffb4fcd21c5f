"""Shows the first bad entry and the entries beside it, in a line each. Verifies nothing."""

import hashlib
from typing import Any

import orjson

from policies.trail.log_file.coding import plain_entry

MOST_BYTES = 90


def neighbours(chunk: bytes, place: int, before: bytes) -> list[str]:
    """Entry number `place` of the lines in `chunk`, and its neighbours. `before` is the line that
    precedes the chunk."""
    lines = [before, *(line for line in chunk.split(b"\n") if line.startswith(b'{"entry":'))]
    shown = []
    for offset, mark in ((0, "before"), (1, "here"), (2, "after")):
        at = place + offset
        if at < len(lines) and lines[at].startswith(b'{"entry":'):
            shown.append(f"{mark:<6}  {describe(entry_of(lines[at]))}")
    return shown


def entry_of(line: bytes) -> bytes:
    parts = plain_entry(line, b',"openings":' in line)
    return line if parts is None else parts.entry


def describe(raw: bytes) -> str:
    """An entry's place, time, kind, id and leaf hash; of other bytes, the beginning."""
    try:
        entry = orjson.loads(raw)
        shown = [_text(entry[name]) for name in ("seq", "ts", "kind", "eid")]
    except (ValueError, TypeError, LookupError):
        return f"not an entry: {raw[:MOST_BYTES]!r}"
    leaf = hashlib.sha256(b"\0" + raw).hexdigest()
    return f"seq {'  '.join(shown)}  leaf {leaf}"


def _text(value: Any) -> str:
    # A terminal must not be steered by what an entry holds.
    text = str(value)[:MOST_BYTES]
    return text if text.isprintable() else repr(text)
