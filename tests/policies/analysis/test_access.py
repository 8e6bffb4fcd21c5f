"""`who` and `can` against evaluation: a request matches a row exactly if it is allowed, and the row
names the policy that allows it."""

from __future__ import annotations

from random import Random

import pytest

from policies.analysis.access import AccessQuery
from policies.analysis.difference import by_role
from policies.analysis.rows import access_rows
from policies.definitions.model import SENSITIVITIES
from tests.policies.analysis import small
from tests.policies.naive import listed
from tests.support.properties import few

SEEDS = range(few(few(300, at_least=75)))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rows_of_access_equal_what_evaluation_allows(seed: int) -> None:
    random = Random(seed)
    policies = [small.policy(random, number) for number in range(4)]
    query = AccessQuery(
        random.choice(((), ("a",), ("a*", "x"), ("absent",))),
        random.choice(((), ("t",), ("other",), ("absent", "*"))),
        random.choice(((), ("ab",), ("*b", "a?"), ("x*",))),
    )
    level = random.choice((None, None, *SENSITIVITIES))
    compiled = small.roles(policies)
    for role, its_policies in by_role(policies).items():
        rows = small.Rows(access_rows(role, its_policies, query, level))
        for request in small.requests(role):
            decision = small.decision(request, compiled)
            concerned = (
                (not query.agents or _matches(query.agents, request.agent_id))
                and (not query.tasks or request.task_type in query.tasks)
                and (not query.sources or _matches(query.sources, request.source_id))
                and request.sensitivity_level == (level or request.sensitivity_level)
            )
            found = rows.matching(request)
            assert len(found) == (concerned and decision.decision == "ALLOW")
            for row in found:
                assert decision.policy_name in row["policies"]
                assert level is None or row["policies"] == [decision.policy_name]


def _matches(entries: tuple[str, ...], name: str | None) -> bool:
    return name is not None and listed(entries, name)


def test_a_role_without_policies_has_no_row() -> None:
    assert access_rows("r", [], AccessQuery()) == []
