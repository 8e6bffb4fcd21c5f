"""The order of the tests: every test runs once, and the table names only files that exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from tests.order import SLOW, longest_first
from tests.stack import ROOT


@dataclass(frozen=True)
class Item:
    nodeid: str


def items(**counts: int) -> list[pytest.Item]:
    made = [Item(f"{name}::test_{n}") for name, count in counts.items() for n in range(count)]
    return cast(list[pytest.Item], made)


def test_every_slow_file_exists() -> None:
    assert not [name for name in SLOW if not (ROOT / name).is_file()]


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_every_test_runs_once_and_each_worker_begins_with_a_slow_file(workers: int) -> None:
    quick = items(**{"tests/test_a.py": 20, "tests/test_b.py": 15})
    slow = items(**dict.fromkeys(SLOW, 1))
    given = [*quick[:30], *slow, *quick[30:]]
    ordered = longest_first(given, workers)
    assert sorted(each.nodeid for each in ordered) == sorted(each.nodeid for each in given)
    assert ordered[0].nodeid.partition("::")[0] == max(SLOW, key=lambda name: SLOW[name])
    left = len(ordered)
    for index in range(workers):
        assert ordered[len(ordered) - left].nodeid.partition("::")[0] in SLOW
        left -= left // (workers - index)
