"""Which entries of a log belong to a report: decisions that match, what followed from them, and
what was changed meanwhile. Fed with the entries in order; keeps their numbers only.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from control_api.verifier.outcome import Unusable
from policies.trail.entry import index_of

MOST_ENTRIES = 20_000
"""Entries of a report: the page must be readable, and both files are made in memory."""
_MEANWHILE = frozenset({"change", "redact", "purge", "gap", "incarnation"})
"""Kinds that tell what happened to the configuration and to the log."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a report is about: `by` is `session`, `agent`, `user` or `event`, `value` its id. The
    range is in microseconds since 1970 UTC, `until` exclusive; None without a limit."""

    by: str
    value: str
    begin: int | None = None
    until: int | None = None

    def within(self, ts: int) -> bool:
        return (self.begin is None or ts >= self.begin) and (self.until is None or ts < self.until)

    def matches(self, entry: dict[str, Any], openings: bytes | None) -> bool:
        """Whether a decoded `decision` is about it. The range is not looked at."""
        if self.by == "event":
            return bool(entry["eid"] == self.value)
        if self.by == "user":
            # Without its opening, nothing says whose decision it was.
            opened = orjson.loads(openings) if openings else {}
            return "user_id" in opened and opened["user_id"][1] == self.value
        return bool(entry["pub"]["request"].get(f"{self.by}_id") == self.value)


class Selection:
    """One pass over a log. `seqs` are the numbers of the entries that belong to the report."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self.seqs: set[int] = set()
        self._events: set[str] = set()
        # Changes since the last entry selected: they count once another one follows.
        self._pending: list[int] = []

    def see(self, raw: bytes, openings: bytes | None) -> None:
        """The next entry. It was verified before, so it has all members."""
        entry = orjson.loads(raw)
        kind, seq = entry["kind"], entry["seq"]
        if kind == "decision":
            if self._asked.matches(entry, openings) and self._asked.within(index_of(entry).ts):
                self._events.add(entry["eid"])
                self._select(seq)
        elif kind == "lineage":
            # What followed from a decision belongs to it, however late it was.
            if entry["pub"]["event"]["id"] in self._events:
                self._select(seq)
        elif kind in _MEANWHILE:
            self._see_change(entry, seq)

    def _see_change(self, entry: dict[str, Any], seq: int) -> None:
        asked = self._asked
        if asked.begin is not None or asked.until is not None:
            # With a range asked for, "meanwhile" is that range.
            if asked.within(index_of(entry).ts):
                self._add(seq)
        elif entry["pub"].get("target") == asked.value:
            self._add(seq)  # the session or agent itself was changed, before or after
        elif self._events and len(self._pending) <= MOST_ENTRIES:
            # One more than the limit is enough to be refused when they count.
            self._pending.append(seq)

    def _select(self, seq: int) -> None:
        self._add(seq)
        for each in self._pending:
            self._add(each)
        self._pending.clear()

    def _add(self, seq: int) -> None:
        self.seqs.add(seq)
        if len(self.seqs) > MOST_ENTRIES:
            raise Unusable(
                f"more than {MOST_ENTRIES:,} entries belong to the report; narrow it with "
                "--from and --to"
            )
