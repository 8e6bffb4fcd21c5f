"""The runner decides as a service does: by the real core, from the facts that a file gives."""

import pytest

from policies.checks.order import NAMES
from tests.policies.testing.files import cases, failed, results, roles

POLICIES = """
policies:
  - name: reads
    agent_role: analyst
    allowed_sources: [contracts, "kb-*"]
    denied_sources: [payroll]
    max_sensitivity: high
    denied_tasks: [export]
    permitted_agent_ids: ["agt_*"]
  - name: teller-reads
    agent_role: teller
    allowed_sources: [contracts]
    denied_sources: []
    max_sensitivity: low
"""
GIVEN = """
given:
  agents:
    agt_new: {status: draft}
    agt_gone: {status: unregistered}
    agt_teller: {agent_role: teller}
    agt_bound: {bound_key_id: other}
  keys:
    plain: {}
    bound: {bound_agent_id: agt_1}
    tellers: {permitted_roles: [teller]}
"""
ANALYST = "agent_role: analyst, "


def case(ask: str, expect: str, key: str = "plain") -> str:
    asked = f"{ANALYST}source_id: contracts, sensitivity_level: low, {ask}"
    return f"  - key: {key}\n    ask: {{{asked}}}\n    expect: {expect}\n"


def denied(check: str, policy_name: str) -> str:
    return f"{{decision: DENY, check: {check}, policy_name: {policy_name}}}"


BY_CHECK = {
    "registry": [
        case("agent_id: agt_new", denied("registry", "agent_not_approved")),
        case("agent_id: agt_gone", denied("registry", "agent_not_registered")),
    ],
    "role_restriction": [
        case("agent_id: agt_teller", denied("role_restriction", "role_not_permitted")),
        case("agent_id: agt_1", denied("role_restriction", "key_role_restriction"), "tellers"),
    ],
    "binding": [
        case("agent_id: agt_2", denied("binding", "key_agent_binding"), "bound"),
        case("agent_id: agt_bound", denied("binding", "key_agent_binding")),
    ],
    "policy_exists": [
        case("agent_role: x", denied("policy_exists", "default_deny")).replace(ANALYST, "")
    ],
    "agent_permitted": [case("agent_id: x", denied("agent_permitted", "reads"))],
    "task": [case("agent_id: agt_1, task_type: export", denied("task", "reads"))],
}


@pytest.mark.parametrize("check", BY_CHECK)
def test_a_file_can_reach_each_check(check: str) -> None:
    tests = f"{GIVEN}tests:\n{''.join(BY_CHECK[check])}"
    assert failed(POLICIES, tests) == []
    assert {result.decision.check for result in results(POLICIES, tests)} == {check}


def test_the_tenant_and_the_last_two_checks_are_reached() -> None:
    reason = "source `payroll` is in `denied_sources` of policy `reads`"
    ask = "agent_id: agt_1, agent_role: analyst, sensitivity_level"
    tests = f"""
    tests:
      - ask: {{{ask}: low, source_id: payroll}}
        expect: {{check: source, reason: "{reason}"}}
      - ask: {{{ask}: critical, source_id: contracts}}
        expect: {{check: sensitivity}}
      - ask: {{{ask}: high, source_id: kb-1, session_id: s1}}
        expect: {{decision: ALLOW, policy_name: reads}}
    """
    assert failed(POLICIES, tests) == []
    tenant = "given: {tenant: {require_agent_id: true}}\ntests:\n"
    without = "  - ask: {agent_role: analyst, source_id: s, sensitivity_level: low}\n"
    expect = f"    expect: {denied('agent_id_required', 'agent_id_required')}\n"
    assert failed(POLICIES, tenant + without + expect) == []
    frozen = "given: {tenant: {frozen: true}}\ntests:\n"
    (result,) = results(POLICIES, f"{frozen}{without}    expect: {{policy_name: tenant_frozen}}\n")
    assert result.passed
    assert result.decision.check is None


def test_cases_reach_every_check_except_the_session() -> None:
    # No spec of `given` has sessions: a session in a case is one that no call has claimed.
    reached = {*BY_CHECK, "source", "sensitivity", "agent_id_required"}
    assert set(NAMES) - reached == {"session"}


@pytest.mark.parametrize(
    "expect",
    [
        "{decision: DENY}",
        "{policy_name: other}",
        "{check: source}",
        "{reason: because}",
        "{decision: ALLOW, policy_name: other}",
    ],
)
def test_each_expected_member_is_compared(expect: str) -> None:
    tests = f"tests:\n{case('agent_id: agt_1', expect)}".replace("key: plain\n    ", "")
    assert len(failed(POLICIES, tests)) == 1


def test_a_matrix_fails_for_each_combination_that_differs() -> None:
    tests = """
    tests:
      - name: who
        matrix:
          agent_role: [analyst, teller]
          source_id: [contracts, payroll]
          sensitivity_level: [low, high]
          agent_id: [agt_1]
        expect_allow: [{source_id: contracts}]
    """
    (only,) = failed(POLICIES, tests)
    assert only == "who: agent_role `teller`, source_id `contracts`, sensitivity_level `high`"


def test_a_failure_names_the_change_that_would_have_allowed_it() -> None:
    tests = f"tests:\n{case('agent_id: x', '{decision: ALLOW}')}".replace("key: plain\n    ", "")
    (result,) = results(POLICIES, tests)
    miss = result.nearest_miss()
    assert miss is not None
    assert miss["change"] == "add `x` to `permitted_agent_ids` of policy `reads`"


def test_a_matrix_is_expanded_while_it_runs() -> None:
    """The first of a hundred thousand cases comes without the others."""
    names = ", ".join(f"s{n}" for n in range(25_000))
    levels = "low, medium, high, critical"
    text = (
        f"tests:\n  - matrix: {{agent_role: [analyst], source_id: [{names}], "
        f"sensitivity_level: [{levels}]}}\n    expect_allow: []\n"
    )
    file = cases(text)
    assert len(file) == 100_000
    assert next(file.cases()).retrieval.source_id == "s0"
    assert set(roles(POLICIES)) == {"analyst", "teller"}
