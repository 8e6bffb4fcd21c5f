"""Contenders that take turns in rounds, and their results side by side.

Knows no contender. A shared machine slows all contenders down, and unevenly. The CPU time of a
request varies less than the rate, so both are shown.
"""

import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.measure import Figure
from tests.support.stack import Service

Run = Callable[[], dict[str, Any]]
Rounds = list[dict[str, dict[str, Any]]]
"""The result of each contender in each round, by name."""


def with_cpu(run: Run, services: Sequence[Service]) -> Run:
    """`run`, with the CPU microseconds of all `services` per response added to its result."""

    def turn() -> dict[str, Any]:
        before = _cpu(services)
        found = run()
        return {**found, "cpu": (_cpu(services) - before) / max(found["answers"], 1) * 1e6}

    return turn


def in_real_time(run: Run, services: Sequence[Service]) -> Run:
    """`run`, with real-time priority for the services and the load, as root. On a machine with
    other work each wake-up waits for a slice of another process, about 3 ms on Linux 6.6 and later,
    and that would be the 99th percentile. For runs that leave their cores idle most of the time."""

    def turn() -> dict[str, Any]:
        processes = [0, *(service.pid for service in services)]
        for pid in processes:
            _schedule(pid, os.SCHED_FIFO, 1)
        try:
            return run()
        finally:
            for pid in processes:
                _schedule(pid, os.SCHED_OTHER, 0)

    return turn


def _schedule(pid: int, policy: int, priority: int) -> None:
    tasks = Path(f"/proc/{pid}/task").iterdir() if pid else (Path("0"),)
    for task in tasks:
        os.sched_setscheduler(int(task.name), policy, os.sched_param(priority))


def _cpu(services: Sequence[Service]) -> float:
    """CPU seconds so far of the processes, their threads and their children."""
    total = 0.0
    for service in services:
        process = psutil.Process(service.pid)
        for each in (process, *process.children(recursive=True)):
            times = each.cpu_times()
            total += times.user + times.system
    return total


def rounds_of(runs: dict[str, Run], rounds: int) -> Rounds:
    """Each contender's result in each round, after a warm-up turn each."""
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
    """The median over the rounds of our figure divided by theirs."""
    return float(statistics.median(each["ours"][what] / each[other][what] for each in found))


def held(name: str, value: str, found: float, target: float | None, sign: str) -> Figure:
    """A ratio, with its target if it has one."""
    if target is None:
        return Figure(name, value, found, "", True)
    reached = found >= target if sign == ">=" else found <= target
    return Figure(name, value, found, f"{sign} {target}", reached)
