"""Responses about records of sidecars that were refused."""

from dataclasses import dataclass
from typing import Any, ClassVar

_NOW = "2026-01-31T12:00:00.000000Z"
_HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


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
