"""The exact analysis: what it costs to compare, to search and to lint policies.

python -m tests.benchmarks.analysis

The policies are in memory: reading files is no part of it. Beside each figure, as its ratio, the
cost of compiling the same policies for decisions (`compile_role`), which a service does anyway.
Of a diff with thousands of rows, most of the time is the core's, which decides each row's example
on both sides.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from statistics import median

from policies.analysis.access import AccessQuery
from policies.analysis.difference import by_role, difference
from policies.analysis.names import TooManyClasses
from policies.analysis.rows import access_rows, difference_rows
from policies.definitions.definition import Definition
from policies.definitions.model import SENSITIVITIES, Policy
from policies.lint import lint
from policies.sets.role import compile_role
from tests.benchmarks.measure import Figure

ROLES, POLICIES, WILDCARDS = 100, 10_000, 200
ROUNDS = 3


def figures() -> list[Figure]:
    random = Random(1)
    old = [_policy(random, number) for number in range(POLICIES)]
    few, many = (
        [_policy(random, at) if at % part < ROLES else each for at, each in enumerate(old)]
        for part in (POLICIES, POLICIES // 10)
    )
    floor = _seconds(lambda: _compiled(old))
    roles = by_role(old)

    def who() -> None:
        for role, policies in roles.items():
            access_rows(role, policies, AccessQuery(sources=("source-7",)))

    definitions = [
        Definition(f"default/all/{each.agent_role}.yaml", 1, each.to_wire()) for each in old
    ]
    wild = [_wildcards(random, kind) for kind in ("prefix*", "*suffix", "prefix*suffix")]
    return [
        _figure("diff, a policy of each role changed", floor, 2, lambda: _diff(old, few)),
        _figure("diff, ten policies of each role changed", floor, 2, lambda: _diff(old, many)),
        _figure("who may read a source", floor, 2, who),
        _figure("lint", floor, 5, lambda: lint(definitions)),
        *(
            _figure(f"diff, {WILDCARDS} patterns {kind} in a role", None, 1, partial(_half, part))
            for kind, part in wild
        ),
        _figure("patterns *word* beyond the bound", None, 1, lambda: _refused(random)),
    ]


def _figure(measure: str, floor: float | None, most: int, work: Callable[[], object]) -> Figure:
    taken = _seconds(work)
    ratio = None if floor is None else taken / floor
    return Figure(measure, f"{taken:.2f} s of CPU", ratio, f"<= {most} s", taken <= most)


def _seconds(work: Callable[[], object]) -> float:
    """Median CPU seconds."""
    taken = []
    for _ in range(ROUNDS):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return median(taken)


def _policy(random: Random, number: int) -> Policy:
    """One of a hundred policies of a role: a few sources, sometimes a denial, tasks or agents."""

    def some(most: int, form: str, of: int) -> tuple[str, ...]:
        return tuple(form.format(random.randrange(of)) for _ in range(random.randint(1, most)))

    prefixes = some(2, "part-{}-*", 100) if random.random() < 0.3 else ()
    return Policy(
        f"pol_{number}",
        1,
        f"policy-{number}",
        f"role-{number % ROLES}",
        some(6, "source-{}", 300) + prefixes,
        some(2, "part-{}-secret", 100) if random.random() < 0.2 else (),
        random.choice(SENSITIVITIES),
        allowed_tasks=some(2, "task-{}", 10) if random.random() < 0.3 else (),
        denied_tasks=some(1, "task-{}", 10) if random.random() < 0.1 else (),
        permitted_agent_ids=some(2, "agt_team{}_*", 10) if random.random() < 0.3 else (),
    )


def _wildcards(random: Random, kind: str) -> tuple[str, list[Policy]]:
    """A role of policies with a pattern each."""

    def word() -> str:
        return "".join(random.choice("abcdefghijklmnopqrstuvwxyz-") for _ in range(8))

    policy = replace(_policy(random, 0), permitted_agent_ids=(), denied_sources=())
    patterns = [
        kind.replace("prefix", word()).replace("suffix", "-" + word()) for _ in range(WILDCARDS)
    ]
    return kind, [
        replace(
            policy,
            name=f"n{at}",
            allowed_sources=(each,),
            max_sensitivity=random.choice(SENSITIVITIES),
        )
        for at, each in enumerate(patterns)
    ]


def _compiled(policies: list[Policy]) -> None:
    for role, its in by_role(policies).items():
        compile_role(role, its)


def _diff(old: list[Policy], new: list[Policy]) -> object:
    return difference_rows(difference(old, new), by_role(old), by_role(new))


def _half(policies: list[Policy]) -> object:
    return _diff(policies[: len(policies) // 2], policies)


def _refused(random: Random) -> None:
    try:
        _half(
            [
                replace(each, allowed_sources=(f"*{at:03}*",))
                for at, each in enumerate(_wildcards(random, "*")[1])
            ]
        )
    except TooManyClasses:
        return
    raise SystemExit("patterns with 2^200 classes were analysed")


def main() -> None:
    print(f"{'measure':<44} {'value':<44} {'ratio':>6}  {'target':<12} reached", flush=True)
    for figure in figures():
        print(figure.row(), flush=True)


if __name__ == "__main__":
    main()
