"""Recognises decisions by their bytes, many at a time and without decoding them; they are lines of
an export or rows of a database. Our own services write canonical JSON whose members follow one
fixed pattern, here called the known form.

INVARIANT: this only accepts. A line that is not exactly in the known form goes to the full check,
the only place that refuses a line; and a line accepted here, whose columns pass in `RangeWalk`, is
one that the full check accepts with the same result
(`tests/policies/trail/walk/test_known_lines.py`). In the known form, names hold no escapes, numbers
have fewer digits than 2^53, and members have one order. A row is in the known form if its line in
an export would be, so that the rules for lines also hold for rows.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import orjson

from policies.ground.canonical import NotCanonical, check, encode
from policies.trail.entry import StoredRow, index_of
from policies.trail.fields import COMMITTED, Type, known_object, names
from policies.trail.log_file.coding import line_feeds
from policies.trail.recompute.facts import cited_in

Row = tuple[bytes, ...]


class Columns(NamedTuple):
    """The parts of many lines in our services' fixed byte form (see this module), as columns: each
    field has that part of every line. A part that a line lacks is empty.

    `raw` is the entry. `head`, `masked`, `pub` and `src` are members as they stand in it: `head` is
    everything up to `kind`, `masked` and `src` include the comma before them. `source` is the JSON
    text of `id` and `inst`. Hashes and salts (`…_cm`, `prev`, `src_prev`, `…_salt`) lack the last
    character of their base64, and may be any 43 bytes.
    `second` is the beginning of `ts`, any 19 bytes. `facts` begin and end like a JSON object. The
    pattern's groups have these names, in this order.
    """

    raw: Row
    head: Row
    parameters_cm: Row
    query_cm: Row
    statement_digest_cm: Row
    user_id_cm: Row
    eid: Row
    log: Row
    masked: Row
    prev: Row
    pub: Row
    facts: Row
    seq: Row
    src: Row
    source: Row
    n: Row
    src_prev: Row
    ts: Row
    second: Row
    parameters_salt: Row
    parameters_value: Row
    query_salt: Row
    query_value: Row
    statement_digest_salt: Row
    statement_digest_value: Row
    user_id_salt: Row
    user_id_value: Row


def _pattern(name: bytes, text: bytes) -> "re.Pattern[bytes]":
    """Return the regular expression of a line in our services' fixed byte form, with the line feed
    before it. `name` matches what stands between the quotes of a name; `text` does so for other
    texts, which may have escapes."""
    # Hashes are compared later, so `.{43}`, which only counts, is enough.
    name, text, count = b'"%b"' % name, b'"%b"' % text, rb"(?:0|[1-9][0-9]{0,14})"
    pair = rb"\[%b,%b\]" % (name, name)
    values: dict[str, bytes] = {
        Type.NAME: name,
        Type.TEXT: text,
        Type.UNREAD: text,
        Type.SOURCE_TYPE: name,
        Type.VERDICT: b'"(?:ALLOW|DENY)"',
        Type.ANSWER: b'"(?:ALLOW|DENY|ERROR)"',
        Type.COUNT: count,
        Type.DIGEST: name,
        Type.TRUE: b"true",
        # The bound on the facts' braces keeps a hostile line cheap.
        "pub.facts": rb"(?P<facts>\{(?:[^}]*\}){1,16}?)",
    }
    cm = {f"cm.{each}": b'"(?P<%b_cm>.{43})="' % each.encode() for each in names(COMMITTED)}
    opened = {
        f"cm.{each}": rb'\["(?P<%b_salt>.{43})=",(?P<%b_value>%b)\]'
        % (each.encode(), each.encode(), text)
        for each in names(COMMITTED)
    }
    return re.compile(
        rb'\n\{"entry":(?P<raw>(?P<head>\{"cm":' + known_object(COMMITTED, cm)
        + rb',"eid":"(?P<eid>' + name[1:-1] + rb')","kind":"decision")(?P<log>,"log":' + name
        + rb')(?P<masked>,"masked":\[(?:' + pair + rb"(?:," + pair
        + rb')*|)\]),"prev":"(?P<prev>.{43})=",(?P<pub>"pub":' + known_object("pub", values)
        + rb'),"seq":(?P<seq>' + count + rb')'
        rb'(?:(?P<src>,"src":\{(?P<source>"id":' + name + rb',"inst":' + name + rb'),"n":(?P<n>'
        + count + rb'),"prev":"(?:(?P<src_prev>.{43})=|)","t":' + name
        + rb'\})|),"ts":"(?P<ts>(?P<second>.{19})\.[0-9]{6}Z)","v":1\})'
        rb'(?:,"openings":' + known_object(COMMITTED, opened) + rb'|)\}(?=\n)',
        re.DOTALL,
    )  # fmt: skip


_NAME = rb'[^"\\\x00-\x1f]*'
_ANY = _pattern(_NAME, _NAME + rb'(?:\\["\\bfnrt]' + _NAME + rb")*")
# For lines without escapes and control characters, where a text ends at the next quote. It takes
# two thirds of the time of the other.
_PLAIN = _pattern(rb'[^"]*', rb'[^"]*')
_NOT_PLAIN = [b"\\", *(bytes([each]) for each in range(32) if each != ord("\n"))]
_CACHED_FACTS = 4096
_MAX_FACTS_BYTES = 4096


class LineMatcher:
    """Finds the lines in our services' fixed byte form (the known form) in a block of whole lines,
    which begins and ends with a line feed."""

    def __init__(self, block: bytes) -> None:
        utf8 = block.isascii() or _is_utf8(block)
        plain = utf8 and not any(each in block for each in _NOT_PLAIN)
        self._utf8 = utf8
        self._find = (_PLAIN if plain else _ANY).findall

    def rows(self, block: bytes) -> list[Row] | None:
        """Return the parts of each line, in the order of `Columns`; None unless all lines of the
        block are in our services' fixed byte form."""
        if not (self._utf8 or _is_utf8(block)):
            return None
        rows = self._find(block)
        # Each match takes the line feed before its line, and one follows the last. If there are
        # no others, none is within a match or between two.
        return rows if len(rows) == line_feeds(block) - 1 else None


def _is_utf8(block: bytes) -> bool:
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


@lru_cache(maxsize=_CACHED_FACTS)
def cited_by(raw: bytes) -> tuple[str, ...] | None:
    """Return the digests of the documents that `raw`, the `facts` of a line, cite; None unless the
    facts are canonical, and allowed in `pub` of an entry. Cached, since an agent sends the same
    facts again and again."""
    if len(raw) > _MAX_FACTS_BYTES:
        return None  # too large for the cache
    try:
        value = orjson.loads(raw)
        check([[value]])  # nested as deeply as in an entry, since the profile limits depth
    except (orjson.JSONDecodeError, NotCanonical):
        return None
    sound = isinstance(value, dict) and encode(value) == raw
    return tuple(cited_in(value)) if sound else None


FEW = 4
"""The smallest number of rows that are faster to check together than one by one."""
_SIGN = b'"kind":"decision","log":'
_LONGEST = 16 * 1024
"""The most bytes that an entry and its openings may have to be checked together: a row's line is a
copy, and many are made at once."""


def known_rows(rows: Sequence[StoredRow]) -> list[Row | None]:
    """Return the parts of each row in the order of `Columns`; None for a row that is not in our
    services' fixed byte form, and for a row in a run of fewer than `FEW` likely ones."""
    lines = list[bytes]()
    for likely, run in groupby(rows, _is_likely):
        some = list(run)
        lines += map(_line, some) if likely and len(some) >= FEW else [b""] * len(some)
    matcher = LineMatcher(b"".join(lines))
    return [_parts(matcher, row, line) for row, line in zip(rows, lines, strict=True)]


def beside_hold(
    columns: Columns, first: int, leaves: Sequence[bytes], rows: Sequence[StoredRow]
) -> bool:
    """Return whether the number, hash and columns stored in each row agree with its entry. `leaves`
    are the leaf hashes of the entries, which are numbered from `first` on."""
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
    """Return whether a row may be in our services' fixed byte form, by a quick look for a text that
    it always has. A database may hold any values, so not every row can be written as a line."""
    entry, openings = row.entry, row.openings
    return (
        type(entry) is bytes
        and _SIGN in entry
        and type(openings) is bytes
        and openings != b"{}"
        and len(entry) + len(openings) <= _LONGEST
    )


def _line(row: StoredRow) -> bytes:
    """Return the line that the row would have in an export, between two line feeds."""
    return b'\n{"entry":%b,"openings":%b}\n' % (row.entry, row.openings or b"")


def _parts(matcher: LineMatcher, row: StoredRow, line: bytes) -> Row | None:
    # Either of an entry and its openings may hold what looks like the border between them, or like
    # a whole line.
    match matcher.rows(line):
        case [parts] if parts[0] == row.entry:
            return parts
    return None


def _indexed(columns: Columns) -> Iterator[bytes]:
    """Yield each entry as JSON with only the members from which the index columns are derived."""
    # Only a name stands in front of a colon, since quotes within a text are escaped. So the last
    # `request` is the member, whatever the facts before it and the texts behind it say.
    for eid, pub, src, ts in zip(columns.eid, columns.pub, columns.src, columns.ts, strict=True):
        request = pub[pub.rindex(b',"request":{') + 1 :]
        yield b'{"eid":"%b","kind":"decision","pub":{%b%b,"ts":"%b"}' % (eid, request, src, ts)
