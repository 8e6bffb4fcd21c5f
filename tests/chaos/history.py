"""What was asked, answered and acknowledged while faults were made, by one clock that nobody sets.
Knows nothing of how it came about.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Answered(NamedTuple):
    """A decision that somebody heard. Times in seconds, monotonic."""

    event_id: str
    sent: float
    heard: float
    decision: str
    policy_name: str
    asked: dict[str, Any]
    key: str


@dataclass
class History:
    """All of it since the system started; `asked` counts every request by the id that is its
    user, answered or not."""

    answered: dict[str, Answered] = field(default_factory=dict)
    unanswered: Counter[str] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)
    longest: float = 0.0
    policies: dict[int, tuple[tuple[str, ...], float]] = field(default_factory=dict)
    """Of each acknowledged version of the moving policy its sources, and when it was asked for."""
    replaced: dict[int, float] = field(default_factory=dict)
    """When it was acknowledged that a version was replaced."""
    dead_keys: dict[str, float] = field(default_factory=dict)
    """Keys whose revocation was acknowledged, and when."""
    dead_sessions: dict[str, float] = field(default_factory=dict)
