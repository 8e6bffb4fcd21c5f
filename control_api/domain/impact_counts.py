"""Counts what other policies would change about recorded decisions (`policy-tools.md` section 4).

Every decision that is added ends in exactly one of `unchanged`, `newly_denied`, `newly_allowed` and
`unreplayable`, so together they are `read`. A decision that only another policy would make is
unchanged, and listed apart: `renamed` groups it. Pure; knows no database.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from control_api.domain.decision_groups import DecisionGroups, Direction, GroupKey
from policies.ground.canonical import micros
from policies.trail.entry import time_of
from policies.trail.recompute.replay import Replayed, Why


@dataclass(slots=True)
class ImpactCounts:
    """The counts of one run so far. `entries` counts entries of every kind, `read` the decisions
    among them, `unchanged_by_another` those unchanged ones that only another policy would make."""

    entries: int = 0
    read: int = 0
    unchanged: int = 0
    unchanged_by_another: int = 0
    newly_denied: int = 0
    newly_allowed: int = 0
    unreplayable: dict[Why, int] = field(default_factory=dict)
    groups: DecisionGroups = field(default_factory=DecisionGroups)
    # Apart, so that a new name of a busy policy can't take the places of what really changes.
    renamed: DecisionGroups = field(default_factory=DecisionGroups)

    def add(self, replayed: Replayed | Why, entry: Mapping[str, Any]) -> None:
        """Count the decision of an entry."""
        self.read += 1
        if isinstance(replayed, Why):
            self.unreplayable[replayed] = self.unreplayable.get(replayed, 0) + 1
        elif replayed.same:
            self.unchanged += 1
        else:
            self._add_change(replayed, entry)

    def _add_change(self, replayed: Replayed, entry: Mapping[str, Any]) -> None:
        try:
            # When the enforcement point decided, as the list of events shows it.
            decided_at = micros(time_of(entry))
            event_id = str(entry["eid"])
        except (ValueError, TypeError, LookupError):
            self.unreplayable[Why.unreadable] = self.unreplayable.get(Why.unreadable, 0) + 1
            return
        direction, groups = Direction.unchanged, self.renamed
        if replayed.before == replayed.after:
            self.unchanged += 1
            self.unchanged_by_another += 1
        elif replayed.after == "DENY":
            self.newly_denied += 1
            direction, groups = Direction.newly_denied, self.groups
        else:
            self.newly_allowed += 1
            direction, groups = Direction.newly_allowed, self.groups
        names = (replayed.policy_name_before, replayed.policy_name_after)
        key = GroupKey(replayed.agent_role, replayed.source_id, direction, *names)
        groups.add(key, decided_at, event_id)

    def to_wire(self) -> dict[str, Any]:
        """The counts as JSON can hold them; `from_wire` continues them."""
        return {
            **{name: getattr(self, name) for name in _NUMBERS},
            "unreplayable": {why.value: count for why, count in self.unreplayable.items()},
            "groups": self.groups.to_wire(),
            "renamed": self.renamed.to_wire(),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "ImpactCounts":
        """The reverse of `to_wire`."""
        return cls(
            **{name: wire[name] for name in _NUMBERS},
            unreplayable={Why(name): count for name, count in wire["unreplayable"].items()},
            groups=DecisionGroups.from_wire(wire["groups"]),
            renamed=DecisionGroups.from_wire(wire["renamed"]),
        )


_NUMBERS = (
    "entries",
    "read",
    "unchanged",
    "unchanged_by_another",
    "newly_denied",
    "newly_allowed",
)
