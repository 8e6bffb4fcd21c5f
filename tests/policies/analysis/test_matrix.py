"""The cells of a matrix against evaluation: of every request of a small world, by every agent, for
every task, of every name that a column matches."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from policies.analysis.matrix import Cell, cells
from policies.analysis.names import TooManyClasses
from policies.definitions.model import SENSITIVITIES, Policy, Sensitivity
from policies.retrieval import Retrieval
from tests.policies.analysis import small
from tests.policies.naive import matches
from tests.support.properties import few

SEEDS = range(few(100, at_least=40))
# The entries have at most two characters: what they tell apart is a name's first character, its
# last, and its length up to three.
SOURCES = tuple("".join(each) for length in (1, 2, 3) for each in product("abx", repeat=length))
Call = tuple[str | None, str | None, str]


def entries(random: Random, most: int) -> tuple[str, ...]:
    return tuple(
        "".join(random.choice("ab*?") for _ in range(random.randint(1, 2)))
        for _ in range(random.randint(0, most))
    )


def policy(random: Random, number: int) -> Policy:
    return small.of(
        name=f"n{number}",
        allowed_sources=entries(random, 3),
        denied_sources=entries(random, 1),
        max_sensitivity=random.choice(SENSITIVITIES),
        allowed_tasks=("t",) if random.random() < 0.3 else (),
        denied_tasks=("t",) if random.random() < 0.2 else (),
        permitted_agent_ids=("a*",) if random.random() < 0.3 else (),
    )


def expected(policies: list[Policy], column: str) -> Cell:
    """The cell, from the definition of its members and the decisions alone."""
    names = [name for name in SOURCES if matches(column, name)]
    every = list(product(small.AGENTS, small.TASKS, names))
    allowed = {level: allowed_at(policies, every, level) for level in SENSITIVITIES}
    some = [level for level in SENSITIVITIES if allowed[level]]
    sure = [level for level in SENSITIVITIES if len(allowed[level]) == len(every)]
    level, always = (each[-1] if each else None for each in (some, sure))
    if level == always or level is None:
        return Cell(level, always, ())
    return Cell(level, always, depends_on(every, allowed[level]))


def allowed_at(policies: list[Policy], every: list[Call], level: Sensitivity) -> set[Call]:
    compiled = small.roles(policies)
    return {
        (agent, task, name)
        for agent, task, name in every
        if small.allowed(Retrieval("r", "u", name, level, task_type=task, agent_id=agent), compiled)
    }


def depends_on(every: list[Call], allowed: set[Call]) -> tuple[str, ...]:
    """The members for which two calls that differ in nothing else are decided differently."""
    found = []
    for at, member in enumerate(("agents", "tasks", "sources")):
        seen: dict[tuple[str | None, ...], bool] = {}
        for call in every:
            others = (*call[:at], *call[at + 1 :])
            if seen.setdefault(others, call in allowed) != (call in allowed):
                found.append(member)
                break
    return tuple(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_cell_equals_the_result_of_evaluation(seed: int) -> None:
    random = Random(seed)
    policies = [policy(random, number) for number in range(random.randint(1, 4))]
    columns = list(dict.fromkeys((*entries(random, 4), "a", "*", "b?")))
    found = cells(policies, columns)
    assert dict(zip(columns, found, strict=True)) == {
        column: expected(policies, column) for column in columns
    }


def test_the_worlds_have_all_kinds_of_cells() -> None:
    found = set[Cell]()
    for seed in SEEDS:
        random = Random(seed)
        policies = [policy(random, number) for number in range(random.randint(1, 4))]
        found.update(cells(policies, ["a", "*"]))
    assert {each.level for each in found} == {None, *SENSITIVITIES}
    assert {name for each in found for name in each.depends_on} == {"agents", "tasks", "sources"}
    assert any(each.always and each.always != each.level for each in found)


def test_the_cells_of_a_role_without_policies_are_empty() -> None:
    assert cells([], ["a", "*"]) == [Cell(None, None, ()), Cell(None, None, ())]


def test_columns_in_the_same_lists_have_different_cells() -> None:
    policies = [small.of(allowed_sources=("a*", "b*"), denied_sources=("a1*",))]
    assert cells(policies, ["a*", "b*"]) == [
        Cell("high", None, ("sources",)),
        Cell("high", "high", ()),
    ]


def test_an_analysis_ends_after_a_limited_number_of_steps() -> None:
    policies = [small.of(allowed_sources=tuple(f"*{letter}*x" for letter in "abcdefgh"))]
    with pytest.raises(TooManyClasses, match="50 steps"):
        cells(policies, ["*"], 50)
