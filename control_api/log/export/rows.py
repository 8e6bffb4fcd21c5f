"""Reads the entries' lines of an export, a page at a time and one page ahead, and pauses between
pages on a busy service.

The database joins a page's lines itself: a tenth of the Python code that single rows would need,
and on SQLite without the interpreter's lock. A page with a row that can't be joined is read again
row by row. Nothing is verified or repaired: an export must not hide damage.
"""

import asyncio
import re
from asyncio import sleep
from collections.abc import Callable, Coroutine
from functools import lru_cache
from time import thread_time
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar

import orjson
from sqlalchemy import Connection, Row, TextClause, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.group_commit import start_task
from policies.trail.log_file.coding import encode_line, plain_entry
from policies.trail.log_file.lines import DamagedLine, EntryLine
from policies.trail.recompute.facts import cited_digests

LARGE = 16 * 1024
"""The most bytes of a row that the database joins into a page; a page with a larger row is read
again row by row. This bounds a page, since its rows are not known before it is read. Nearly every
row has a tenth of that."""
LARGEST = 4 * 1024 * 1024
"""The most bytes of an entry, or of openings, that are exported: 64 times what an entry may
have."""
FEW = 16
"""Rows read at a time where they may be large."""

_OPENINGS = b',"openings":'
_END = b"}\n"
# Both look for what may be a citation, in any entry: `cited_digests` tells what is one.
_ROLE = re.compile(rb'"role":"([0-9a-f]{64})"')
_SOURCES = re.compile(rb'"sources":"([0-9a-f]{64})"')
_AROUND = len(_OPENINGS) + len(_END) - 1
"""The bytes of a line from the separator before its openings to its end, without the openings
themselves."""


class JoinedLines(NamedTuple):
    """The lines of a range of entries, joined by the database. Of the `found` rows, `joined` have a
    line here. `opened` is the size in bytes of all their openings, None for lines without
    openings."""

    lines: bytes
    found: int
    joined: int
    opened: int | None


class EntryLines(NamedTuple):
    lines: bytes
    rows: int


def read_joined(
    connection: Connection, tenant_id: str, first: int, until: int, openings: bool
) -> JoinedLines:
    """Read the existing entries from `first` up to `until` (exclusive) as lines that the database
    joins."""
    wanted = {"tenant": tenant_id, "first": first, "until": until}
    found = connection.execute(_joined(connection.dialect.name, openings), wanted).one()
    lines = b"" if found.lines is None else bytes(found.lines)
    opened = int(found.opened or 0) if openings else None
    return JoinedLines(lines, found.found, found.joined, opened)


def named_digests(page: JoinedLines) -> set[str] | None:
    """Return the digests that any entry names as those of a role's or a tenant's document. Returns
    None if a row has no line here, or if a line does not divide into an entry and its openings.

    The database could find all of that, but it looks for bytes ten times as slowly. Takes about a
    millisecond for a thousand lines.
    """
    if page.joined != page.found:
        return None
    lines, openings = page.lines, page.opened is not None
    find, rfind = lines.find, lines.rfind
    at, found, opened = 0, 0, 0
    while (end := find(b"\n", at)) >= 0:
        if openings:
            opened += end - rfind(_OPENINGS, at, end) - _AROUND
        at = end + 1
        found += 1
    # A line feed inside a row makes it two lines. Openings that hold the separator themselves, as
    # only damaged ones do, are found too short.
    if found != page.found or (openings and opened != page.opened):
        return None
    return _named(lines)


def read_cited(lines: bytes, wanted: set[str] | None, *, openings: bool) -> set[str]:
    """Return the digests of the documents that the decisions among these lines cite, restricted to
    those `wanted` (None: all). Only lines that name a document are decoded."""
    cited = set[str]()
    for line in lines.split(b"\n"):
        named = _named(line)
        if not named or (wanted is not None and named.isdisjoint(wanted)):
            continue
        parts = plain_entry(line, openings)
        try:
            entry = None if parts is None else orjson.loads(parts.entry)
            if entry is not None and entry["kind"] == "decision":
                cited.update(cited_digests(entry))
        except (ValueError, TypeError, LookupError, AttributeError):
            continue  # a damaged entry is exported as it is, and cites nothing
    return cited if wanted is None else cited & wanted


def _named(lines: bytes) -> set[str]:
    found = {*_ROLE.findall(lines), *_SOURCES.findall(lines)}
    return {digest.decode() for digest in found}


async def read_rows(
    connection: AsyncConnection, tenant_id: str, first: int, until: int, openings: bool
) -> EntryLines:
    """Read the existing entries from `first` up to `until` (exclusive) row by row."""
    wanted = {"tenant": tenant_id, "until": until, "rows": FEW, "largest": LARGEST}
    lines, after = list[bytes](), first - 1
    while True:
        rows = (await connection.execute(_ROWS, {**wanted, "after": after})).all()
        lines += [_line(row, openings) for row in rows]
        if len(rows) < FEW:
            return EntryLines(b"".join(lines), len(lines))
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
    """Return a stored value as bytes, because SQLite stores any type in any column."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, memoryview):
        return bytes(value)
    return str(value).encode("utf-8", "surrogateescape")


@lru_cache(maxsize=4)
def _joined(dialect: str, openings: bool) -> TextClause:
    """Return the statement that gives a page as one row: its lines, the numbers of rows `found` and
    `joined`, and the size of their openings in bytes."""
    statement = text(_JOINED[dialect].format(line=_LINES[dialect][openings], page=_PAGE))
    values: dict[str, object] = {"head": b'{"entry":', "tail": _END, "large": LARGE}
    if openings:
        values |= {"between": _OPENINGS, "none": b"{}"}
    if dialect == "sqlite":
        # Joined as text: SQLite joins no blobs, but neither does it look into its texts.
        values = {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in values.items()
        }
    return statement.bindparams(*(bindparam(name, value) for name, value in values.items()))


_PAGE = """
    FROM log_entries AS e LEFT OUTER JOIN openings AS o
      ON o.tenant_id = e.tenant_id AND o.seq = e.seq
    WHERE e.tenant_id = :tenant AND e.seq >= :first AND e.seq < :until"""
_LINES = {
    "sqlite": {
        False: """CASE WHEN length(e.entry) <= :large
            THEN :head || CAST(e.entry AS TEXT) || :tail END""",
        True: """CASE WHEN length(e.entry) + coalesce(length(o.openings), 0) <= :large
            THEN :head || CAST(e.entry AS TEXT) || :between
              || coalesce(CAST(o.openings AS TEXT), :none) || :tail END""",
    },
    "postgresql": {
        False: """CASE WHEN octet_length(e.entry) <= :large
            THEN CAST(:head AS bytea) || e.entry || CAST(:tail AS bytea) END""",
        True: """CASE WHEN octet_length(e.entry) + coalesce(octet_length(o.openings), 0) <= :large
            THEN CAST(:head AS bytea) || e.entry || CAST(:between AS bytea)
              || coalesce(o.openings, CAST(:none AS bytea)) || CAST(:tail AS bytea) END""",
    },
}
_JOINED = {
    "sqlite": """
    SELECT count(*) AS found, count(line) AS joined, CAST(group_concat(line, '') AS BLOB) AS lines,
           sum(opened) AS opened
    FROM (
        SELECT {line} AS line, coalesce(length(CAST(o.openings AS BLOB)), 2) AS opened
        {page}
        ORDER BY e.seq
    ) AS page""",
    "postgresql": """
    SELECT count(*) AS found, count(line) AS joined,
           string_agg(line, ''::bytea ORDER BY seq) AS lines, sum(opened) AS opened
    FROM (
        SELECT e.seq, {line} AS line, coalesce(octet_length(o.openings), 2) AS opened
        {page}
    ) AS page""",
}
_ROWS = text("""
    SELECT log_entries.seq AS seq, length(openings.openings) AS openings_size,
           CASE WHEN length(log_entries.entry) <= :largest THEN log_entries.entry END AS entry,
           CASE WHEN length(openings.openings) <= :largest THEN openings.openings END AS openings
    FROM log_entries LEFT OUTER JOIN openings
      ON openings.tenant_id = log_entries.tenant_id AND openings.seq = log_entries.seq
    WHERE log_entries.tenant_id = :tenant
      AND log_entries.seq > :after AND log_entries.seq < :until
    ORDER BY log_entries.seq LIMIT :rows""")


T = TypeVar("T")


class Ahead(Generic[T]):
    """Reads one page of an export ahead, while the page before it is sent.

    The page is read on the service's task group. If the export ends before the page is taken, it is
    read to its end, and dropped.
    """

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._page: asyncio.Future[T] | None = None

    def start(self, read: Coroutine[Any, Any, T]) -> None:
        """Begin to read the page that will be taken next. Raises `WriteFault` if the service is
        stopping."""
        self._page = asyncio.get_running_loop().create_future()
        start_task(self._group, _complete(read, self._page))

    async def take(self) -> T:
        """Wait for the page whose reading was started, and return it. Raises what reading it
        raised."""
        assert self._page is not None
        page, self._page = self._page, None
        return await page

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # asyncio would log an error that is never taken as one that was overlooked.
        if self._page is not None and not self._page.cancel():
            self._page.exception()


async def _complete(read: Coroutine[Any, Any, T], page: asyncio.Future[T]) -> None:
    try:
        result = await read
    except Exception as error:  # noqa: BLE001  the export handles it
        if not page.done():
            page.set_exception(error)
    else:
        if not page.done():
            page.set_result(result)


BUSY = 0.2
"""The share of time from which on the event loop counts as busy. An export alone takes a tenth of
the time, since its pages are read and compressed in threads; requests at a decision's rate take
four tenths."""
SHARE = 20
"""On a busy service, the export rests for this many times the time that a page took."""
LONGEST = 1.0
"""The longest rest in seconds, so that an export also advances on a service that is always busy."""


class Pace:
    """Slows one export down on a busy service. Used on the thread of the event loop only."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._at = self._begun = monotonic()
        self._used = thread_time()
        self._share = 0.0

    def begin(self) -> None:
        self._begun = self._monotonic()

    async def rest(self) -> None:
        """Sleep after a page, if the event loop had other work lately."""
        # Over whole pages and rests, not only now: requests come in waves, and between two of them,
        # while their records are written to the disk, a busy service looks idle.
        now, used = self._monotonic(), thread_time()
        share = (used - self._used) / max(now - self._at, 1e-6)
        self._share += (share - self._share) / 2
        self._at, self._used = now, used
        if self._share > BUSY:
            await sleep(min((now - self._begun) * SHARE, LONGEST))
