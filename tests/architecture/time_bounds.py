"""Finds upper bounds of less than two seconds in tests: a busy machine stands still for that long.

    asyncio.timeout(0.5)        wait_for(done, 1)        thread.join(1)        event.wait(0.2)
    get(url, timeout=0.5)       replace(LIMITS, idle_seconds=0.3)
    assert time.monotonic() - began < 1

A bound is fine if the test expects it to run out: then a busy machine only makes it later. Such a
line says so, at its end or above it: `# expires on purpose`. A file that imports a virtual clock is
not read, since its bounds run out when the test moves the clock.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

SHORTEST = 2.0
ON_PURPOSE = "# expires on purpose"
CLOCKS = ("tests.support.loop_clock",)
"""Modules with a virtual clock."""
READ_CLOCK = frozenset({"monotonic", "perf_counter", "process_time", "time"})
REPLACE = frozenset({"replace", "_replace"})


class Bound(NamedTuple):
    line: int
    text: str


def short_bounds(source: str) -> list[Bound]:
    """The bounds in a file that are too short, and not on purpose."""
    tree, lines = ast.parse(source), source.splitlines()
    if any(map(_imports_clock, ast.walk(tree))):
        return []
    return [
        Bound(node.lineno, ast.unparse(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call | ast.Compare)
        if any(map(_too_short, _bounds(node)))
        if not _on_purpose(lines, node)
    ]


def _imports_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module in CLOCKS


def _on_purpose(lines: list[str], node: ast.Call | ast.Compare) -> bool:
    last = node.end_lineno or node.lineno
    above = lines[node.lineno - 2].strip() if node.lineno > 1 else ""
    return above.startswith(ON_PURPOSE) or any(
        ON_PURPOSE in line for line in lines[node.lineno - 1 : last]
    )


def _too_short(value: ast.expr) -> bool:
    number = isinstance(value, ast.Constant) and type(value.value) in (int, float)
    # Zero doesn't wait at all: it asks what is so now.
    return number and 0 < value.value < SHORTEST  # type: ignore[attr-defined]


def _bounds(node: ast.Call | ast.Compare) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        if any(map(_reads_clock, ast.walk(node.left))) and isinstance(
            node.ops[0], ast.Lt | ast.LtE
        ):
            yield node.comparators[0]
        return
    name = _name(node.func)
    yield from (each.value for each in node.keywords if each.arg == "timeout")
    if name in REPLACE:
        yield from (each.value for each in node.keywords if (each.arg or "").endswith("_seconds"))
    if name in ("timeout", "join", "wait"):
        yield from node.args[:1]
    if name == "wait_for":
        yield from node.args[1:2]


def _reads_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _name(node.func) in READ_CLOCK


def _name(function: ast.expr) -> str:
    """The last part of a function's name."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
