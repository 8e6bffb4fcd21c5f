"""Notes which policy documents the decisions of a range cite, and where, so that a reader of a file
can compare its documents with them without decoding a line again. Reads no document."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from policies.trail.recompute.facts import cited_digests
from policies.trail.recompute.registry import unkept_until
from policies.trail.walk.known_lines import cited_by


class Cited(NamedTuple):
    """The `seq` of the first and of the last decision that cites each digest. `unkept_until` is the
    time, in microseconds, until which decisions may lack their document, by the range's changes;
    0 without such a change."""

    places: dict[str, tuple[int, int]]
    unkept_until: int


class Citations:
    """The citations of one range."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        self._unkept_until = 0

    def take(self, entry: Mapping[str, Any], seq: int) -> None:
        """Take in a decoded entry of any kind. Raises like any look-up in what may not be a valid
        entry."""
        kind = entry["kind"]
        if kind == "decision":
            for digest in cited_digests(entry):
                self._note(digest, seq, seq)
        elif kind == "change":
            self._unkept_until = max(self._unkept_until, unkept_until(entry))

    def take_facts(self, facts: Sequence[bytes], first: int) -> None:
        """Take in the facts of consecutive decisions, of which the first is entry `first`. `facts`
        are `Columns.facts` whose form was checked."""
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
