"""What an erasure reports to the person who asked for it: what was erased, what stays and why, and
how to check it. Holds none of the erased values. Knows no request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deploy.commands.client.redact.target import Target

FIELDS = (
    "of each decision: the user's id (`user_id`) and the text of the query (`query`)",
    "of each action that was reported about such a decision: its `detail`",
    "of each session: the user's id (`user_id`)",
)
STAYS = (
    (
        "when which agent and role was allowed or denied which source, in which session, and why: "
        "the account of what the system did, which does not name the user"
    ),
    (
        "a salted commitment to each erased value, so that the hashes of the log still verify; its "
        "salt is erased too, and without it a guess at the value can't be tested"
    ),
    "the record of this erasure: by whom, when, why and of which entries, by their numbers",
    (
        "copies out of reach of the service: backups and write-ahead logs until they are rotated, "
        "earlier exports, and what sidecars have not delivered yet"
    ),
)
CHECKS = (
    "`GET /v1/audit/redactions` lists each erasure by `seq` and `hash`, as above",
    (
        "`sluice export -o log.ndjson` and `sluice verify log.ndjson` show that the entries named "
        "above have no openings, which held the values, and that everything else is unchanged"
    ),
    "the same command again erases nothing",
)


@dataclass(frozen=True, slots=True)
class Report:
    """One erasure. `redactions` are the log's records of it, oldest first, as the API lists them;
    `sessions` counts the sessions that lost their user; `complete` is False if more is left."""

    target: Target
    reason: str
    redactions: list[dict[str, Any]]
    sessions: int
    complete: bool

    @property
    def entries(self) -> int:
        """How many entries lost their values."""
        ranges = [each for entry in self.redactions for each in entry["events"]]
        return sum(last - first + 1 for first, last in ranges)

    def document(self) -> dict[str, Any]:
        return {
            "target": self.target.shown,
            "reason": self.reason,
            "complete": self.complete,
            "entries": self.entries,
            "sessions": self.sessions,
            "fields": list(FIELDS),
            "redactions": self.redactions,
            "stays": list(STAYS),
            "checks": list(CHECKS),
        }

    def lines(self) -> list[str]:
        """The report as text for people."""
        if not self.redactions:
            return [
                (
                    f"nothing was erased: the log holds no value of {self.target.text}. An id is "
                    "matched exactly as recorded, which may be a mask such as `[EMAIL]`"
                )
            ]
        entries = _counted(self.entries, "entry", "entries")
        sessions = _counted(self.sessions, "session", "sessions")
        state = "complete" if self.complete else "NOT COMPLETE: the same command erases the rest"
        lines = [
            f"erasure of {self.target.text}: {state}",
            f"reason: {self.reason}",
            f"{entries} and {sessions} lost their personal values",
        ]
        for entry in self.redactions:
            lines.append(f"  {entry['timestamp']}, recorded as seq {entry['seq']} by {entry['by']}")
            lines.append(f"    hash {entry['hash']}")
            lines.append(f"    entries {_ranges(entry['events'])}")
        for title, points in (("erased", FIELDS), ("stays", STAYS), ("check", CHECKS)):
            lines += ["", f"{title}:", *(f"- {point}" for point in points)]
        return lines


def _ranges(ranges: list[list[int]]) -> str:
    each = (f"{first}" if first == last else f"{first} to {last}" for first, last in ranges)
    return ", ".join(each) or "none, only sessions"


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"
