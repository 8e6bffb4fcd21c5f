"""Groups decisions that other policies would make differently: what an impact run and a candidate
show of them.

    groups = DecisionGroups()
    groups.add(key, decided_at, event_id)       once for each decision
    groups.to_wire()                            to store, and `from_wire` to go on

Bounded, whatever it counts: the first `MAX_GROUPS` groups are kept, in the order in which they
appeared, each with the ids of its first `MAX_EXAMPLES` decisions. What belongs to none of them is
counted in `left_out`, by direction, so the groups and `left_out` together are all decisions that
were added. Fed in the same order, it always gives the same result, also over `to_wire` and back.

Pure: no clock, no database. Knows nothing of how a decision was made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from control_api.responses.impact import DecisionGroup
from policies.ground.canonical import rfc3339

MAX_GROUPS = 1000
MAX_EXAMPLES = 5


class Direction(StrEnum):
    """What the other policies change. `unchanged` is the same decision by a policy of another
    name."""

    newly_denied = "newly_denied"
    newly_allowed = "newly_allowed"
    unchanged = "unchanged"


class GroupKey(NamedTuple):
    """What the decisions of a group have in common. Of the two policy names, `before` is that of
    the recorded decision, `after` that of the other one; checks have names here too, as
    `default_deny`."""

    agent_role: str
    source_id: str
    direction: Direction
    policy_name_before: str
    policy_name_after: str


@dataclass(slots=True)
class Group:
    """The decisions of one key. `first` and `last` are the times of the earliest and the latest, in
    microseconds since 1970 UTC."""

    count: int
    first: int
    last: int
    example_event_ids: list[str]

    def add(self, decided_at: int, event_id: str) -> None:
        self.count += 1
        self.first = min(self.first, decided_at)
        self.last = max(self.last, decided_at)
        if len(self.example_event_ids) < MAX_EXAMPLES:
            self.example_event_ids.append(event_id)


@dataclass(slots=True)
class DecisionGroups:
    """Counts decisions by group. `left_out` counts those past the bound, by direction."""

    groups: dict[GroupKey, Group] = field(default_factory=dict)
    left_out: dict[Direction, int] = field(default_factory=dict)

    def add(self, key: GroupKey, decided_at: int, event_id: str) -> None:
        """Count one decision, made at `decided_at` (microseconds since 1970 UTC)."""
        group = self.groups.get(key)
        if group is not None:
            group.add(decided_at, event_id)
        elif len(self.groups) < MAX_GROUPS:
            self.groups[key] = Group(1, decided_at, decided_at, [event_id])
        else:
            self.left_out[key.direction] = self.left_out.get(key.direction, 0) + 1

    def to_wire(self) -> dict[str, Any]:
        """The groups in the order in which they appeared, as JSON can hold them."""
        groups = [
            [*key, each.count, each.first, each.last, each.example_event_ids]
            for key, each in self.groups.items()
        ]
        left_out = {direction.value: count for direction, count in self.left_out.items()}
        return {"groups": groups, "left_out": left_out}

    def shown(self) -> list[DecisionGroup]:
        """The groups as an answer shows them, the largest first."""
        ordered = sorted(self.groups.items(), key=lambda item: -item[1].count)
        return [
            DecisionGroup(
                key.agent_role,
                key.source_id,
                key.direction.value,
                key.policy_name_before,
                key.policy_name_after,
                each.count,
                rfc3339(each.first),
                rfc3339(each.last),
                each.example_event_ids,
            )
            for key, each in ordered
        ]

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "DecisionGroups":
        """The reverse of `to_wire`."""
        groups = {
            GroupKey(role, source, Direction(direction), before, after): Group(*counted)
            for role, source, direction, before, after, *counted in wire["groups"]
        }
        left_out = {Direction(name): count for name, count in wire["left_out"].items()}
        return cls(groups, left_out)
