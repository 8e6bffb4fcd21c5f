"""Joins the results of consecutive ranges into one walk over a log, and checks that each range
continues the one before, which the range alone can't tell.

    walk = JoinedWalk(log)                      or with `tree`, what precedes the first range
    for result in results: walk.join(result, on_other)      False once something was found
    walk.tree, walk.broken, …

Knows nothing of files, keys and checkpoints: `join` hands the lines that are not entries to its
caller, with the tree up to them.
"""

from collections.abc import Callable
from typing import Any

from policies.ground.canonical import b64, encode
from policies.trail.entry import EntryFinding
from policies.trail.findings import Finding
from policies.trail.merkle_tree import Frontier
from policies.trail.walk.compact_range import extend
from policies.trail.walk.continuity import place_fault, source_fault
from policies.trail.walk.gaps import Erasures, Silences
from policies.trail.walk.range_result import (
    BEFORE,
    ChainEnd,
    ClaimedPlace,
    NonEntryLine,
    RangeResult,
    Source,
    StateBefore,
)

OnOther = Callable[[bytes, Frontier], Finding | None]


class JoinedWalk:
    """A walk over the log named `log`, to which the results of ranges are joined in order."""

    def __init__(
        self,
        log: str,
        tree: Frontier | None = None,
        last_leaf: bytes | None = None,
        most_sources: int | None = None,
    ) -> None:
        """Begin a walk. `tree` and `last_leaf` describe the log before the walk's first entry.
        `last_leaf` is None where only the tree is known; then the first entry's `prev` is taken on
        trust until a checkpoint covers it. `most_sources` bounds the number of sources that are
        followed, and so the memory; None means no bound, for a log of our own."""
        self._most = most_sources
        self._log = b',"log":' + encode(log)
        self.tree = Frontier() if tree is None else tree
        self.base = self.tree.size
        self._trusting = bool(self.base)
        self._prev: bytes | None = None
        if last_leaf is not None or not self.base:
            self._prev = b64(last_leaf or b"").encode()
        self.last_leaf = last_leaf or b""
        self.last_ts = ""
        self.first_ts = ""
        self.decisions = self.without_openings = 0
        self.sources: dict[Source, ChainEnd] = {}
        self.unfollowed = False
        """True if there were more sources than may be followed. The records of the others are
        accepted without a check, as at the beginning of a partial log."""
        self.erasures = Erasures()
        self.silences = Silences()
        self.first_prev = ""
        """The `prev` of the first entry; empty before that entry was walked."""
        self.roots: dict[int, bytes] = {}
        """The tree's roots by size, at those wanted sizes that the walk has reached."""
        self.notable: list[tuple[int, str, dict[str, Any]]] = []
        self.broken: Finding | None = None

    def continue_from(
        self, last_leaf: bytes, last_ts: str, sources: dict[Source, ChainEnd]
    ) -> None:
        """Continue from the end of an earlier walk over the entries before this one. A source that
        the earlier walk did not meet must begin with number 0."""
        self.last_leaf, self.last_ts = last_leaf, last_ts
        self._prev = b64(last_leaf).encode()
        self.sources = dict(sources)
        self._trusting = False

    def before(self) -> StateBefore:
        """Return the state at the end of the walk so far, before the range that is joined next."""
        ts, sources = self.last_ts.encode(), self.sources
        trusting = self._trusting or self._is_full()
        return StateBefore(self.tree.size, self._log, self._prev, ts, sources, trusting)

    def join(self, result: RangeResult, on_other: OnOther) -> bool:
        """Take in the result of the next range. `on_other` judges each line that is not an entry;
        it must not change the tree that it gets. Return False once something failed: to join more
        changes nothing."""
        if self.broken is not None:
            return False
        before = Frontier(self.tree.size, list(self.tree.hashes))
        leading = [other for other in result.others if other.end == BEFORE]
        self.broken = self._others(leading, before, on_other)
        if self.broken is None and result.start is not None:
            self.broken = self._start_fault(result.start)
        if self.broken is None:
            self.broken = self._inner(result, result.others[len(leading) :], before, on_other)
        if self.broken is None and result.finding is not None:
            self.broken = self._placed(result.finding)
        return self.broken is None

    def _inner(
        self, result: RangeResult, others: list[NonEntryLine], before: Frontier, on_other: OnOther
    ) -> Finding | None:
        """Take in the entries of a range, and judge the lines between them. Return the first fault
        of either, None if there is none."""
        fault = None if result.start is None else self._source_fault(result)
        if fault is None:
            if result.start is not None and result.last_leaf:
                self._take(result, before)
            return self._others(others, before, on_other)
        earlier = [other for other in others if fault.seq is None or other.end <= fault.seq]
        return self._others(earlier, before, on_other) or fault

    def _others(
        self, others: list[NonEntryLine], before: Frontier, on_other: OnOther
    ) -> Finding | None:
        for other in others:
            tree = before
            if other.end > before.size:
                tree = Frontier(before.size, list(before.hashes))
                extend(tree, other.end, other.hashes)
            if found := on_other(other.line, tree):
                return found
        return None

    def walked(self) -> int:
        return self.tree.size - self.base

    def _take(self, result: RangeResult, before: Frontier) -> None:
        assert result.start is not None
        for size, hashes in result.marks:
            tree = Frontier(before.size, list(before.hashes))
            extend(tree, size, hashes)
            self.roots[size] = tree.root()
        extend(self.tree, result.end, result.hashes)
        self._follow(result)
        begins = result.start.ts.decode()
        self.silences.between(before.size, self.last_ts, begins)
        self.silences.add(each for each in result.silences if each.seq < result.end)
        if not self.first_ts:
            self.first_prev, self.first_ts = result.start.prev.decode(), begins
        self.last_leaf, self.last_ts = result.last_leaf, result.last_ts.decode()
        self._prev = b64(result.last_leaf).encode()
        self.decisions += result.decisions
        self.without_openings += result.without_openings
        for seq in result.missing:
            self.erasures.missing(seq)
        for first, last in result.erased:
            self.erasures.redact(first, last)
        self.notable += result.notable

    def _is_full(self) -> bool:
        return self._most is not None and len(self.sources) >= self._most

    def _follow(self, result: RangeResult) -> None:
        for source, claim in result.sources.items():
            if source not in self.sources and self._is_full():
                self.unfollowed = True
                continue
            self.sources[source] = (claim.last_n, claim.last_hash)

    def _start_fault(self, start: ClaimedPlace) -> Finding | None:
        fault = place_fault(start, self.before())
        return None if fault is None else _finding(self.tree.size, fault, start.eid)

    def _source_fault(self, result: RangeResult) -> Finding | None:
        """Return a finding for the first record, in order of `seq`, that does not continue its
        source's chain; None if all do."""
        trusting = self._trusting or self._is_full()
        # The claims are in order of `seq`, since a range notes each source when it meets it first.
        for source, claim in result.sources.items():
            end = self.sources.get(source)
            name = source[0].decode(errors="replace")
            fault = source_fault(name, claim.n, claim.prev, end, trusting=trusting)
            if fault is not None:
                return _finding(claim.seq, fault, claim.eid.decode())
        return None

    def _placed(self, found: Finding) -> Finding:
        """Return the finding with its place in the log. A range that did not know its own place
        leaves `seq` None; then the place that the walk has reached is filled in."""
        if found.seq is not None:
            return found
        seq = self.tree.size
        return found._replace(seq=seq, message=f"seq {seq}: {found.message}")


def _finding(seq: int, fault: EntryFinding, eid: str) -> Finding:
    return Finding(seq, fault.reason, f"seq {seq}: {fault}", eid)
