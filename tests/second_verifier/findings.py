"""What was found, and the answer that a verification gives."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not hold: its reason's code, and the entry, if it concerns one."""

    reason: str
    message: str
    seq: int | None = None


class Broken(Exception):
    """An entry, or a line, after which the walk can't go on."""

    def __init__(self, reason: str, message: str, seq: int | None = None) -> None:
        super().__init__(message)
        self.finding = Finding(reason, message, seq)


class NotAnExport(ValueError):
    """The file is no export at all: it has no header that can be read."""


@dataclass(slots=True)
class Answer:
    """The result of one verification."""

    level: str = "unsigned"
    entries: int = 0
    unproven_tail: int = 0
    incomplete: bool = False
    """Whether documents are missing for a reason that the log tells."""

    findings: list[Finding] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """Whether all holds."""
        return not self.findings

    def first(self) -> Finding | None:
        """The finding of the first bad entry; without one, the first of the others."""
        of_entries = [found for found in self.findings if found.seq is not None]
        if of_entries:
            return min(of_entries, key=lambda found: found.seq or 0)
        return self.findings[0] if self.findings else None
