"""Defines the responses about administrative changes, and about records of sidecars that were
refused."""

from dataclasses import dataclass
from typing import Any, ClassVar

_NOW = "2026-01-31T12:00:00.000000Z"
_HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


@dataclass(frozen=True, slots=True)
class ChangeShown:
    """An administrative change. `before` and `after` are null if the object did not exist, if the
    change was recorded by an older version, or if what differs is too large; `reason` is null if
    none was recorded; `hash` is the leaf hash of its entry, in hex."""

    seq: int
    event_id: str
    hash: str
    timestamp: str
    object_type: str
    object_id: str
    action: str
    actor: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    reason: str | None

    example: ClassVar[dict[str, Any]] = {
        "seq": 17,
        "event_id": "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d",
        "hash": _HASH,
        "timestamp": _NOW,
        "object_type": "agent",
        "object_id": "agt_loans",
        "action": "status",
        "actor": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "before": {"status": "pending_approval", "updated_at": _NOW},
        "after": {"status": "approved", "updated_at": _NOW},
        "reason": "the review board asked for it",
    }


@dataclass(frozen=True, slots=True)
class Applied:
    """A sidecar that has applied a revision, and the first entry of its own records that shows it:
    decided, or beat, at that revision or later. `at` is by the sidecar's clock; `hash` is the leaf
    hash in hex, null once retention has removed the entry."""

    sidecar_id: str
    seq: int
    hash: str | None
    at: str

    example: ClassVar[dict[str, Any]] = {
        "sidecar_id": "sidecar-1",
        "seq": 18,
        "hash": _HASH,
        "at": _NOW,
    }


@dataclass(frozen=True, slots=True)
class NotApplied:
    """A live sidecar whose records do not show the revision yet; `last_revision` is the newest that
    they show, null if there is none."""

    sidecar_id: str
    last_revision: int | None
    last_seen: str

    example: ClassVar[dict[str, Any]] = {
        "sidecar_id": "sidecar-2",
        "last_revision": 41,
        "last_seen": _NOW,
    }


@dataclass(frozen=True, slots=True)
class Acknowledgements:
    """Which of the live sidecars have applied a revision, and when, by their own records."""

    revision: int
    applied: list[Applied]
    missing: list[NotApplied]

    example: ClassVar[dict[str, Any]] = {
        "revision": 42,
        "applied": [Applied.example],
        "missing": [NotApplied.example],
    }


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A sidecar's record that was refused, as an entry of the log: when it arrived, its place in
    the spool that delivered it, by which key, and what it said. `record` is null if it was too
    large to be kept; `hash` is the leaf hash of the entry, in hex."""

    seq: int
    hash: str
    timestamp: str
    sidecar_id: str
    instance: str
    n: int
    key_id: str
    reason: str
    record: dict[str, Any] | None

    example: ClassVar[dict[str, Any]] = {
        "seq": 18,
        "hash": _HASH,
        "timestamp": _NOW,
        "sidecar_id": "sidecar-1",
        "instance": "6f1d2a9c",
        "n": 126,
        "key_id": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "reason": "foreign_agent",
        "record": None,
    }
