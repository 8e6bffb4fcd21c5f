"""What a walk over a range of lines gives: its entries' tree, and its claims about what precedes
it. Only data."""

from array import array
from collections.abc import Mapping
from typing import Any, NamedTuple

from policies.trail.findings import Finding
from policies.trail.walk.citations import Cited
from policies.trail.walk.silences import Silence

Source = tuple[bytes, bytes]
ChainEnd = tuple[int, bytes]
"""The number of a source's last record, and the base64 of its hash."""


class Before(NamedTuple):
    """What precedes a range, where that is known. Its first entry must be number `seq` of `log`,
    cite `prev` (None if only the tree before is known) and be no older than `ts`. `sources` are the
    ends of the chains so far. `trusting` says that a source that is not among them may have
    records before the walk."""

    seq: int
    log: bytes
    prev: bytes | None
    ts: bytes
    sources: Mapping[Source, ChainEnd]
    trusting: bool


class SourceClaim(NamedTuple):
    """A source within a range: the `seq`, id and number of its first record there, and the
    `src.prev` that it cites; the number of its last record there, and that one's hash. Hashes are
    base64."""

    seq: int
    eid: bytes
    n: int
    prev: bytes
    last_n: int
    last_hash: bytes


class Start(NamedTuple):
    """What a range's first entry says about its place."""

    seq: int
    prev: bytes
    ts: bytes
    log: bytes
    eid: str


class Other(NamedTuple):
    """A line that is not an entry, with the tree of the range up to it. `end` is `BEFORE` if no
    entry of the range precedes it."""

    line: bytes
    end: int
    hashes: tuple[bytes, ...]


BEFORE = -1


class RangeResult(NamedTuple):
    """What a range holds. `start` is None without entries. `ids` holds a keyed hash of each id;
    `missing` the entries that lack an opening, and `erased` what `redact` entries erased. `notable`
    are `(seq, kind, pub)` of `purge` and `incarnation` entries, and `cited` the documents that
    decisions cite. `marks` are the trees at the wanted
    sizes. The `seq` of a `finding` is None if the range does not know where it stands."""

    start: Start | None
    end: int
    hashes: list[bytes]
    last_leaf: bytes
    last_ts: bytes
    decisions: int
    without_openings: int
    sources: dict[Source, SourceClaim]
    ids: "array[int]"
    missing: list[int]
    erased: list[tuple[int, int]]
    notable: list[tuple[int, str, dict[str, Any]]]
    cited: Cited
    others: list[Other]
    marks: list[tuple[int, tuple[bytes, ...]]]
    silences: list[Silence]
    finding: Finding | None
