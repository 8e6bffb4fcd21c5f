"""What was asked, answered and acknowledged while faults were made, by one clock that is never set.
Knows nothing of the faults."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple


class Answered(NamedTuple):
    """A decision that a client received. Times in seconds, monotonic."""

    event_id: str
    sent: float
    heard: float
    decision: str
    policy_name: str
    asked: dict[str, Any]
    key: str


@dataclass
class Version:
    """What a version of the changing policy allowed, when it was requested, and when its
    replacement was acknowledged."""

    sources: tuple[str, ...]
    asked: float
    replaced: float = inf


@dataclass
class History:
    """Everything since the system started. `asked` counts every request, answered or not, by its
    id, which is its user."""

    answered: dict[str, Answered] = field(default_factory=dict)
    unanswered: Counter[str] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)
    longest: float = 0.0
    policies: dict[int, list[Version]] = field(default_factory=lambda: defaultdict(list))
    """Every acknowledged version of the changing policy; after a restore, versions are numbered
    again."""
    dead_keys: dict[str, float] = field(default_factory=dict)
    """The keys whose revocation was acknowledged, and when."""
    dead_sessions: dict[str, float] = field(default_factory=dict)
