"""What mypyc compiles without a word, and what then does something else than the same Python."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

from deploy.compile.modules import FILES
from tests.deploy.package.distribution import ROOT

SUSPENDING = (ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Yield, ast.YieldFrom)
KNOWN = {*sys.stdlib_module_names, "policies", "sidecar"}
"""The packages that are there wherever the core is compiled."""


def suspended_handlers(tree: ast.AST) -> Iterator[int]:
    """The lines of the `except` blocks that wait, and of what mypyc turns into such a block."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncWith):
            yield node.lineno
        if isinstance(node, ast.ExceptHandler):
            inside = (each for statement in node.body for each in ast.walk(statement))
            if any(isinstance(each, SUSPENDING) for each in inside):
                yield node.lineno


@pytest.mark.parametrize("file", FILES)
def test_nothing_waits_in_an_except_block(file: str) -> None:
    """The error that is handled is the thread's, not the coroutine's: whatever runs meanwhile may
    replace it, and a bare `raise` then raises None, which ends the process."""
    assert [*suspended_handlers(ast.parse((ROOT / file).read_text("utf-8")))] == []


def test_an_except_block_that_waits_is_found() -> None:
    source = """
async def f(task):
    try:
        await task
    except OSError:
        if task:
            await task
        raise
    async with task:
        pass
"""
    assert [*suspended_handlers(ast.parse(source))] == [9, 5]


def library_bases(tree: ast.AST) -> Iterator[str]:
    """The base classes that come from a library."""
    origins: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            origins |= {each.asname or each.name: str(node.module) for each in node.names}
        if isinstance(node, ast.Import):
            origins |= {each.asname or each.name.split(".")[0]: each.name for each in node.names}
    for node in ast.walk(tree):
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            name = base
            while isinstance(name, ast.Attribute | ast.Subscript):
                name = name.value
            origin = origins.get(name.id) if isinstance(name, ast.Name) else None
            if origin is not None and origin.split(".")[0] not in KNOWN:
                yield ast.unparse(base)


def test_a_base_class_of_a_library_is_found() -> None:
    source = """
import typing
import yarl._url as url
from abc import ABC
from prometheus_client.registry import Collector

class Own(ABC, typing.Generic[int]): ...
class Heir(Own, Collector): ...
class Other(url.URL): ...
class Listing(Own, Collector[int]): ...
"""
    found = [*library_bases(ast.parse(source))]
    assert found == ["Collector", "url.URL", "Collector[int]"]
