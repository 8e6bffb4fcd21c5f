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


@dataclass(frozen=True, slots=True)
class SelfVerified:
    """What the scheduled verification found, over all logs: `damaged` if one does not verify,
    `pending` until every log was verified to its end. `finished_at` is when the oldest was."""

    state: Literal["valid", "damaged", "pending"]
    finished_at: str | None

    example: ClassVar[dict[str, Any]] = {
        "state": "valid",
        "finished_at": "2026-01-31T12:00:00.000000Z",
    }


@dataclass(frozen=True, slots=True)
class Ready:
    """The service is ready; `version` is the software's version."""

    status: Literal["ok"]
    version: str
    self_verification: SelfVerified

    example: ClassVar[dict[str, Any]] = {
        "status": "ok",
        "version": "0.1.0",
        "self_verification": SelfVerified.example,
    }
