"""Finds ids that occur twice. Keeps 16 bytes an id, so a million of them fit in memory easily."""

from __future__ import annotations

from hashlib import sha256

from tests.second_verifier.findings import Finding


class Ids:
    """The ids of the entries so far."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._twice: list[int] = []

    def add(self, eid: str, seq: int) -> None:
        """The next entry's id."""
        digest = sha256(eid.encode()).digest()[:16]
        if digest in self._seen:
            self._twice.append(seq)
        self._seen.add(digest)

    def findings(self) -> list[Finding]:
        """One for each entry whose id an earlier entry has."""
        return [Finding("duplicate_id", "an earlier entry has its id", seq) for seq in self._twice]
