"""Responses about the signed checkpoints of the audit trail (`audit-trail.md`, Checkpoints). Knows
nothing of where the values come from."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal


@dataclass(frozen=True, slots=True)
class KeptCheckpoint:
    """A signed checkpoint that is kept; `GET /v1/audit/checkpoint?size=` shows its note.
    `witnesses` counts the cosignatures as they arrived; `witness_names` are the witnesses that the
    service asks now and whose cosignatures are on the note."""

    size: int
    root: str
    signed_at: str
    witnesses: int
    witness_names: list[str]
    level: Literal["unsigned", "signed", "witnessed"]
    origin: str

    example: ClassVar[dict[str, Any]] = {
        "size": 1019,
        "root": "rE6r8lJ2OtDEFlyJGsRPjU2KGcJ3TqTbeWUUJzXNDEE=",
        "signed_at": "2026-01-31T12:00:00.000000Z",
        "witnesses": 1,
        "witness_names": ["witness.example"],
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
class Verification:
    """How far the service's own verification of the log has come, and what it found last: the
    state is `pending` until it was at the log's end once.

    It has walked from entry `first`, where the log begins, to `reached`, of `total` entries. It
    was last at the log's end at `finished_at`, then of `finished_size` entries. `broken_at` and
    `broken_seq` are the id and the number of the first entry that fails; `reason` says how. Both
    are null if a count differs from the entries. All entries and all counts were right at
    `verified_at` or later, but for what `reason` says."""

    state: Literal["pending", "valid", "damaged"]
    running: bool
    first: int
    reached: int
    total: int
    started_at: str | None
    finished_at: str | None
    finished_size: int | None
    broken_at: str | None
    broken_seq: int | None
    reason: str | None
    verified_at: str | None

    example: ClassVar[dict[str, Any]] = {
        "state": "valid",
        "running": True,
        "first": 0,
        "reached": 40000,
        "total": 90210,
        "started_at": "2026-01-31T12:00:00.000000Z",
        "finished_at": "2026-01-31T11:00:00.000000Z",
        "finished_size": 90000,
        "broken_at": None,
        "broken_seq": None,
        "reason": None,
        "verified_at": "2026-01-31T10:40:00.000000Z",
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
