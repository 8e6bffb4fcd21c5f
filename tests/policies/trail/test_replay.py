"""Recorded decisions made again by other policies: as the core decides with the facts that each
entry holds, and counted apart where those don't suffice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.checks.finding import Facts
from policies.checks.order import NAMES
from policies.definitions.model import Agent, Key, Policy, Sensitivity, TenantSettings
from policies.evaluate import Decision, evaluate, refuse
from policies.ground.canonical import encode, rfc3339
from policies.retrieval import Retrieval
from policies.sets.role import Role, compile_role
from policies.trail.recompute.facts import read_facts
from policies.trail.recompute.replay import Replay, Replayed, Why
from policies.trail.record import REPORT_PREFIX, decision_record
from tests.policies.strategies import policies, situations
from tests.policies.world import FACTS, FULL, POLICY, RETRIEVAL, START, decided, full_facts, salt


def entry_of(retrieval: Retrieval, decision: Decision, facts: Facts | None) -> dict[str, Any]:
    record = decision_record(retrieval, decision, facts, event_id="event-1", salt=salt(1))
    found: dict[str, Any] = orjson.loads(record.entry("log", 0, "", rfc3339(START)))
    return found


def by_hand(entry: dict[str, Any], roles: dict[str, Role]) -> tuple[str, str]:
    """All ten checks, by the facts that the entry holds and other policies."""
    recorded = read_facts(entry)
    role = roles.get(recorded.retrieval.agent_role)
    decision = evaluate(recorded.retrieval, recorded.facts(role))
    return decision.decision, decision.policy_name


@pytest.mark.deep(stands_in="test_other_policies_decide_like_the_core_whatever_they_depend_on")
@given(situations(), st.one_of(policies("r"), policies("R"), policies("s")))
def test_a_decision_is_replayed_as_the_core_decides_by_its_facts(
    situation: tuple[Retrieval, Facts, list[Policy]], others: list[Policy]
) -> None:
    retrieval, facts, _ = situation
    entry = entry_of(retrieval, evaluate(retrieval, facts), facts)
    roles = {others[0].agent_role: compile_role(others[0].agent_role, others)} if others else {}
    replayed = Replay(others).decide(entry)
    assert isinstance(replayed, Replayed)
    assert (replayed.after, replayed.policy_name_after) == by_hand(entry, roles)
    response = entry["pub"]["response"]
    assert (replayed.before, replayed.policy_name_before) == (
        response["decision"],
        response["policy_name"],
    )
    assert (replayed.agent_role, replayed.source_id) == (retrieval.agent_role, retrieval.source_id)


@pytest.mark.deep(stands_in="test_the_same_policies_change_no_decision_whatever_they_depend_on")
@given(situations())
def test_the_same_policies_change_nothing(
    situation: tuple[Retrieval, Facts, list[Policy]],
) -> None:
    retrieval, facts, own = situation
    replayed = Replay(own).decide(entry_of(retrieval, evaluate(retrieval, facts), facts))
    assert isinstance(replayed, Replayed)
    assert replayed.same


WIDE = Policy("", 0, "wide", "analyst", ("*",), (), "critical")
DENY_ALL: list[Policy] = []


def replayed(entry: dict[str, Any], *others: Policy) -> tuple[str, str, str, str]:
    found = Replay(others).decide(entry)
    assert isinstance(found, Replayed), found
    return found[2:]


_AGENTS = Policy("", 0, "agents", "analyst", ("a*",), (), "low", permitted_agent_ids=("agt_a",))
_TASKS = Policy("", 0, "tasks", "analyst", ("b*",), ("bx",), "low", ("report",), ("audit",))
OWN = {"analyst": (_AGENTS, _TASKS), "other": (replace(_AGENTS, agent_role="other"),)}
"""By them, each check that policies decide fails for some questions, and some are allowed."""
ROLES = {name: compile_role(name, its) for name, its in OWN.items()}


def questions() -> Iterator[tuple[dict[str, Any], Decision]]:
    """The entry of each of a few requests that differ in all that policies ask about, and what was
    decided by `OWN`."""
    levels: tuple[Sensitivity, ...] = ("low", "high")
    every = itertools.product(
        ("analyst", "other", "third"), ("agt_a", "agt_b"), ("report", "audit", None),
        ("a", "b", "bx"), levels,
    )  # fmt: skip
    for role, agent_id, task, source, level in every:
        asked = RETRIEVAL._replace(
            agent_role=role, agent_id=agent_id, task_type=task, source_id=source,
            sensitivity_level=level,
        )  # fmt: skip
        agent = Agent(agent_id, "approved", ("analyst", "other", "third"), None)
        facts = FACTS._replace(agent=agent, role=ROLES.get(role))
        decision = evaluate(asked, facts)
        yield entry_of(asked, decision, facts), decision


def test_the_same_policies_change_no_decision_whatever_they_depend_on() -> None:
    replay, seen = Replay(itertools.chain(*OWN.values())), set()
    for entry, decision in questions():
        again = replay.decide(entry)
        assert isinstance(again, Replayed)
        assert again.same, again
        seen.add((decision.decision, decision.check))
    by_policies = NAMES[NAMES.index("policy_exists") :]
    assert seen == {("ALLOW", None), *(("DENY", check) for check in by_policies)}


def test_other_policies_decide_like_the_core_whatever_they_depend_on() -> None:
    # What one role had is now another's.
    others = {
        name: tuple(replace(each, agent_role=name) for each in its)
        for name, its in zip(("other", "third"), OWN.values(), strict=True)
    }
    roles = {name: compile_role(name, its) for name, its in others.items()}
    replay, changes = Replay(itertools.chain(*others.values())), set()
    for entry, decision in questions():
        again = replay.decide(entry)
        assert isinstance(again, Replayed)
        request = entry["pub"]["request"]
        assert (again.agent_role, again.source_id) == (request["agent_role"], request["source_id"])
        assert (again.before, again.policy_name_before) == decision[:2]
        assert (again.after, again.policy_name_after) == by_hand(entry, roles)
        changes.add((again.before, again.after))
    assert changes == set(itertools.product(("ALLOW", "DENY"), repeat=2))


def test_a_decision_denied_by_identity_stays_denied() -> None:
    unknown = RETRIEVAL._replace(agent_id="agt_x")
    entry = entry_of(unknown, evaluate(unknown, FACTS), FACTS)
    assert replayed(entry, WIDE) == ("DENY", "agent_not_registered") * 2


def test_a_decision_in_a_frozen_tenant_stays_denied() -> None:
    facts = FACTS._replace(settings=TenantSettings("default", frozen_at=START))
    entry = entry_of(RETRIEVAL, evaluate(RETRIEVAL, facts), facts)
    assert replayed(entry, WIDE) == ("DENY", "tenant_frozen") * 2


def test_a_decision_of_a_policy_is_made_again_by_the_other_policies() -> None:
    allowed = orjson.loads(decided().entry("log", 0, "", rfc3339(START)))
    assert replayed(allowed, WIDE) == ("ALLOW", "reads", "ALLOW", "wide")
    assert replayed(allowed) == ("ALLOW", "reads", "DENY", "default_deny")
    denied = entry_of(*_denied())
    assert replayed(denied, WIDE) == ("DENY", "reads", "ALLOW", "wide")
    assert replayed(denied, POLICY) == ("DENY", "reads") * 2


def _denied() -> tuple[Retrieval, Decision, Facts]:
    asked = RETRIEVAL._replace(source_id="payroll")
    return asked, evaluate(asked, FACTS), FACTS


def test_masked_and_erased_persons_hide_nothing_that_policies_depend_on() -> None:
    facts = FACTS._replace(settings=TenantSettings("default", pii_masking=True))
    asked = RETRIEVAL._replace(query="mail bob@example.com")
    entry = entry_of(asked, evaluate(asked, facts), facts)
    assert entry["masked"]
    assert replayed(entry) == ("ALLOW", "reads", "DENY", "default_deny")


def test_a_denial_that_was_only_reported_counts_as_denied() -> None:
    entry = entry_of(*_denied())
    entry["pub"]["response"]["reason"] = REPORT_PREFIX + entry["pub"]["response"]["reason"]
    assert replayed(entry, WIDE)[0] == "DENY"


def changed(**members: Any) -> dict[str, Any]:
    """An entry of an allowed decision, with other members of `pub`, or `masked`."""
    entry = orjson.loads(decided(FULL, full_facts()).entry("log", 0, "", rfc3339(START)))
    for name, value in members.items():
        if name == "masked":
            entry["masked"] = value
        else:
            entry["pub"][name] = entry["pub"][name] | value if value else value
    assert encode(entry)
    found: dict[str, Any] = entry
    return found


DENIED = {"decision": "DENY", "policy_name": "x", "check": None}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (entry_of(RETRIEVAL, refuse("policy_set_stale", "no news"), None), Why.no_facts),
        (changed(facts={}), Why.no_facts),
        (changed(response=DENIED | {"check": "astrology"}), Why.unknown_check),
        (changed(response=DENIED), Why.unknown_check),
        (changed(request={"sensitivity_level": "secret"}), Why.unknown_level),
        (changed(masked=[["request.source_id", "EMAIL"]]), Why.masked),
        (changed(masked=[["user_id", "EMAIL"], ["task_type", "NAME"]]), Why.masked),
        (changed(request={"agent_role": None}), Why.unreadable),
        (changed(request={"source_id": ["a"]}), Why.unreadable),
        (changed(request={"task_type": 3}), Why.unreadable),
        (changed(response={"decision": "PERHAPS"}), Why.unreadable),
        (changed(request={}), Why.unreadable),
        (changed(masked=["user_id"]), Why.unreadable),
        ({"kind": "decision", "masked": []}, Why.unreadable),
        ({"kind": "decision", "pub": [], "masked": []}, Why.unreadable),
    ],
)
def test_an_incomplete_entry_is_reported_and_not_guessed(entry: dict[str, Any], why: Why) -> None:
    assert Replay([WIDE]).decide(entry) is why
    assert Replay(DENY_ALL).decide(entry) is why


def test_a_memory_that_is_full_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policies.trail.recompute.replay.MAX_KNOWN", 3)
    asked = [
        RETRIEVAL._replace(source_id=source, task_type=task)
        for source, task in itertools.product(("contracts", "payroll", "x"), ("report", None))
    ]
    replay, role = Replay([WIDE]), {"analyst": compile_role("analyst", [WIDE])}
    for each in asked * 2:
        entry = entry_of(each, evaluate(each, FACTS), FACTS)
        found = replay.decide(entry)
        assert isinstance(found, Replayed)
        assert found[4:] == by_hand(entry, role)


def test_another_key_or_session_changes_nothing_that_policies_decide() -> None:
    """Requests that differ only in what policies don't ask about share one answer."""
    replay = Replay([WIDE])
    for key in (Key("key_1", "evaluate"), Key("key_2", "admin", None, ("analyst",))):
        for session in (None, "s_1"):
            facts, asked = FACTS._replace(key=key), RETRIEVAL._replace(session_id=session)
            entry = entry_of(asked, evaluate(asked, facts), facts)
            found = replay.decide(entry)
            assert isinstance(found, Replayed)
            assert found[4:] == by_hand(entry, {"analyst": compile_role("analyst", [WIDE])})
