"""Contenders taking turns: round by round, each once a round, and what they gave side by side.

Knows no contender. On a shared machine all contenders are slowed down, unevenly: what
a request costs its contender in CPU is steadier than how many it answers in a second, so it is
told beside the rate.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from tests.benchmarks.measure import Figure
from tests.stack import Service

Run = Callable[[], dict[str, Any]]
Rounds = list[dict[str, dict[str, Any]]]
"""For each round what each contender gave, by its name."""


def with_cpu(run: Run, services: Sequence[Service]) -> Run:
    """`run`, whose result also tells the CPU microseconds of all `services` for each answer."""

    def turn() -> dict[str, Any]:
        before = _cpu(services)
        found = run()
        return {**found, "cpu": (_cpu(services) - before) / max(found["answers"], 1) * 1e6}

    return turn


def _cpu(services: Sequence[Service]) -> float:
    """Seconds so far, of the processes, their threads and their children."""
    total = 0.0
    for service in services:
        process = psutil.Process(service.pid)
        for each in (process, *process.children(recursive=True)):
            times = each.cpu_times()
            total += times.user + times.system
    return total


def rounds_of(runs: dict[str, Run], rounds: int) -> Rounds:
    """What each gave in each round, after one turn each to warm up."""
    for run in runs.values():
        run()
    found = []
    for number in range(rounds):
        # No contender always follows the same one.
        order = list(runs) if number % 2 == 0 else list(reversed(runs))
        found.append({name: runs[name]() for name in order})
    return found


def median(found: Rounds, name: str, what: str) -> float:
    return float(statistics.median(each[name][what] for each in found))


def ratio(found: Rounds, other: str, what: str) -> float:
    """Median over the rounds of our figure divided by theirs."""
    return float(statistics.median(each["ours"][what] / each[other][what] for each in found))


def held(name: str, value: str, found: float, target: float | None, sign: str) -> Figure:
    """A ratio with its target, or without one."""
    if target is None:
        return Figure(name, value, found, "", True)
    reached = found >= target if sign == ">=" else found <= target
    return Figure(name, value, found, f"{sign} {target}", reached)
