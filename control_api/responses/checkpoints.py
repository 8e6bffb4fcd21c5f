"""Responses about the signed checkpoints of the audit trail (`audit-trail.md`, Checkpoints). Knows
nothing of where the values come from."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal


@dataclass(frozen=True, slots=True)
class KeptCheckpoint:
    """A signed checkpoint that is kept; `GET /v1/audit/checkpoint?size=` shows its note."""

    size: int
    root: str
    signed_at: str
    witnesses: int
    level: Literal["unsigned", "signed", "witnessed"]
    origin: str

    example: ClassVar[dict[str, Any]] = {
        "size": 1019,
        "root": "rE6r8lJ2OtDEFlyJGsRPjU2KGcJ3TqTbeWUUJzXNDEE=",
        "signed_at": "2026-01-31T12:00:00.000000Z",
        "witnesses": 0,
        "level": "signed",
        "origin": "sluice/0194bd6e/default",
    }
