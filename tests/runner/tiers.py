"""Which tests run: the quick ones, the gate, or all of them.

| Tier | Runs | Chosen by |
|---|---|---|
| quick | what costs less than QUICK CPU seconds a case | `make quick`, `--quick` |
| gate | what is not marked deep; a part of a product; one database, one feed | `make test` |
| deep | everything | `make deep`, `--deep` |

`@pytest.mark.deep(stands_in="test_x")` takes a test out of the gate, and names the gate's test that
makes the same claim at less cost. What doesn't run isn't even collected. A test that is named by
its whole id runs in any tier.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import costs

QUICK = 0.02
"""CPU seconds a case of the quick tier."""
COSTLY = 0.5
"""CPU seconds a case from which a test is deep, unless it stands in for others."""
BUDGET = 1000.0
"""CPU seconds that the whole gate may cost by the table."""

ALTERNATIVES = ({"sqlite", "postgresql"}, {"http", "redis"}, {"nft", "iptables"})
"""Databases, feeds of policies to a sidecar, packet filters: the gate runs a test with one."""
ON_BOTH = (
    "tests/control_api/store/",
    "tests/control_api/log/test_kill",
    "tests/control_api/log/test_verify",
)
"""Where the gate, too, runs a test on both databases."""

_DEEP, _QUICK = "deep", "quick"
_tier: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the tiers' options."""
    group = parser.getgroup("tiers", "which tests run")
    group.addoption("--deep", action="store_true", help="every test, and whole products")
    group.addoption("--quick", action="store_true", help="only tests that cost next to nothing")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the tier, before the first test module is imported."""
    config.addinivalue_line("markers", "deep(stands_in): not in the gate, where `stands_in` is")
    config.addinivalue_line("markers", "sampled(by, each): the gate takes some cases")
    config.addinivalue_line("markers", "rotating(turn, of): the gate takes one case in so many")
    by_id = any("::" in str(each) for each in config.args)
    _tier[:] = [_DEEP] * (config.getoption("--deep") or by_id) + [_QUICK] * config.getoption(
        "--quick"
    )


def deep() -> bool:
    """Whether everything runs. Call while tests are collected or run."""
    return _DEEP in _tier


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Don't import a file of which no test is quick."""
    if _QUICK not in _tier or collection_path.suffix != ".py":
        return None
    known = _table().get(collection_path.relative_to(config.rootpath).as_posix())
    return True if known and not any(_is_quick(known, name) for name in known) else None


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: object) -> Any:
    """Don't collect what this tier doesn't run."""
    made = yield
    if not made or not isinstance(collector, pytest.Class | pytest.Module):
        return made
    marks = (*getattr(obj, "pytestmark", ()), *collector.iter_markers("deep"))
    if not deep() and any(mark.name == "deep" for mark in marks):
        return []
    if _QUICK in _tier and not isinstance(made, pytest.Class):
        inner = f"{collector.name}::{name}" if isinstance(collector, pytest.Class) else name
        file = collector.nodeid.partition("::")[0]
        return made if _is_quick(_table().get(file, {}), inner) else []
    if deep():
        return made
    for mark in marks:
        if mark.name == "sampled":
            made = _sample(made, mark)
        if mark.name == "rotating":
            turn, of = mark.args
            made = [item for item in made if _digest(item.callspec.id) % of == turn]
    return _on_one_alternative(made, f"{collector.nodeid}::{name}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run a gate that has outgrown its budget."""
    if _tier or list(session.config.args) != list(session.config.getini("testpaths")):
        return
    table = costs.load()
    files = {item.nodeid.partition("::")[0] for item in session.items}
    fixtures = sum(table.table.get(name, {}).get(costs.FIXTURES, 0.0) for name in files)
    total = fixtures + sum(table.of(item.nodeid) for item in session.items)
    if total > BUDGET:
        raise pytest.UsageError(
            f"the gate costs {total:.0f} CPU seconds by tests/costs.json, over its budget of "
            f"{BUDGET:.0f}: mark costly tests deep, or make them cheaper"
        )


def sampled(*by: str, each: int = 1) -> pytest.MarkDecorator:
    """The gate takes so many of a test's cases that each value of each parameter in `by` is in at
    least `each` of them.

    The choice follows from the cases' ids, so that a new case moves few others."""
    return pytest.mark.sampled(by, each)


def rotating(turn: int, of: int) -> pytest.MarkDecorator:
    """The gate takes one in `of` of a test's cases: those whose turn it is, by their id. Several
    tests with the same cases and different turns share them."""
    return pytest.mark.rotating(turn, of)


def one_of(choices: Sequence[str], key: str) -> list[str]:
    """All choices in the deep tier; in the gate the one that `key` happens to hit."""
    return list(choices) if deep() else [choices[_digest(key) % len(choices)]]


def _on_one_alternative(made: Any, node: str) -> Any:
    """Of a test's cases with each alternative, those with one: with which, its name decides."""
    if not isinstance(made, list) or node.startswith(ON_BOTH):
        return made
    for alternatives in ALTERNATIVES:
        of = {index: _values(item) & alternatives for index, item in enumerate(made)}
        if set().union(*of.values()) == alternatives:
            [chosen] = one_of(sorted(alternatives), node)
            made = [item for index, item in enumerate(made) if of[index] <= {chosen}]
    return made


def _values(item: Any) -> set[str]:
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return {value for value in values if isinstance(value, str)}


def _sample(made: Any, mark: pytest.Mark) -> list[Any]:
    by, each = mark.args
    taken: dict[tuple[str, int], int] = {}
    chosen = set()
    for item in sorted(made, key=lambda item: _digest(item.name)):
        values = [(name, id(item.callspec.params[name])) for name in by]
        if any(taken.get(value, 0) < each for value in values):
            chosen.add(item.name)
            for value in values:
                taken[value] = taken.get(value, 0) + 1
    return [item for item in made if item.name in chosen]


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _is_quick(known: dict[str, float], name: str) -> bool:
    return known.get(name, 1.0) < QUICK and name != costs.FIXTURES


def _table() -> costs.Table:
    if not _loaded:
        _loaded.append(costs.load().table)
    return _loaded[0]


_loaded: list[costs.Table] = []
