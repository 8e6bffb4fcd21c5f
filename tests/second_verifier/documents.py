"""The documents that decisions cite: what the section "Recomputing a decision" of the format
document says of them. What follows from a document is not derived."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from tests.second_verifier.entry_rules import is_time
from tests.second_verifier.findings import Finding

CITING = ("role", "sources")
"""The members of a decision's facts that hold the SHA-256 of a document."""


@dataclass(slots=True)
class _Missing:
    """A document that is not there. `latest` is the time at which the last decision that cites it
    was made, and `counted` the one at which it is counted; None if that is not known of one of
    them."""

    first: int
    latest: str | None
    counted: str | None


class Documents:
    """The documents of one file. `restored` says that the header's origin is that of a later
    incarnation."""

    def __init__(self, *, restored: bool) -> None:
        self._restored = restored
        self._continued = False
        self._unkept = ""
        """The time until which documents may be missing that a version replaced which kept none."""
        self._here: set[str] = set()
        self._uncited: set[str] = set()
        self._missing: dict[str, _Missing] = {}
        self.excused = False
        """Whether a document is missing for a reason that the log tells."""

    def line(self, body: bytes) -> None:
        """A document, at its place in the file. A second copy is not looked at."""
        digest = sha256(body).hexdigest()
        if digest not in self._here:
            self._here.add(digest)
            self._uncited.add(digest)

    def entry(self, entry: dict[str, Any]) -> None:
        """Any entry, in order."""
        if entry["kind"] == "incarnation":
            self._continued = True
        if entry["kind"] == "change":
            self._unkept = max(self._unkept, _unkept_until(entry))
        if entry["kind"] != "decision":
            return
        facts = entry["pub"].get("facts")
        cited = [facts.get(name) for name in CITING] if isinstance(facts, dict) else []
        for digest in (each for each in cited if isinstance(each, str)):
            self._uncited.discard(digest)
            if digest not in self._here:
                self._note(digest, entry)

    def findings(self, cutoff: str | None) -> list[Finding]:
        """At the end of a whole file. `cutoff` is that of the covered purge of what precedes the
        oldest entry, None without one."""
        found = []
        for digest, each in self._missing.items():
            late = None not in (cutoff, each.latest) and str(each.latest) < str(cutoff)
            unkept = each.counted is not None and each.counted < self._unkept
            if late or unkept or self._restored:
                self.excused = True
            else:
                message = f"the document `{digest}` is missing"
                found.append(Finding("document_missing", message, each.first))
        mismatch = "document_mismatch"
        found += [Finding(mismatch, f"nothing cites `{digest}`") for digest in self._uncited]
        return found

    def _note(self, digest: str, entry: dict[str, Any]) -> None:
        if self._continued:
            self.excused = True
            return
        time = entry["src"]["t"] if "src" in entry else None
        time = time if is_time(time) else None
        doubtful = "time_doubtful" in entry.get("marks", [])
        counted = entry.get("ts") if "src" not in entry or doubtful else time
        known = self._missing.setdefault(digest, _Missing(entry["seq"], time, counted))
        known.latest = _later(known.latest, time)
        known.counted = _later(known.counted, counted)


def _later(one: str | None, other: str | None) -> str | None:
    return None if one is None or other is None else max(one, other)


def _unkept_until(entry: dict[str, Any]) -> str:
    """A day after the change of a policy by a version that recorded no digests."""
    pub = entry["pub"]
    what = pub.get("what")
    if "before_sha256" in pub or not isinstance(what, str) or not what.startswith("policy."):
        return ""
    day_after = datetime.fromisoformat(entry["ts"]) + timedelta(days=1)
    return day_after.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
