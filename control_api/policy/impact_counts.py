"""Counts how recorded decisions would differ under other policies (`TOOLS.md`, Impact), groups the
differences, deletes runs that ended long ago, and defines the request and the responses.

An impact run keeps the first `MAX_GROUPS` groups in order of appearance, each with the ids of its
first `MAX_EXAMPLES` decisions; `left_out` counts the decisions of all further groups, by direction.
The same decisions in the same order always give the same result, also if the counts are saved and
restored in between (`to_wire`, `from_wire`).

Each decision counts in exactly one of `unchanged`, `newly_denied`, `newly_allowed` and
`unreplayable`. A decision that stays the same but would come from another policy is unchanged, and
also grouped in `renamed`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import orjson

from control_api.audit.event_requests import EndOfEntries, FirstEntry
from control_api.edge.field_descriptions import says
from control_api.policy import impact_queries
from control_api.policy.models import UNSTORED, PolicyBody, PolicySet, PolicySetBody
from control_api.store.counters.counters import DAY
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.canonical import encode, micros, parse_object, rfc3339
from policies.trail.entry import time_of
from policies.trail.recompute.replay import Replayed, Why


class ImpactRequest(PolicySetBody):
    """All policies that would be in force, and the part of the log to decide again."""

    example: ClassVar[dict[str, Any]] = {
        "policies": [PolicyBody.example],
        "from": "2026-01-24T12:00:00Z",
    }

    policies: Annotated[PolicySet, says("All policies that would be in force, without ids.")]
    first: FirstEntry = None
    until: EndOfEntries = None


class PreparedRun(NamedTuple):
    """A request that starts an impact run, decoded and validated: the bounds of the part of the
    log, and the policies as JSON, as a run stores and reads them."""

    first: str | None
    until: str | None
    policies: bytes


def prepare(body: bytes, in_force: bytes) -> bytes:
    """Decode and validate a request that starts an impact run, and encode it for `read_prepared`.
    `in_force` is the JSON array of the documents of all roles. Raise `Malformed` if the body can't
    be parsed, and `Invalid` with all complaints if it is not valid."""
    request = ImpactRequest.read(parse_object(body, None, unique=True))
    policies = [each | UNSTORED for each in request.bodies(in_force)]
    return b"\n".join((orjson.dumps([request.first, request.until]), encode(policies)))


def read_prepared(prepared: bytes) -> PreparedRun:
    """Decode what `prepare` encoded. The policies, which may be large, stay JSON bytes."""
    line, _, policies = prepared.partition(b"\n")
    first, until = orjson.loads(line)
    return PreparedRun(first, until, policies)


_NOW = "2026-01-31T12:00:00.000000Z"
_ID = "imp_3nB7xGvQ2mT5kWc8LpR0aZ"
_EVENT = "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d"


@dataclass(frozen=True, slots=True)
class ImpactStarted:
    """A run that was started."""

    impact_id: str

    example: ClassVar[dict[str, Any]] = {"impact_id": _ID}


@dataclass(frozen=True, slots=True)
class DecisionGroup:
    """Decisions that other policies would make differently, of one role on one source. `error` is
    of candidates alone: they could not decide."""

    agent_role: str
    source_id: str
    direction: Annotated[
        Literal["newly_denied", "newly_allowed", "unchanged", "error"],
        says("What changes. `unchanged` is the same decision by another policy."),
    ]
    policy_name_before: Annotated[str, says("The policy, or the check, that decided.")]
    policy_name_after: Annotated[str, says("The policy, or the check, that would decide.")]
    count: Annotated[int, says("The decisions of the group.")]
    first: Annotated[str, says("When the earliest was made (RFC 3339, UTC).")]
    last: Annotated[str, says("When the latest was made (RFC 3339, UTC).")]
    example_event_ids: Annotated[
        list[str], says("The events of the group's first decisions, at most five.")
    ]

    example: ClassVar[dict[str, Any]] = {
        "agent_role": "loan_underwriter",
        "source_id": "contracts",
        "direction": "newly_denied",
        "policy_name_before": "underwriting-reads",
        "policy_name_after": "underwriting-reads",
        "count": 214,
        "first": "2026-01-24T12:00:03.123456Z",
        "last": _NOW,
        "example_event_ids": [_EVENT],
    }


DecisionCount = Annotated[int, says("How many decisions.")]


@dataclass(frozen=True, slots=True)
class Unreplayable:
    """Decisions that can't be made again from their entries, and the reason."""

    why: Annotated[
        Literal["no_facts", "unknown_check", "unknown_level", "masked", "unreadable"],
        says(
            "What the entry lacks. `no_facts`: it was made outside of the ten checks, as with a "
            "stale policy set. `masked`: a field that policies ask about is masked."
        ),
    ]
    count: DecisionCount

    example: ClassVar[dict[str, Any]] = {"why": "no_facts", "count": 3}


@dataclass(frozen=True, slots=True)
class Renamed:
    """Decisions that stay the same, and would be another policy's. `left_out` counts those whose
    group is past the limit."""

    count: DecisionCount
    groups: list[DecisionGroup]
    left_out: int

    example: ClassVar[dict[str, Any]] = {"count": 0, "groups": [], "left_out": 0}


@dataclass(frozen=True, slots=True)
class ImpactResponse:
    """The decisions that other policies would have made, as far as the run has come. The entries
    read are `from` up to `to`, exclusive. Each decision `read` counts in exactly one of
    `unchanged`, `newly_denied`, `newly_allowed` and `unreplayable`."""

    impact_id: str
    state: Annotated[
        Literal["running", "done", "cancelled", "failed"],
        says("Whether the run goes on, or how it ended."),
    ]
    reason: Annotated[str | None, says("Why the run failed. `null` unless it did.")]
    progress: Annotated[float, says("How much of the part has been read, from 0 to 1.")]
    first_seq: Annotated[int, says("The first entry of the part.")]
    until_seq: Annotated[int, says("The first entry that is left out.")]
    entries: Annotated[int, says("Entries of every kind that were read.")]
    read: Annotated[
        int, says("Decisions that were read: unchanged, changed and unreplayable together.")
    ]
    unchanged: Annotated[int, says("Decisions that stay the same, by whichever policy.")]
    newly_denied: int
    newly_allowed: int
    groups: list[DecisionGroup]
    left_out: int
    renamed: Annotated[Renamed, says("Unchanged decisions that another policy would make.")]
    unreplayable: Annotated[
        list[Unreplayable], says("Decisions that can't be made again, by the reason.")
    ]
    checkpoint_size: Annotated[
        int | None,
        says(
            "The size of the signed checkpoint that proves what was read. `null` until the run is "
            "done."
        ),
    ]
    created_at: str
    ended_at: Annotated[
        str | None, says("When the run ended (RFC 3339, UTC). `null` while it goes on.")
    ]

    example: ClassVar[dict[str, Any]] = {
        "impact_id": _ID,
        "state": "done",
        "reason": None,
        "progress": 1.0,
        "first_seq": 120,
        "until_seq": 1019,
        "entries": 899,
        "read": 880,
        "unchanged": 663,
        "newly_denied": 214,
        "newly_allowed": 0,
        "groups": [DecisionGroup.example],
        "left_out": 0,
        "renamed": Renamed.example,
        "unreplayable": [Unreplayable.example],
        "checkpoint_size": 1024,
        "created_at": _NOW,
        "ended_at": _NOW,
    }


MAX_GROUPS = 1000
MAX_EXAMPLES = 5


class Direction(StrEnum):
    """The direction in which other policies would change a decision. `unchanged` means the same
    decision, but by a policy of another name."""

    newly_denied = "newly_denied"
    newly_allowed = "newly_allowed"
    unchanged = "unchanged"


class GroupKey(NamedTuple):
    """The fields that all decisions of a group share. `policy_name_before` is the policy name in
    the recorded decision, and `policy_name_after` the name under the other policies. It may be the
    name of a check instead, such as `default_deny`."""

    agent_role: str
    source_id: str
    direction: Direction
    policy_name_before: str
    policy_name_after: str


@dataclass(slots=True)
class Group:
    """The count of decisions with the same `GroupKey`. `first` and `last` are the times of the
    earliest and the latest of them, in microseconds since 1970 UTC."""

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
    """Counts decisions by group. `left_out` counts, by direction, the decisions for which there was
    no room for another group."""

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
        """Return the groups as JSON values, in the order in which they appeared."""
        groups = [
            [*key, each.count, each.first, each.last, each.example_event_ids]
            for key, each in self.groups.items()
        ]
        left_out = {direction.value: count for direction, count in self.left_out.items()}
        return {"groups": groups, "left_out": left_out}

    def shown(self) -> list[DecisionGroup]:
        """Return the groups as a response shows them, the largest first."""
        ordered = sorted(self.groups.items(), key=lambda item: -item[1].count)
        return [
            DecisionGroup(
                *key._replace(direction=key.direction.value),  # type: ignore[arg-type]
                *(each.count, rfc3339(each.first), rfc3339(each.last), each.example_event_ids),
            )
            for key, each in ordered
        ]

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "DecisionGroups":
        """Restore the groups from the result of `to_wire`."""
        groups = {
            GroupKey(role, source, Direction(direction), before, after): Group(*counted)
            for role, source, direction, before, after, *counted in wire["groups"]
        }
        left_out = {Direction(name): count for name, count in wire["left_out"].items()}
        return cls(groups, left_out)


@dataclass(slots=True)
class ImpactCounts:
    """The counts of one impact run so far. `entries` counts log entries of every kind, `read` the
    decisions among them, and `unchanged_by_another` the unchanged decisions that would come from
    another policy."""

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
        """Count the decision of one log entry. `replayed` compares it with the decision of the
        other policies, or is the reason why it can't be replayed."""
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
        """Return the counts as JSON values. A run that is resumed restores them with
        `from_wire`."""
        return {
            **{name: getattr(self, name) for name in _NUMBERS},
            "unreplayable": {why.value: count for why, count in self.unreplayable.items()},
            "groups": self.groups.to_wire(),
            "renamed": self.renamed.to_wire(),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "ImpactCounts":
        """Restore the counts from the result of `to_wire`."""
        return cls(
            **{name: wire[name] for name in _NUMBERS},
            unreplayable={Why(name): count for name, count in wire["unreplayable"].items()},
            groups=DecisionGroups.from_wire(wire["groups"]),
            renamed=DecisionGroups.from_wire(wire["renamed"]),
        )


_NUMBERS = ("entries", "read", "unchanged", "unchanged_by_another", "newly_denied", "newly_allowed")


KEPT = 7 * DAY
"""The microseconds for which an impact run is kept after it ended."""
MOST = 50
"""The most ended runs that are kept for one tenant: each may hold a megabyte of groups."""


async def forget_ended(tx: Transaction) -> int:
    """Delete the tenant's runs that ended more than `KEPT` ago, and all but its `MOST` newest ended
    ones. Return the number of deleted runs."""
    return await impact_queries.forget(tx.connection, tx.tenant_id, tx.now - KEPT, MOST)


async def forget_ended_runs(store: Store, tenant_id: str) -> int:
    """Call `forget_ended` in a transaction of its own, for the hourly retention job. Raise
    `Unavailable` if the database fails."""
    return await store.write(tenant_id, forget_ended)
