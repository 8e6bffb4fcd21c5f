"""Coverage is proven: a test fails without a part that is covered, and none without one that is
not."""

from dataclasses import replace
from random import Random

import pytest

from policies.definitions.definition import Definition
from policies.definitions.model import SENSITIVITIES, Key, TenantSettings
from policies.testing.cases import CaseFile, SingleCase
from policies.testing.run import LISTS, Coverage, Part, agrees, compiled, policy, run
from tests.policies.analysis.small import AGENTS, ROLES, SOURCES, TASKS
from tests.policies.analysis.small import policy as small_policy
from tests.policies.testing.files import cases, definitions
from tests.support.properties import few

KEY = Key("k", "evaluate")


def coverage_of(found: list[Definition], file: CaseFile) -> Coverage:
    coverage = Coverage(found)
    for result in run(file, compiled(map(policy, found))):
        if result.passed:
            coverage.add(result)
    return coverage


def without(found: list[Definition], part: Part) -> list[Definition]:
    """The policies as they would be with this part deleted from its file."""
    rest = [each for each in found if each.body["name"] != part.policy_name]
    if part.list is None:
        return rest
    (changed,) = (each for each in found if each.body["name"] == part.policy_name)
    entries = [each for at, each in enumerate(changed.body[part.list]) if at != part.at]
    return [*rest, replace(changed, body={**changed.body, part.list: entries})]


def failures(found: list[Definition], file: CaseFile) -> set[int]:
    """The places of the cases that fail."""
    results = run(file, compiled(map(policy, found)))
    return {at for at, result in enumerate(results) if not result.passed}


def random_definitions(random: Random) -> list[Definition]:
    policies = [small_policy(random, number) for number in range(random.randint(1, 5))]
    return [Definition("t/a/x.yaml", 1, each.to_wire()) for each in policies]


def random_file(random: Random, found: list[Definition], members: list[str]) -> CaseFile:
    """Cases that expect some members of what is decided; one in ten expects something else."""
    asked = [
        {
            "agent_role": random.choice(ROLES),
            "agent_id": random.choice(AGENTS),
            "task_type": random.choice(TASKS),
            "source_id": random.choice(SOURCES),
            "sensitivity_level": random.choice(SENSITIVITIES),
        }
        for _ in range(20)
    ]
    entries = [SingleCase(at, None, KEY, ask, {}) for at, ask in enumerate(asked)]
    settings = TenantSettings("t")
    expected = []
    for entry, result in zip(
        entries,
        run(CaseFile("", settings, {}, tuple(entries)), compiled(map(policy, found))),
        strict=True,
    ):
        some = random.sample(members, random.randint(1, len(members)))
        values = {name: str(getattr(result.decision, name)) for name in some}
        if random.random() < 0.1:
            values["decision"] = "ALLOW" if result.decision.decision == "DENY" else "DENY"
        # `check` is None where a policy allows: no file can expect that.
        values = {name: value for name, value in values.items() if value != "None"}
        expected.append(replace(entry, expected=values))
    return CaseFile("", settings, {}, tuple(expected))


@pytest.mark.deep(stands_in="test_some_case_of_a_few_files_fails_without_each_covered_part")
def test_some_case_fails_without_each_covered_part() -> None:
    assert check_covered(few(1000)) > 100


def test_some_case_of_a_few_files_fails_without_each_covered_part() -> None:
    assert check_covered(12) > 10


def check_covered(files: int) -> int:
    """Check what the cases of random files cover, and return how much that is."""
    covered = 0
    for seed in range(files):
        random = Random(seed)
        found = random_definitions(random)
        file = random_file(random, found, ["decision", "policy_name", "check", "reason"])
        coverage = coverage_of(found, file)
        before = failures(found, file)
        for part in coverage.covered:
            assert failures(without(found, part), file) - before, (seed, part)
        covered += len(coverage.covered)
    return covered


@pytest.mark.deep(stands_in="test_no_case_of_a_few_files_fails_without_an_uncovered_part")
def test_no_case_fails_without_a_part_that_is_not_covered() -> None:
    assert check_uncovered(few(1000)) > 100


def test_no_case_of_a_few_files_fails_without_an_uncovered_part() -> None:
    assert check_uncovered(12) > 10


def check_uncovered(files: int) -> int:
    """As far as cases expect a decision and a check. Which of several policies is named in a denial
    may also change with an entry that matches nothing: no case is decided by that one."""
    uncovered = 0
    for seed in range(files):
        random = Random(seed)
        found = random_definitions(random)
        file = random_file(random, found, ["decision", "check"])
        coverage = coverage_of(found, file)
        before = failures(found, file)
        for part in coverage.uncovered():
            assert failures(without(found, part), file) <= before, (seed, part)
        uncovered += len(coverage.uncovered())
    return uncovered


POLICIES = """
policies:
  - name: reads
    agent_role: r
    allowed_sources: [a, "b*", c]
    denied_sources: [d, c]
    max_sensitivity: high
    denied_tasks: [export]
"""


def covered(tests: str, policies: str = POLICIES) -> set[tuple[str, str | None]]:
    coverage = coverage_of(definitions(policies), cases(f"tests:\n{tests}"))
    return {(each.list or "policy", coverage.entry(each)) for each in coverage.covered}


def case(source: str, expect: str, more: str = "") -> str:
    ask = f"agent_role: r, source_id: {source}, sensitivity_level: low{more}"
    return f"  - ask: {{{ask}}}\n    expect: {expect}\n"


@pytest.mark.parametrize(
    ("tests", "parts"),
    [
        (case("a", "{decision: ALLOW}"), {("policy", None), ("allowed_sources", "a")}),
        (case("b2", "{decision: ALLOW}"), {("policy", None), ("allowed_sources", "b*")}),
        # Without its denial, `c` would be allowed.
        (case("c", "{decision: DENY}"), {("denied_sources", "c")}),
        # `d` is allowed nowhere: its denial alone changes the reason, and nothing else.
        (case("d", "{decision: DENY}"), set()),
        (case("d", "{decision: DENY, check: source}"), {("policy", None)}),
        (
            case("d", '{reason: "source `d` is in `denied_sources` of policy `reads`"}'),
            {("policy", None), ("denied_sources", "d")},
        ),
        (
            case("a", "{decision: DENY}", ", task_type: export"),
            {("denied_tasks", "export")},
        ),
        # A case that fails proves nothing.
        (case("a", "{decision: DENY}"), set()),
        (case("e", "{decision: DENY}"), set()),
    ],
)
def test_everything_that_a_case_depends_on_is_covered(
    tests: str, parts: set[tuple[str, str | None]]
) -> None:
    assert covered(tests) == parts


def test_an_entry_that_another_one_repeats_is_not_covered() -> None:
    policies = POLICIES.replace('[a, "b*", c]', '[a, a, "b*", b1]')
    tests = case("a", "{decision: ALLOW}") + case("b1", "{decision: ALLOW}")
    assert covered(tests, policies) == {("policy", None)}
    assert covered(tests + case("b2", "{decision: ALLOW}"), policies) == {
        ("policy", None),
        ("allowed_sources", "b*"),
    }


def test_the_policy_that_a_case_names_is_covered_even_if_another_allows_too() -> None:
    second = POLICIES.replace("policies:\n", "").replace("name: reads", "name: second")
    both = POLICIES + second
    named = coverage_of(definitions(both), cases("tests:\n" + case("a", "{policy_name: reads}")))
    assert named.covered == {Part("reads"), Part("reads", "allowed_sources", 0)}
    assert covered(case("a", "{decision: ALLOW}"), both) == set()


def test_every_policy_and_entry_counts_once() -> None:
    coverage = Coverage(definitions(POLICIES))
    assert len(coverage.parts) == len(set(coverage.parts)) == 1 + 3 + 2 + 1
    assert {each.list for each in coverage.parts} == {None, *LISTS}
    assert coverage.uncovered() == coverage.parts


def test_a_denial_before_the_policies_covers_none() -> None:
    file = cases(
        "given: {tenant: {frozen: true}}\ntests:\n" + case("a", "{policy_name: tenant_frozen}")
    )
    # Even a policy of that name did not decide.
    found = definitions(POLICIES.replace("name: reads", "name: tenant_frozen"))
    (result,) = run(file, compiled(map(policy, found)))
    assert agrees(result.decision, {"policy_name": "tenant_frozen"})
    assert coverage_of(found, file).covered == set()
