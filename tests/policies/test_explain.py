"""An explanation states the decision, and its nearest miss would really have been allowed."""

import pytest
from hypothesis import given

from policies.checks.finding import Facts
from policies.checks.order import NAMES
from policies.definitions.model import Agent, Key, Policy, TenantSettings
from policies.evaluate import evaluate, refuse
from policies.explain import explain
from policies.nearest_miss import steps_to_allow
from policies.retrieval import Retrieval
from policies.sets.role import compile_role
from tests.policies.strategies import situations
from tests.policies.table_situations import table_situations
from tests.policies.world import START

Situation = tuple[Retrieval, Facts, list[Policy]]
CALL = Retrieval("r", "u", "payroll", "high", task_type="audit")


def facts(*policies: Policy) -> Facts:
    role = compile_role("r", policies) if policies else None
    return Facts(TenantSettings("t"), Key("k", "evaluate"), None, None, role, 1)


def policy(name: str, **fields: object) -> Policy:
    body = {"allowed_sources": ("*",), "denied_sources": (), "max_sensitivity": "critical"}
    return Policy("pol", 1, name, "r", **{**body, **fields})  # type: ignore[arg-type]


@pytest.mark.deep(stands_in="test_the_changes_of_a_nearest_miss_allow_each_call_of_the_tables")
@given(situations())
def test_the_changes_of_a_nearest_miss_allow_the_call(situation: Situation) -> None:
    check_steps(situation)


def test_the_changes_of_a_nearest_miss_allow_each_call_of_the_tables() -> None:
    for situation in table_situations():
        check_steps(situation)


def check_steps(situation: Situation) -> None:
    """Take the changes one by one."""
    call, known, _ = situation
    steps = steps_to_allow(call, known)
    assert (steps == []) == (evaluate(call, known).decision == "ALLOW")
    for step in steps:
        assert evaluate(call, known).decision == "DENY", "a change too many"
        assert step.check in NAMES or known.settings.frozen_at is not None
        assert step.words
        call, known = step.apply(call, known)
        if known.role is not None:
            denying = any(each.denies(call.source_id) for each in known.role.clauses)
            assert known.role.denies(call.source_id) == denying
            tasks = {task for each in known.role.clauses for task in each.denied_tasks}
            assert known.role.denied_tasks == tasks
    assert evaluate(call, known).decision == "ALLOW"


@given(situations())
def test_an_explanation_lists_the_ten_checks_and_changes_nothing(situation: Situation) -> None:
    call, known, _ = situation
    decision = evaluate(call, known)
    told = explain(call, known, decision)
    assert [check["check"] for check in told["checks"]] == list(NAMES)
    outcomes = [check["outcome"] for check in told["checks"]]
    assert outcomes == [finding.outcome.value for finding in decision.findings]
    for check in told["checks"]:
        assert bool(check["facts"]) == (check["outcome"] != "not_reached")
    if decision.decision == "ALLOW":
        assert told["nearest_miss"] is None
    else:
        assert told["nearest_miss"]["change"]
        assert told["nearest_miss"]["check"] in (decision.check, *NAMES)
    assert evaluate(call, known) == decision


def test_of_several_policies_the_one_with_the_fewest_failures_is_the_nearest() -> None:
    known = facts(
        policy("a", allowed_sources=("x",), max_sensitivity="low", allowed_tasks=("t",)),
        policy("b", allowed_sources=("x",)),
        policy("c", allowed_sources=("x",), max_sensitivity="low"),
    )
    (step,) = steps_to_allow(CALL, known)
    assert (step.check, step.policy_name) == ("source", "b")
    assert step.words == "add `payroll` to `allowed_sources` of policy `b`"


def test_an_explicit_denial_must_be_removed_even_if_another_policy_allows() -> None:
    known = facts(policy("a"), policy("b", denied_sources=("pay*",), denied_tasks=("audit",)))
    assert [step.words for step in steps_to_allow(CALL, known)] == [
        "take `audit` out of `denied_tasks` of policy `b`",
        "take `payroll` out of `denied_sources` of policy `b`",
    ]


def test_a_policy_is_proposed_if_there_is_none() -> None:
    told = explain(CALL, facts(), evaluate(CALL, facts()))["nearest_miss"]
    assert told == {
        "check": "policy_exists",
        "policy_name": "default_deny",
        "change": "create a policy for role `r` that allows `payroll` at `high`",
    }


def test_a_refusal_before_any_check_has_no_helpful_change() -> None:
    told = explain(CALL, None, refuse("evaluation_error", "for a test"))
    assert {check["outcome"] for check in told["checks"]} == {"not_reached"}
    assert told["nearest_miss"]["check"] is None


def test_the_policy_named_in_the_answer_is_the_nearest_among_equals() -> None:
    known = facts(
        policy("a", allowed_sources=("contracts",)), policy("b", allowed_sources=("payroll-eu",))
    )
    decision = evaluate(CALL, known)
    assert decision.policy_name == "b"
    told = explain(CALL, known, decision)["nearest_miss"]
    assert told["policy_name"] == "b"
    assert told["change"] == "add `payroll` to `allowed_sources` of policy `b`"


def test_a_freeze_is_explained_with_what_would_fail_after_it() -> None:
    known = facts(policy("a", max_sensitivity="low"))
    known = known._replace(settings=TenantSettings("t", frozen_at=START))
    told = explain(CALL, known, evaluate(CALL, known))
    assert {check["outcome"] for check in told["checks"]} == {"not_reached"}
    assert told["nearest_miss"] == {
        "check": None,
        "policy_name": "tenant_frozen",
        "change": "lift the tenant's freeze (`DELETE /v1/freeze`); and ask at `low` or below, or "
        "raise `max_sensitivity` of policy `a` to `high`",
    }


def test_approving_the_agent_is_proposed_for_a_suspension() -> None:
    known = facts(policy("a"))._replace(agent=Agent("agt", "suspended", ("r",)))
    (step,) = steps_to_allow(CALL._replace(agent_id="agt"), known)
    assert (step.check, step.policy_name) == ("registry", "agent_not_approved")
    assert "suspension of agent `agt`" in step.words


def test_a_role_that_is_not_permitted_is_corrected_in_the_call_or_permitted() -> None:
    known = facts(policy("a"))._replace(agent=Agent("agt", "approved", ("my_app", "other")))
    known = known._replace(key=Key("k", "evaluate", None, ("my_app",)))
    of_agent, of_key = steps_to_allow(CALL._replace(agent_id="agt"), known)
    assert of_agent.words == (
        "call in one of its roles: `my_app`, `other`, or add `r` to the `permitted_roles` of agent "
        "`agt`"
    )
    assert of_key.words == (
        "call in one of the key's roles: `my_app`, or add `r` to the `permitted_roles` of key `k`"
    )
