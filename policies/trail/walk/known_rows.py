"""Recognises rows of decisions in the known form, and checks what is stored beside them.

INVARIANT: as for lines, this only accepts. A row is in the known form if the line that an export
would have of it is, so that what holds of lines holds of rows (`known_lines`).
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import orjson

from policies.trail.entry import index_of
from policies.trail.stored_entry import StoredRow
from policies.trail.walk.known_lines import Columns, KnownForm, Row

FEW = 4
"""The fewest rows that take less time together than one by one."""
_SIGN = b'"kind":"decision","log":'
_LONGEST = 16 * 1024
"""Bytes of an entry and its openings: a row's line is a copy, and many are made together."""


def known_rows(rows: Sequence[StoredRow]) -> list[Row | None]:
    """The parts of each row in the order of `Columns`; None for a row in another form, and for one
    of a few between such."""
    lines = list[bytes]()
    for likely, run in groupby(rows, _is_likely):
        some = list(run)
        lines += map(_line, some) if likely and len(some) >= FEW else [b""] * len(some)
    form = KnownForm(b"".join(lines))
    return [_parts(form, row, line) for row, line in zip(rows, lines, strict=True)]


def beside_hold(
    columns: Columns, first: int, leaves: Sequence[bytes], rows: Sequence[StoredRow]
) -> bool:
    """Whether the numbers, hashes and columns beside the entries, numbered from `first` on, are
    those of their bytes, which have these leaf hashes."""
    try:
        return all(
            row.seq == seq
            and (row.hash is None or row.hash == leaf)
            and (row.columns is None or row.columns == index_of(orjson.loads(shown)))
            for seq, (row, leaf, shown) in enumerate(
                zip(rows, leaves, _indexed(columns), strict=True), first
            )
        )
    except (ValueError, TypeError, LookupError):
        return False  # such as a source's time that does not exist: the full check says so


def _is_likely(row: StoredRow) -> bool:
    """Whether looking for the known form is worth its time: most rows of another form lack a sign
    of it. A database may hold anything, so not every row has a line."""
    entry, openings = row.entry, row.openings
    return (
        type(entry) is bytes
        and _SIGN in entry
        and type(openings) is bytes
        and openings != b"{}"
        and len(entry) + len(openings) <= _LONGEST
    )


def _line(row: StoredRow) -> bytes:
    """The row's line between two line feeds."""
    return b'\n{"entry":%b,"openings":%b}\n' % (row.entry, row.openings or b"")


def _parts(form: KnownForm, row: StoredRow, line: bytes) -> Row | None:
    # Either of an entry and its openings may hold what looks like the border between them, or like
    # a whole line.
    match form.rows(line):
        case [parts] if parts[0] == row.entry:
            return parts
    return None


def _indexed(columns: Columns) -> Iterator[bytes]:
    """Each entry with the members that are indexed, and no others."""
    # Only a name stands in front of a colon, since quotes within a text are escaped. So the last
    # `request` is the member, whatever the facts before it and the texts behind it say.
    for eid, pub, src, ts in zip(columns.eid, columns.pub, columns.src, columns.ts, strict=True):
        request = pub[pub.rindex(b',"request":{') + 1 :]
        yield b'{"eid":"%b","kind":"decision","pub":{%b%b,"ts":"%b"}' % (eid, request, src, ts)
