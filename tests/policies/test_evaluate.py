"""Evaluation on arbitrary calls: total, pure, and as `CONTRACT.md` says."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.checks.finding import CheckOutcome, Facts
from policies.checks.order import CHECKS, NAMES
from policies.definitions.model import Key, Policy, TenantSettings
from policies.evaluate import TENANT_FROZEN, admitted, evaluate, gather, refuse
from policies.retrieval import Retrieval
from policies.sets.policy_set import PolicySet, agent_document, role_document, tenant_document
from policies.sets.role import compile_role
from tests.policies import naive
from tests.policies.strategies import RETRIEVALS, policies, situations
from tests.policies.world import FACTS, POLICY, RETRIEVAL

Situation = tuple[Retrieval, Facts, list[Policy]]


@given(situations())
def test_each_answer_is_that_of_the_contract(situation: Situation) -> None:
    call, facts, found = situation
    decision = evaluate(call, facts)
    told = naive.answer(call, facts, found)
    assert (decision.decision, decision.policy_name, decision.check) == told
    assert evaluate(call, facts) == decision  # the same question has the same answer


@pytest.mark.deep(stands_in="test_each_answer_is_that_of_the_contract")
@given(situations())
def test_the_same_question_has_the_same_answer(situation: Situation) -> None:
    call, facts, _ = situation
    assert evaluate(call, facts) == evaluate(call, facts)


@pytest.mark.deep(
    stands_in="tests/policies/test_tables.py::test_each_row_of_the_tables_is_decided_and_recorded_as_it_states"
)
@given(situations())
def test_an_answer_carries_ten_findings_in_order(situation: Situation) -> None:
    decision = evaluate(situation[0], situation[1])
    outcomes = [finding.outcome for finding in decision.findings]
    assert len(outcomes) == len(CHECKS) == 10
    reached = [outcome for outcome in outcomes if outcome is not CheckOutcome.not_reached]
    assert outcomes[: len(reached)] == reached
    if situation[1].settings.frozen_at is not None:
        assert (decision.policy_name, decision.check, reached) == (TENANT_FROZEN, None, [])
        return
    failures = [at for at, outcome in enumerate(outcomes) if outcome is CheckOutcome.failed]
    if decision.decision == "ALLOW":
        assert failures == []
        assert len(reached) == 10
    else:
        assert failures == [len(reached) - 1]
        assert decision.check == NAMES[failures[0]]


@pytest.mark.deep(
    stands_in="tests/policies/test_tables.py::test_each_row_of_the_tables_is_decided_and_recorded_as_it_states"
)
@given(situations())
def test_a_call_is_admitted_where_none_of_the_first_four_checks_fails(situation: Situation) -> None:
    call, facts, _ = situation
    decision = evaluate(call, facts)
    frozen = facts.settings.frozen_at is not None
    assert admitted(call, facts) == (decision.check not in NAMES[:4] and not frozen)


@pytest.mark.deep(
    stands_in="tests/policies/test_tables.py::test_each_row_of_the_tables_is_decided_and_recorded_as_it_states"
)
@given(situations())
def test_the_policy_that_decides_is_cited(situation: Situation) -> None:
    call, facts, found = situation
    decision = evaluate(call, facts)
    if decision.check in NAMES[:6] or decision.policy_name == TENANT_FROZEN:
        assert (decision.policy_id, decision.policy_version) == (None, None)
    else:
        (named,) = (policy for policy in found if policy.name == decision.policy_name)
        assert (decision.policy_id, decision.policy_version) == (named.policy_id, named.version)


@pytest.mark.parametrize("lists", [{}, {"denied_sources": ("contracts",)}, {"allowed_sources": ()}])
def test_the_first_by_name_of_two_equal_policies_decides(
    lists: dict[str, Any],
) -> None:
    alike = [replace(POLICY, policy_id=f"pol_{name}", name=name, **lists) for name in ("b", "a")]
    for found in (alike, alike[::-1]):
        decision = evaluate(RETRIEVAL, FACTS._replace(role=compile_role("analyst", found)))
        assert decision.policy_id == "pol_a"


@pytest.mark.deep(stands_in="test_the_first_by_name_of_two_equal_policies_decides")
@given(situations(), st.randoms())
def test_the_order_of_policies_changes_nothing(situation: Situation, random: st.DataObject) -> None:
    call, facts, found = situation
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    role = compile_role(call.agent_role, shuffled) if shuffled else None
    assert evaluate(call, facts._replace(role=role)) == evaluate(call, facts)


@pytest.mark.deep(
    stands_in="tests/policies/test_tables.py::test_each_row_of_the_tables_is_decided_and_recorded_as_it_states"
)
@given(situations(), policies("unrelated"))
def test_policies_of_another_role_change_nothing(
    situation: Situation, unrelated: list[Policy]
) -> None:
    call, facts, found = situation
    documents = {"tenant": tenant_document(facts.settings)}
    if facts.agent is not None:
        documents[f"agent/{facts.agent.agent_id}"] = agent_document(facts.agent)
    if document := role_document(found):
        documents[f"role/{call.agent_role}"] = document
    without = gather(PolicySet(documents.get), facts.key, call)
    if document := role_document(unrelated):
        documents["role/unrelated"] = document
    beside = gather(PolicySet(documents.get), facts.key, call)
    assert evaluate(call, beside) == evaluate(call, without)
    expected = naive.answer(call, facts._replace(session=None), found)
    decision = evaluate(call, without)
    assert (decision.decision, decision.policy_name, decision.check) == expected


@pytest.mark.deep(
    stands_in="tests/policies/test_tables.py::test_each_row_of_the_tables_is_decided_and_recorded_as_it_states"
)
@given(situations())
def test_a_user_is_never_in_a_reason(situation: Situation) -> None:
    call, facts, _ = situation
    marked = call._replace(user_id="ann.the.user@example.com", query="the.query.text")
    reason = evaluate(marked, facts).reason
    assert "ann.the.user" not in reason
    assert "the.query.text" not in reason
    assert reason == evaluate(call, facts).reason


@given(RETRIEVALS)
def test_a_call_without_any_known_object_is_denied(call: Retrieval) -> None:
    facts = Facts(TenantSettings("t"), Key("key_1", "evaluate"), None, None, None, 0)
    assert evaluate(call, facts).decision == "DENY"


def test_a_refusal_reaches_no_check() -> None:
    decision = refuse("policy_set_stale", "the policy set is 31 s old, and the limit is 30 s")
    assert (decision.decision, decision.policy_name) == ("DENY", "policy_set_stale")
    assert decision.reason == "the policy set is 31 s old, and the limit is 30 s"
    assert (decision.check, decision.policy_id, decision.policy_version) == (None, None, None)
    assert [finding.outcome for finding in decision.findings] == [CheckOutcome.not_reached] * 10


def test_the_ten_checks_are_in_the_contracts_order() -> None:
    assert NAMES == (
        "agent_id_required", "registry", "role_restriction", "binding", "session",
        "policy_exists", "agent_permitted", "task", "source", "sensitivity",
    )  # fmt: skip
