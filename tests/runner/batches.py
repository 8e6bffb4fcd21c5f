"""Cuts the suite into batches, the costliest first, so that no worker begins a long one when the
others are finished.

A batch is a file's tests in their order, so that a module's fixtures are set up once. Only a file
that alone would keep a worker busy longer than its fair share is cut into several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

FEWEST_SECONDS = 5.0
"""A file that costs less is never cut: its fixtures would cost more than that saves."""
SHARES = 4
"""A batch costs at most a quarter of a worker's fair share."""


class Batch(NamedTuple):
    """Tests that one worker runs one after the other."""

    tests: tuple[int, ...]
    """Their places in the collected list."""
    cost: float
    """CPU seconds expected."""


def costliest_first(
    nodeids: Sequence[str], cost: Callable[[str], float], workers: int
) -> list[Batch]:
    """Every test once. `cost` gives a test's CPU seconds."""
    files: dict[str, list[int]] = {}
    for index, nodeid in enumerate(nodeids):
        files.setdefault(nodeid.partition("::")[0], []).append(index)
    costs = [cost(nodeid) for nodeid in nodeids]
    largest = max(FEWEST_SECONDS, sum(costs) / workers / SHARES)
    batches = []
    for tests in files.values():
        whole = sum(costs[index] for index in tests)
        pieces = min(len(tests), math.ceil(whole / largest)) if whole else 1
        for each in _cut(tests, costs, pieces):
            batches.append(Batch(tuple(each), sum(costs[index] for index in each)))
    return sorted(batches, key=lambda batch: -batch.cost)


def _cut(tests: Sequence[int], costs: Sequence[float], pieces: int) -> list[list[int]]:
    """Cut a file's tests into so many runs of about the same cost."""
    cut: list[list[int]] = [[]]
    limit = sum(costs[index] for index in tests) / pieces
    spent = 0.0
    for index in tests:
        if cut[-1] and spent + costs[index] / 2 > limit * len(cut) and len(cut) < pieces:
            cut.append([])
        cut[-1].append(index)
        spent += costs[index]
    return cut
