"""Groups of decisions that other policies would make differently: counted exactly, and bounded."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from control_api.policy.impact_counts import (
    MAX_EXAMPLES,
    MAX_GROUPS,
    DecisionGroups,
    Direction,
    GroupKey,
)

KEY = GroupKey("support", "handbook", Direction.newly_denied, "reads", "default_deny")


def test_a_group_counts_its_decisions_and_keeps_the_first_examples() -> None:
    groups = DecisionGroups()
    for number, decided_at in enumerate((50, 20, 90, 70, 60, 80, 30)):
        groups.add(KEY, decided_at, f"event-{number}")
    group = groups.groups[KEY]
    assert (group.count, group.first, group.last) == (7, 20, 90)
    assert group.example_event_ids == [f"event-{number}" for number in range(MAX_EXAMPLES)]
    assert groups.left_out == {}


def test_groups_past_the_bound_are_counted_by_direction() -> None:
    groups = DecisionGroups()
    for number in range(MAX_GROUPS + 3):
        groups.add(KEY._replace(source_id=f"source-{number}"), number, f"event-{number}")
    allowed = KEY._replace(direction=Direction.newly_allowed)
    groups.add(allowed, 1, "event-x")
    groups.add(KEY._replace(source_id="source-0"), 5, "event-y")
    assert len(groups.groups) == MAX_GROUPS
    assert groups.left_out == {Direction.newly_denied: 3, Direction.newly_allowed: 1}
    assert groups.groups[KEY._replace(source_id="source-0")].count == 2
    assert DecisionGroups.from_wire(orjson.loads(orjson.dumps(groups.to_wire()))) == groups


_KEYS = st.builds(
    GroupKey,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["x", "y"]),
    st.sampled_from(Direction),
    st.sampled_from(["p", "q"]),
    st.sampled_from(["p", "q"]),
)
_DECISIONS = st.lists(st.tuples(_KEYS, st.integers(0, 2**53), st.text(max_size=5)), max_size=40)


@given(_DECISIONS, st.integers(0, 40))
def test_a_stored_count_continues_as_if_it_had_not_been_stored(
    decisions: list[tuple[GroupKey, int, str]], cut: int
) -> None:
    whole, part = DecisionGroups(), DecisionGroups()
    for each in decisions:
        whole.add(*each)
    for each in decisions[:cut]:
        part.add(*each)
    part = DecisionGroups.from_wire(orjson.loads(orjson.dumps(part.to_wire())))
    for each in decisions[cut:]:
        part.add(*each)
    assert part == whole
    assert list(part.groups) == list(whole.groups)
    counted = sum(each.count for each in whole.groups.values())
    assert counted + sum(whole.left_out.values()) == len(decisions)
