"""Responses about erasures and legal holds (`FORMAT.md`)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

HeldObject = Literal["session", "agent", "user"]
_NOW = "2026-01-31T12:00:00.000000Z"
_HASH = "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"


@dataclass(frozen=True, slots=True)
class Redacted:
    """What one request erased: the number of entries whose values are gone, the number of sessions
    whose user is, and the `redact` entry that says so, the last if there are several."""

    redacted: int
    sessions: int
    seq: int | None
    more: bool

    example: ClassVar[dict[str, Any]] = {"redacted": 17, "sessions": 2, "seq": 1020, "more": False}


@dataclass(frozen=True, slots=True)
class RedactionShown:
    """A `redact` entry: whose openings were erased, by the ranges `[first, last]` of their `seq`,
    both included."""

    seq: int
    hash: str
    timestamp: str
    by: str
    reason: str
    events: list[list[int]]

    example: ClassVar[dict[str, Any]] = {
        "seq": 1020,
        "hash": _HASH,
        "timestamp": _NOW,
        "by": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "reason": "erasure request 2026-114",
        "events": [[17, 17], [40, 52]],
    }


@dataclass(frozen=True, slots=True)
class HoldShown:
    """A legal hold. `seq` is the entry that placed it; `object_id` is empty once a user was erased
    after the release."""

    hold_id: str
    object_type: HeldObject
    object_id: str
    reason: str
    placed_by: str
    placed_at: str
    seq: int
    released_by: str | None
    released_at: str | None

    example: ClassVar[dict[str, Any]] = {
        "hold_id": "hld_3nB7xGvQ2mT5kWc8LpR0aZ",
        "object_type": "session",
        "object_id": "s-77",
        "reason": "litigation 2026-9",
        "placed_by": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "placed_at": _NOW,
        "seq": 1019,
        "released_by": None,
        "released_at": None,
    }
