"""Reads the entries' lines of an export, a page at a time.

The database joins a page's lines itself, and gives them as one value: a tenth of the Python code
that rows one by one would need, and on SQLite without the interpreter's lock. A page with a row
that can't be joined is read again row by row. Nothing is verified or repaired: an export must not
hide damage. Knows neither the order of the file's other lines nor who reads it.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Row, TextClause, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from policies.trail.log_file.coding import encode_line
from policies.trail.log_file.lines import DamagedLine, EntryLine

LARGE = 16 * 1024
"""The bytes of a row that are joined by the database: a bound on a page, since its rows are not
known before it is read. Nearly every row has a tenth of that."""
LARGEST = 4 * 1024 * 1024
"""The bytes of an entry, or of openings, that are exported: 64 times what an entry may have."""
FEW = 16
"""The rows read at a time where they may be large."""

_OPENINGS = b',"openings":'
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class EntryLines(NamedTuple):
    """The lines of the entries in a range, `rows` in number, and the digests of the documents that
    decisions among them cite."""

    lines: bytes
    rows: int
    cited: frozenset[str]


async def read_lines(
    connection: AsyncConnection, tenant_id: str, first: int, until: int, openings: bool
) -> EntryLines:
    """The entries from `first` up to `until` (exclusive) that exist. On SQLite, the connection must
    be in one transaction for both statements to see the same rows."""
    wanted = {"tenant": tenant_id, "first": first, "until": until}
    found = (await connection.execute(_joined(connection.dialect.name, openings), wanted)).one()
    lines = b"" if found.lines is None else bytes(found.lines)
    rows = found.found
    # Fewer lines than rows: some could not be joined. A line feed inside a row would make it two.
    if rows != found.joined or lines.count(b"\n") != rows:
        lines, rows = await _row_by_row(connection, wanted, openings)
    cited = frozenset(each for each in (found.cited or "").split(",") if _DIGEST.match(each))
    return EntryLines(lines, rows, cited)


async def _row_by_row(
    connection: AsyncConnection, wanted: dict[str, Any], openings: bool
) -> tuple[bytes, int]:
    lines, after = [], wanted["first"] - 1
    while True:
        part = {**wanted, "after": after, "rows": FEW, "largest": LARGEST}
        rows = (await connection.execute(_ROWS, part)).all()
        lines += [_line(row, openings) for row in rows]
        if len(rows) < FEW:
            return b"".join(lines), len(lines)
        after = rows[-1].seq


def _line(row: Row[Any], openings: bool) -> bytes:
    entry, opened = _bytes(row.entry), _bytes(row.openings)
    if row.openings_size is None:
        opened = b"{}"  # it has none
    if not openings:
        opened = None
    elif opened is None or b"\n" in opened or _OPENINGS in opened:
        return encode_line(DamagedLine(row.seq, entry, opened))
    if entry is None or b"\n" in entry:
        return encode_line(DamagedLine(row.seq, entry, opened))
    return encode_line(EntryLine(entry, opened))


def _bytes(value: object) -> bytes | None:
    """A stored value as bytes. SQLite stores any type in any column."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, memoryview):
        return bytes(value)
    return str(value).encode("utf-8", "surrogateescape")


@lru_cache(maxsize=4)
def _joined(dialect: str, openings: bool) -> TextClause:
    """The statement that gives a page as one row: its lines, the number of rows `found` and
    `joined`, and the digests `cited`, separated by commas."""
    sql = _SQLITE if dialect == "sqlite" else _POSTGRESQL
    statement = text(sql.format(source=_SOURCE, line=_LINES[dialect][openings]))
    head, mark = b'{"entry":', b',"role":"'
    values: dict[str, object] = {"head": head, "tail": b"}\n", "mark": mark, "large": LARGE}
    if openings:
        values |= {"separator": _OPENINGS, "none": b"{}"}
    if dialect == "sqlite":
        # Joined as text: SQLite joins no blobs, but neither does it look into its texts.
        values |= {
            name: value.decode()
            for name, value in values.items()
            if isinstance(value, bytes) and name in ("head", "tail", "none")
        }
        values |= {"between": _OPENINGS.decode()} if openings else {}
    else:
        values |= {"between": _OPENINGS} if openings else {}
    return statement.bindparams(*(bindparam(name, value) for name, value in values.items()))


_SOURCE = """
    FROM (
        SELECT log_entries.seq AS seq, log_entries.kind AS kind, log_entries.entry AS entry,
               openings.openings AS openings
        FROM log_entries LEFT OUTER JOIN openings
          ON openings.tenant_id = log_entries.tenant_id AND openings.seq = log_entries.seq
        WHERE log_entries.tenant_id = :tenant
          AND log_entries.seq >= :first AND log_entries.seq < :until
        ORDER BY log_entries.seq
    ) AS page"""
_LINES = {
    "sqlite": {
        False: """CASE WHEN length(entry) <= :large
            THEN :head || CAST(entry AS TEXT) || :tail END""",
        True: """CASE WHEN length(entry) + coalesce(length(openings), 0) <= :large
              AND coalesce(instr(CAST(openings AS BLOB), :separator), 0) = 0
            THEN :head || CAST(entry AS TEXT) || :between
              || coalesce(CAST(openings AS TEXT), :none) || :tail END""",
    },
    "postgresql": {
        False: """CASE WHEN octet_length(entry) <= :large
            THEN CAST(:head AS bytea) || entry || CAST(:tail AS bytea) END""",
        True: """CASE WHEN octet_length(entry) + coalesce(octet_length(openings), 0) <= :large
              AND coalesce(position(CAST(:separator AS bytea) in openings), 0) = 0
            THEN CAST(:head AS bytea) || entry || CAST(:between AS bytea)
              || coalesce(openings, CAST(:none AS bytea)) || CAST(:tail AS bytea) END""",
    },
}
# A decision's first `,"role":"` is that of `pub.facts`: no member before it has that name, and text
# can't look like it.
_SQLITE = """
    SELECT count(*) AS found, count(line) AS joined, CAST(group_concat(line, '') AS BLOB) AS lines,
           group_concat(DISTINCT role) AS cited
    FROM (
        SELECT {line} AS line,
               CASE WHEN kind = 'decision' THEN CAST(substr(CAST(entry AS BLOB),
                 nullif(instr(CAST(entry AS BLOB), :mark), 0) + 9, 64) AS TEXT) END AS role
        {source}
    ) AS joined_page"""
_POSTGRESQL = """
    SELECT count(*) AS found, count(line) AS joined,
           string_agg(line, ''::bytea ORDER BY seq) AS lines,
           string_agg(DISTINCT role, ',') AS cited
    FROM (
        SELECT seq, {line} AS line,
               CASE WHEN kind = 'decision' THEN encode(substring(entry FROM
                 nullif(position(CAST(:mark AS bytea) in entry), 0) + 9 FOR 64), 'escape')
               END AS role
        {source}
    ) AS joined_page"""
_ROWS = text("""
    SELECT log_entries.seq AS seq, length(openings.openings) AS openings_size,
           CASE WHEN length(log_entries.entry) <= :largest THEN log_entries.entry END AS entry,
           CASE WHEN length(openings.openings) <= :largest THEN openings.openings END AS openings
    FROM log_entries LEFT OUTER JOIN openings
      ON openings.tenant_id = log_entries.tenant_id AND openings.seq = log_entries.seq
    WHERE log_entries.tenant_id = :tenant
      AND log_entries.seq >= :first AND log_entries.seq < :until AND log_entries.seq > :after
    ORDER BY log_entries.seq LIMIT :rows""")
