"""The calls of the decision tables with their facts, for tests of what follows from a decision."""

from __future__ import annotations

from functools import cache

from policies.checks.finding import Facts
from policies.definitions.model import Policy
from policies.retrieval import Retrieval, parse_retrieval
from tests.policies.test_tables import ROWS, facts_of, policies_of


@cache
def table_situations() -> tuple[tuple[Retrieval, Facts, list[Policy]], ...]:
    """Of each row the call, its facts, and the policies of its role."""
    found = []
    for _, world in ROWS:
        call = parse_retrieval(world["call"])
        own = [each for each in policies_of(world) if each.agent_role == call.agent_role]
        found.append((call, facts_of(world, call), own))
    return tuple(found)
