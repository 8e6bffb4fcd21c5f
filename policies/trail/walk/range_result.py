"""The result of a walk over a range of lines: the tree of its entries, its claims about the entries
before it, and the policy documents that its decisions cite, with their places. So a reader of a
file can compare its documents with them without decoding a line again. Reads no document."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from policies.trail.findings import Finding
from policies.trail.recompute.document_history import unkept_until
from policies.trail.recompute.facts import cited_digests
from policies.trail.walk.gaps import Silence
from policies.trail.walk.known_lines import cited_by


class Cited(NamedTuple):
    """The documents that a range's decisions cite: `places` has, by digest, the `seq` of the first
    and of the last decision that cites it. `unkept_until` is the time, in microseconds, until which
    decisions may lack their document because of the range's changes; 0 without such a change."""

    places: dict[str, tuple[int, int]]
    unkept_until: int


class Citations:
    """Collects the documents that the decisions of one range cite."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        self._unkept_until = 0

    def take(self, entry: Mapping[str, Any], seq: int) -> None:
        """Take in a decoded entry of any kind. Raises `LookupError`, `TypeError` or
        `AttributeError` for what is not a valid entry."""
        kind = entry["kind"]
        if kind == "decision":
            for digest in cited_digests(entry):
                self._note(digest, seq, seq)
        elif kind == "change":
            self._unkept_until = max(self._unkept_until, unkept_until(entry))

    def take_facts(self, facts: Sequence[bytes], first: int) -> None:
        """Take in the facts of consecutive decisions, the first of which is entry number `first`.
        `facts` are `Columns.facts` whose form was checked."""
        last = dict(zip(facts, range(first, first + len(facts)), strict=True))
        for raw, seq in last.items():  # in order of their first place
            digests = cited_by(raw) or ()
            for digest in digests:
                if digest in self._places:
                    self._note(digest, seq, seq)
                else:
                    self._note(digest, first + facts.index(raw), seq)

    def result(self) -> Cited:
        return Cited(self._places, self._unkept_until)

    def _note(self, digest: str, first: int, last: int) -> None:
        known = self._places.get(digest)
        self._places[digest] = (
            (first, last) if known is None else (min(known[0], first), max(known[1], last))
        )


Source = tuple[bytes, bytes]
ChainEnd = tuple[int, bytes]
"""The end of a source's hash chain: the number of its last record, and the base64 of that record's
hash."""


class StateBefore(NamedTuple):
    """The state of a log before a range, as far as it is known. The range's first entry must be
    number `seq` of `log`, cite `prev` (None if only the tree before is known), and be no older than
    `ts`. `sources` are the ends of the sources' chains so far. `trusting` says that a source that
    is not among them may have records before the walk."""

    seq: int
    log: bytes
    prev: bytes | None
    ts: bytes
    sources: Mapping[Source, ChainEnd]
    trusting: bool


class SourceClaim(NamedTuple):
    """A source's records within a range. For its first record there: the entry's `seq` and id, the
    record's number `n`, and the `src.prev` that it cites. For its last record there: the number and
    the hash. Hashes are base64."""

    seq: int
    eid: bytes
    n: int
    prev: bytes
    last_n: int
    last_hash: bytes


class ClaimedPlace(NamedTuple):
    """The place in the log that a range's first entry states for itself."""

    seq: int
    prev: bytes
    ts: bytes
    log: bytes
    eid: str


class NonEntryLine(NamedTuple):
    """A line that is not an entry, with the range's tree up to it (`end` and `hashes`, as in
    `CompactRange`). `end` is `BEFORE` if no entry of the range precedes it."""

    line: bytes
    end: int
    hashes: tuple[bytes, ...]


BEFORE = -1


class RangeResult(NamedTuple):
    """The result of walking one range. `start` is None if it has no entries. `ids` holds the keyed
    hash (Python's `hash`) of each entry's id, to find duplicates; `missing` are the entries that
    lack an opening, and `erased` the ranges that `redact` entries erased. `notable` are `(seq,
    kind, pub)` of `purge` and `incarnation` entries, and `cited` the documents that decisions cite.
    `marks` are the trees at the wanted sizes. The `seq` of a `finding` is None if the range does
    not know its place in the log."""

    start: ClaimedPlace | None
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
    others: list[NonEntryLine]
    marks: list[tuple[int, tuple[bytes, ...]]]
    silences: list[Silence]
    finding: Finding | None
