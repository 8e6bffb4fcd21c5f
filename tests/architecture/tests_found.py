"""Finds every test function by reading the files, and which of them are marked deep."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.architecture.tree import ROOT

_PARTS = ("tiers.sampled(", "tiers.rotating(")


class Function(NamedTuple):
    """A test function of a file, as in a node's id without the case."""

    file: str
    name: str
    """`test_x` or `TestClass::test_x`."""
    deep: bool
    stands_in: str | None
    """`file::name` of the gate's test that a deep one names."""
    in_part: bool = False
    """Whether the gate takes only some of its cases."""

    @property
    def node(self) -> str:
        """`file::name`."""
        return f"{self.file}::{self.name}"


def in_tree() -> list[Function]:
    """Every test function of the suite. A class that inherits tests of another is left out."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [each for file in files for each in in_text(_name(file), file.read_text("utf-8"))]


def everywhere() -> set[str]:
    """The names of all functions and methods of the suite that may be tests."""
    texts = (file.read_text("utf-8") for file in (ROOT / "tests").rglob("*.py"))
    return {name for text in texts for name in re.findall(r"def (test\w*)\(", text)}


def in_text(file: str, text: str) -> Iterator[Function]:
    """The test functions of one file."""
    body = ast.parse(text).body
    whole = [mark for each in body if _is_marks(each) for mark in _listed(each)]
    for each in body:
        if isinstance(each, ast.ClassDef) and each.name.startswith("Test") and not each.bases:
            for inner in each.body:
                yield from _function(file, inner, f"{each.name}::", [*whole, *each.decorator_list])
        yield from _function(file, each, "", whole)


def _function(
    file: str, found: ast.stmt, prefix: str, marks: Sequence[ast.expr]
) -> Iterator[Function]:
    if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    if found.name.startswith("test"):
        named = [_deep(mark) for mark in (*marks, *found.decorator_list)]
        deep = [each for each in named if each is not None]
        stands_in = deep[0] if deep else None
        if stands_in and not stands_in.startswith("tests/"):
            stands_in = f"{file}::{stands_in}"
        in_part = any(ast.unparse(each).startswith(_PARTS) for each in found.decorator_list)
        yield Function(file, prefix + found.name, bool(deep), stands_in, in_part)


def _deep(mark: ast.expr) -> str | None:
    """What a mark's `stands_in` says; "" if it is missing; None if this is another mark."""
    call = mark.func if isinstance(mark, ast.Call) else mark
    if ast.unparse(call) != "pytest.mark.deep":
        return None
    for given in mark.keywords if isinstance(mark, ast.Call) else ():
        if given.arg == "stands_in" and isinstance(given.value, ast.Constant):
            return str(given.value.value)
    return ""


def _is_marks(found: ast.stmt) -> bool:
    return isinstance(found, ast.Assign) and ast.unparse(found.targets[0]) == "pytestmark"


def _listed(found: ast.stmt) -> list[ast.expr]:
    assert isinstance(found, ast.Assign)
    value = found.value
    return list(value.elts) if isinstance(value, ast.List | ast.Tuple) else [value]


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()
