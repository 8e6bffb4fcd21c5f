"""A file of tests is read as it is written, and everything else in it is a fault with its line."""

import pytest

from policies.definitions.model import AGENT_STATUSES
from policies.retrieval import Retrieval
from policies.testing.cases import MAX_CASES
from policies.testing.file_form import ASK, EXPECT
from tests.policies.testing.files import cases, faults_of

ASKED = "{agent_role: r, source_id: s, sensitivity_level: low}"
CASE = f"ask: {ASKED}\n    expect: {{decision: ALLOW}}"


def of(case: str, given: str = "") -> str:
    return f"{given}tests:\n  - {case}\n"


def test_every_member_is_read() -> None:
    (case,) = cases(
        """
        given:
          agents:
            a1: {agent_role: r, status: suspended, permitted_roles: [r, q], bound_key_id: k1}
          keys:
            k1: {bound_agent_id: a1, permitted_roles: [r]}
          tenant: {require_agent_id: true, frozen: false}
        tests:
          - name: all of it
            key: k1
            ask:
              agent_role: r
              user_id: ann
              source_id: s
              sensitivity_level: high
              session_id: s1
              task_type: report
              agent_id: a1
              query: who signs?
              source_type: vector
              context_hash: "0000000000000000000000000000000000000000000000000000000000000000"
            expect: {decision: DENY, policy_name: agent_not_approved, check: registry, reason: why}
        """
    ).cases()
    assert case.retrieval == Retrieval(
        *("r", "ann", "s", "high", "s1", "report", "a1", "who signs?", "vector"),
        "0" * 64,
    )
    assert set(Retrieval._fields) - {"levels", "masked", "statement"} == set(ASK.keys)
    assert set(case.expected) == set(EXPECT.keys)
    assert (case.name, case.entry.line) == ("all of it", 9)
    key = case.entry.key
    assert (key.key_id, key.bound_agent_id, key.permitted_roles) == ("k1", "a1", ("r",))


def test_every_given_object_is_read() -> None:
    given = "given:\n  agents: {a: {agent_role: r}, b: {status: unregistered}, c: {}}\n"
    file = cases(of(CASE, f"{given}  tenant: {{require_agent_id: true, frozen: true}}\n"))
    assert file.settings.require_agent_id
    assert file.settings.frozen_at is not None
    a, c, d = (file.agent(each, "q") for each in ("a", "c", "d"))
    assert a is not None
    assert c is not None
    assert d is not None
    assert [(each.status, each.permitted_roles) for each in (a, c, d)] == [
        ("approved", ("r",)),
        ("approved", ("q",)),
        ("approved", ("q",)),
    ]
    assert file.agent("b", "q") is None


def test_null_counts_as_absent_where_a_member_is_optional() -> None:
    (case,) = cases(
        of("ask: {agent_role: r, source_id: s, sensitivity_level: low, agent_id: null}")
        + "    expect: {decision: ALLOW}\n"
    ).cases()
    assert case.retrieval.agent_id is None


def test_a_key_is_the_one_named_or_the_only_one_or_an_unbound_one() -> None:
    def key(given: str, case: str = "") -> str:
        (found,) = cases(of(case + CASE, given)).cases()
        return found.entry.key.key_id

    assert key("") == "test"
    assert key("given:\n  keys: {k1: {permitted_roles: [r]}}\n") == "k1"
    assert key("given:\n  keys: {k1: {}, k2: {}}\n", "key: k2\n    ") == "k2"
    assert faults_of(of(CASE, "given:\n  keys: {k1: {}, k2: {}}\n")) == [
        "4: key: is required: `given.keys` has several"
    ]
    assert faults_of(of(f"key: k9\n    {CASE}", "given:\n  keys: {k1: {}}\n")) == [
        "4: key: `k9` is not in `given.keys`"
    ]


def test_a_matrix_expands_to_every_combination_and_allows_those_it_lists() -> None:
    file = cases(
        """
        tests:
          - name: who
            matrix:
              agent_role: [r, q]
              source_id: [a, b]
              sensitivity_level: [low]
              agent_id: [null, x, x]
            expect_allow:
              - {agent_role: r, source_id: a, sensitivity_level: low, agent_id: x}
              - {agent_role: q, source_id: b}
        """
    )
    found = list(file.cases())
    assert len(file) == len(found) == 8
    assert len({each.retrieval for each in found}) == 8
    allowed = {
        (each.retrieval.agent_role, each.retrieval.source_id, each.retrieval.agent_id)
        for each in found
        if each.expected == {"decision": "ALLOW"}
    }
    assert allowed == {("r", "a", "x"), ("q", "b", None), ("q", "b", "x")}
    assert {str(each.expected["decision"]) for each in found} == {"ALLOW", "DENY"}
    assert found[0].name == (
        "who: agent_role `r`, source_id `a`, sensitivity_level `low`, agent_id absent"
    )


def test_a_case_without_a_name_is_named_by_its_question() -> None:
    (case,) = cases(of(CASE)).cases()
    assert case.name == "agent_role `r`, source_id `s`, sensitivity_level `low`"


LONG = "x" * 257
MATRIX = "agent_role: [r], source_id: [s], sensitivity_level: [low]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "1: must be a mapping with the key `tests`"),
        ("given: {}", "1: tests: is required"),
        ("tests:", "1: tests: must be a list, but nothing follows the key: is the file cut"),
        ("tests: []\npolicies: []", "2: policies: unknown key; expected given, tests"),
        ("tests: []\ngiven:", "2: given: must be a mapping of agents, keys, tenant"),
        ("tests: []\ngiven: {agent: {}}", "2: agent: unknown key; did you mean `agents`?"),
        ("tests: []\ngiven: {agents: []}", "2: agents: must be a mapping by name, not a list"),
        (f"tests: []\ngiven: {{agents: {{{LONG}: {{}}}}}}", "2: agents: `xxx"),
        ("tests: []\ngiven:\n  agents:\n    a: {role: r}", "4: role: unknown key; expected agent"),
        ("tests: []\ngiven: {agents: {a: {status: ok}}}", "2: status: must be one of `draft`"),
        (
            "tests: []\ngiven: {agents: {a: {permitted_roles: []}}}",
            "2: permitted_roles: must not be empty",
        ),
        ("tests: []\ngiven: {keys: {k: {scope: admin}}}", "2: scope: unknown key; expected bound"),
        ("tests: []\ngiven: {keys: {k: {permitted_roles: r}}}", "2: permitted_roles: must be a li"),
        (
            "tests: []\ngiven: {tenant: {frozen: yes}}",
            "2: frozen: must be `true` or `false`, not `yes`",
        ),
        ("tests: []\ngiven: {tenant: {frozen: []}}", "2: frozen: must be `true` or `false`"),
        ("tests: []\ngiven: {tenant: {masking: true}}", "2: masking: unknown key; expected requ"),
        ("tests: [1]", "1: tests: each entry must be a mapping with `ask`"),
        (of(f"ask: {ASKED}"), "2: expect: is required"),
        (of("expect: {decision: ALLOW}"), "2: ask: is required"),
        (of(f"ask: {ASKED}\n    expect: {{}}"), "3: expect: needs at least one of decision, pol"),
        (of(f"ask: {ASKED}\n    expect: ALLOW"), "3: expect: must be a mapping of decision, poli"),
        (of(f"ask: {ASKED}\n    expect: {{decision: allow}}"), "3: decision: must be one of `ALL"),
        (of(f"ask: {ASKED}\n    expect: {{check: sources}}"), "3: check: must be one of `agent_i"),
        (of(f"ask: {ASKED}\n    expect: {{policy: x}}"), "3: policy: unknown key; did you mean `p"),
        (of(f"nam: x\n    {CASE}"), "2: nam: unknown key; did you mean `name`?"),
        (of(f"name: 12\n    {CASE}"), "2: name: must be a string; YAML reads `12` as a number"),
        (of('name: "a\\nb"\n    ' + CASE), "2: name: must not contain control characters"),
        (
            of("ask: {source_id: s, sensitivity_level: low}\n    expect: {check: task}"),
            "2: agent_r",
        ),
        (of(CASE.replace("low", "urgent")), "2: sensitivity_level: must be one of `low`, `medium`"),
        (of(CASE.replace("r,", "no,", 1)), "2: agent_role: must be a string; YAML reads `no` as"),
        (of(CASE.replace("r,", "null,", 1)), "2: agent_role: must be a string; YAML reads `null`"),
        (of(CASE.replace("low}", "low, source_type: A}")), "2: source_type: must have the form ["),
        (of(CASE.replace("low}", "low, context_hash: a}")), "2: context_hash: must have the form "),
        (
            of(CASE.replace("low}", f"low, query: {'é' * 40_000}}}")),
            "2: query: must be a string of",
        ),
        (of(CASE.replace("low}", "low, query: 1}")), "2: query: must be a string; YAML reads `1`"),
        (of(CASE.replace("low}", "low, explain: x}")), "2: explain: unknown key; expected agent"),
        (of(f"matrix: {{{MATRIX}}}"), "2: expect_allow: is required"),
        (of(f"matrix: {{{MATRIX}}}\n    expect: {{}}"), "3: expect: unknown key; did you mean `ex"),
        (of("matrix: {source_id: [s]}\n    expect_allow: []"), "2: agent_role: is required"),
        (
            of(f"matrix: {{{MATRIX}, task_type: []}}\n    expect_allow: []"),
            "2: task_type: must not be empty",
        ),
        (
            of("matrix: {agent_role: r, source_id: [s], sensitivity_level: [low]}")
            + "    expect_allow: []",
            "2: agent_role: must be a list, not `r`",
        ),
        (
            of(f"matrix: {{{MATRIX}}}\n    expect_allow: [{{source_id: t}}]"),
            "3: expect_allow: source_id: `t` is not in the matrix",
        ),
        (
            of(f"matrix: {{{MATRIX}}}\n    expect_allow: [{{task_type: null}}]"),
            "3: expect_allow: task_type: null is not in the matrix",
        ),
        (
            of(f"matrix: {{{MATRIX}}}\n    expect_allow: [{{}}]"),
            "3: expect_allow: needs at least one of agent_role",
        ),
        (of(f"matrix: {{{MATRIX}}}\n    expect_allow:"), "3: expect_allow: must be a list, but"),
    ],
)
def test_a_fault_is_reported_with_its_line(text: str, said: str) -> None:
    found = faults_of(text)
    assert any(each.startswith(said) for each in found), found


def test_a_matrix_has_a_limit() -> None:
    sources = ", ".join(f"s{n}" for n in range(400))
    tasks = ", ".join(f"t{n}" for n in range(400))
    matrix = f"agent_role: [r], source_id: [{sources}], sensitivity_level: [low]"
    assert faults_of(of(f"matrix: {{{matrix}, task_type: [{tasks}]}}\n    expect_allow: []")) == [
        f"2: matrix: has 160000 combinations; the most is {MAX_CASES}"
    ]


def test_every_fault_is_reported() -> None:
    assert len(faults_of("given: {x: 1}\ntests:\n  - {ask: 1, expect: {}}\n  - 2\n")) == 4


def test_an_agent_can_have_every_status() -> None:
    for status in AGENT_STATUSES:
        file = cases(of(CASE, f"given: {{agents: {{a: {{status: {status}}}}}}}\n"))
        agent = file.agent("a", "r")
        assert agent is not None
        assert agent.status == status
