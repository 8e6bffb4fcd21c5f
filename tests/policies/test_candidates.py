"""Candidates: exactly those whose decision differs are named, and the answer never changes."""

import itertools
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.candidates import CandidateDecision, differences
from policies.checks.finding import Facts
from policies.definitions.model import Candidate, Policy, TenantSettings
from policies.evaluate import Decision, evaluate, evaluate_admitted
from policies.ground.canonical import encode
from policies.retrieval import Retrieval
from policies.sets.policy_set import (
    PolicySet,
    candidate_documents,
    role_document,
    tenant_document,
)
from policies.sets.role import compile_role
from policies.trail.record import MAX_ENTRY, decision_record
from policies.trail.record_schema import pub_fault
from tests.policies.candidates import TOMORROW, with_candidates
from tests.policies.strategies import policies, situations
from tests.policies.table_situations import table_situations
from tests.policies.world import DIFFERING, FACTS, POLICY, RETRIEVAL, diverging, full_facts

CLOSED = replace(POLICY, name="closed", allowed_sources=())
OPEN = replace(POLICY, name="open", allowed_sources=("*",), denied_sources=())
Situation = tuple[Retrieval, Facts, list[Policy]]


@pytest.mark.deep(stands_in="test_differences_in_the_tables_are_those_that_the_core_finds")
@given(situations(), policies("r"), policies("r"))
def test_differences_are_those_that_the_core_finds(
    situation: Situation, one: list[Policy], other: list[Policy]
) -> None:
    check_differences(situation, one, other)


def test_differences_in_the_tables_are_those_that_the_core_finds() -> None:
    for situation, (_, _, other) in itertools.pairwise(table_situations()):
        check_differences(situation, [], other)
        check_differences(situation, [OPEN, CLOSED], [CLOSED])


def check_differences(situation: Situation, one: list[Policy], other: list[Policy]) -> None:
    """Hold what is found against a decision by each candidate's own policies."""
    call, facts, active = situation
    facts = facts._replace(revision=max(facts.revision, 5))
    sets = {Candidate("one", 2): one, TOMORROW: other, Candidate("z", 1): active}
    mine = {
        candidate: [replace(policy, agent_role=call.agent_role) for policy in each]
        for candidate, each in sets.items()
    }
    policy_set, facts = with_candidates(facts, active, mine, call.agent_role)
    decision = evaluate(call, facts)
    expected = []
    for candidate, each in mine.items():
        role = compile_role(call.agent_role, each) if each else None
        told = evaluate(call, facts._replace(role=role))
        if told.decision != decision.decision:
            expected.append((*candidate, told.decision, told.policy_name, told.check))
    assert differences(policy_set, call, facts, decision) == expected


@pytest.mark.deep(stands_in="test_a_remembered_answer_of_the_tables_is_that_of_the_same_call")
@given(st.lists(situations(), min_size=2, max_size=6), policies("r"))
def test_a_remembered_answer_is_that_of_the_same_call(
    calls: list[Situation], other: list[Policy]
) -> None:
    check_remembered(calls, other)


def test_a_remembered_answer_of_the_tables_is_that_of_the_same_call() -> None:
    calls = list(table_situations())
    for other in ([], [OPEN], *(own for _, _, own in calls[::8])):
        check_remembered(calls[:64], other)


def check_remembered(calls: list[Situation], other: list[Policy]) -> None:
    """Ask each twice, and others in between."""
    mine = [replace(policy, agent_role="r") for policy in other]
    role = compile_role("r", mine) if mine else None
    asked = [call._replace(agent_role="r") for call, _, _ in calls]
    known = PolicySet({"candidate/x/r": role_document(mine)}.get)
    for call in (*asked, *reversed(asked)):
        settings = TenantSettings("t", candidates=(Candidate("x", 1),))
        facts = FACTS._replace(settings=settings, role=None, revision=1, agent=None)
        told = evaluate_admitted(call, role)
        allow = Decision("ALLOW", "p", "", None, None, None, ())
        expected = [] if told.decision == "ALLOW" or role is None else [("x", 1, *told)]
        assert differences(known, call, facts, allow) == expected


def test_a_candidate_s_answer_depends_on_each_part_of_the_question() -> None:
    """One set, asked for one thing after the other and once more, remembers each answer apart."""
    narrow = replace(
        POLICY,
        name="narrow",
        allowed_sources=("contracts",),
        denied_sources=(),
        allowed_tasks=("review",),
        max_sensitivity="medium",
        permitted_agent_ids=("agt_1",),
    )
    known = PolicySet({f"candidate/x/{POLICY.agent_role}": role_document([narrow])}.get)
    settings = TenantSettings("t", candidates=(Candidate("x", 1),))
    facts = FACTS._replace(settings=settings, role=None, revision=1)
    allow = Decision("ALLOW", "p", "", None, None, None, ())
    call = RETRIEVAL._replace(
        agent_role=POLICY.agent_role,
        source_id="contracts",
        task_type="review",
        sensitivity_level="low",
        agent_id="agt_1",
    )
    denied = [
        call._replace(source_id="payroll"),
        call._replace(task_type="export"),
        call._replace(sensitivity_level="high"),
        call._replace(agent_id="agt_2"),
    ]
    for _ in range(2):
        for other in denied:
            assert differences(known, call, facts, allow) == []
            [found] = differences(known, other, facts, allow)
            assert (found.decision, found.policy_name) == ("DENY", "narrow"), other


@given(situations())
def test_the_record_s_facts_and_response_do_not_depend_on_candidates(situation: Situation) -> None:
    call, facts, active = situation
    facts = facts._replace(revision=max(facts.revision, 5))
    told = []
    for candidates in ({}, {TOMORROW: [CLOSED], Candidate("z", 1): [OPEN]}):
        policy_set, now = with_candidates(facts, active, candidates, call.agent_role)
        decision = evaluate(call, now)
        differing = differences(policy_set, call, now, decision)
        record = decision_record(
            call, decision, now, event_id="e", salt=bytes(32), candidates=differing
        )
        pub = orjson.loads(record.pub)
        assert encode(pub) == record.pub
        assert pub_fault("decision", pub) is None
        named = pub.pop("candidates", [])
        assert list(map(CandidateDecision.from_wire, named)) == differing
        told.append((decision, pub))
    assert told[0] == told[1]


@pytest.mark.parametrize("frozen_at", [None, 1])
def test_a_denial_that_no_policy_decides_is_not_a_difference(frozen_at: int | None) -> None:
    settings = replace(FACTS.settings, require_agent_id=frozen_at is None, frozen_at=frozen_at)
    facts = FACTS._replace(settings=settings)
    policy_set, facts = with_candidates(facts, [POLICY], {TOMORROW: []}, "analyst")
    decision = evaluate(RETRIEVAL, facts)
    assert decision.decision == "DENY"
    assert differences(policy_set, RETRIEVAL, facts, decision) == []


def test_an_unreadable_candidate_is_an_error() -> None:
    policy_set, facts = with_candidates(FACTS, [POLICY], {TOMORROW: [POLICY]}, "analyst")
    broken: list[bytes | Exception] = [b"{", b"[]", b'[{"name":1}]', OSError("the disk")]
    decision = evaluate(RETRIEVAL, facts)
    for fault in broken:

        def fetch(name: str, fault: bytes | Exception = fault) -> bytes:
            if isinstance(fault, Exception):
                raise fault
            return fault

        failed = CandidateDecision(*TOMORROW, "ERROR", "evaluation_error", None)
        assert differences(PolicySet(fetch), RETRIEVAL, facts, decision) == [failed]
    assert differences(policy_set, RETRIEVAL, facts, decision) == []


def test_a_candidate_of_a_later_revision_is_not_evaluated_yet() -> None:
    policy_set, facts = with_candidates(FACTS, [POLICY], {Candidate("x", 8): []}, "analyst")
    decision = evaluate(RETRIEVAL, facts)
    assert differences(policy_set, RETRIEVAL, facts, decision) == []
    now = facts._replace(revision=8)
    assert [each.name for each in differences(policy_set, RETRIEVAL, now, decision)] == ["x"]


@pytest.mark.parametrize("frozen_at", [None, 1])
def test_the_tenants_document_lists_candidates_only_if_there_are_any(frozen_at: int | None) -> None:
    without = TenantSettings("acme", frozen_at=frozen_at)
    assert b"candidates" not in tenant_document(without)
    listed = replace(without, candidates=(TOMORROW,))
    wire = orjson.loads(tenant_document(listed))
    assert wire.pop("candidates") == [{"name": "tomorrow", "revision": 5}]
    assert encode(wire) == tenant_document(without)
    assert TenantSettings.from_wire(orjson.loads(tenant_document(listed))) == listed
    assert candidate_documents(listed, RETRIEVAL) == ["candidate/tomorrow/analyst"]


@pytest.mark.parametrize(
    "unknown",
    [
        None,
        {},
        "x",
        [1],
        [{}],
        [{"name": "x", "revision": True}],
        [{"name": "", "revision": 1}],
        [{"name": "x" * 257, "revision": 1}],
    ],
)
def test_candidates_in_an_unknown_form_change_no_decision(unknown: object) -> None:
    settings = TenantSettings("acme")
    assert TenantSettings.from_wire({**settings.to_wire(), "candidates": unknown}) == settings


def test_no_more_candidates_than_an_entry_may_name_are_evaluated() -> None:
    listed = [{"name": f"c{at}", "revision": at} for at in range(9)]
    settings = TenantSettings.from_wire({**TenantSettings("acme").to_wire(), "candidates": listed})
    assert [each.name for each in settings.candidates] == ["c0", "c1", "c2"]


def test_an_entry_too_full_for_its_candidates_is_recorded_without_them() -> None:
    roles = tuple(f"role-{at:04}" for at in range(5100))
    facts, agent = full_facts(), full_facts().agent
    assert agent is not None

    def record(many: int, candidates: tuple[CandidateDecision, ...]) -> bytes:
        now = facts._replace(agent=replace(agent, permitted_roles=roles[:many]))
        made = decision_record(
            RETRIEVAL, evaluate(RETRIEVAL, now), now, event_id="e", salt=bytes(32),
            candidates=candidates,
        )  # fmt: skip
        return made.pub

    assert b'"candidates"' in record(100, DIFFERING)
    room = MAX_ENTRY - 4096 - 150 - len(record(100, ()))
    most = 100 + room // len('"role-0000",')
    assert record(most, DIFFERING) == record(most, ())


@pytest.mark.parametrize(
    "item",
    [
        {"name": ""},
        {"revision": True},
        {"revision": "1"},
        {"decision": "MAYBE"},
        {"policy_name": None},
        {"check": 1},
    ],
)
def test_a_record_with_a_malformed_candidate_is_refused(item: dict[str, object]) -> None:
    pub = orjson.loads(diverging(0).pub)
    assert pub_fault("decision", pub) is None
    pub["candidates"][0] |= item
    assert pub_fault("decision", pub) == "`pub.candidates` is missing or has the wrong type"


@pytest.mark.parametrize("value", [{}, [], "x", [1], [{"name": "x"}] * 4])
def test_a_record_with_malformed_candidates_is_refused(value: object) -> None:
    pub = orjson.loads(diverging(0).pub) | {"candidates": value}
    assert pub_fault("decision", pub) == "`pub.candidates` is missing or has the wrong type"
