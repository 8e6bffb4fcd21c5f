"""No regular expression backtracks: text from agents, data sources and callers of the API is
matched in time linear in its length."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.architecture.regex_attack import worst
from tests.architecture.regex_sites import Compiled, Site, compiled, sites
from tests.architecture.tree import PACKAGES, modules

# Patterns of no text that anybody outside chooses, and whose it is.
TRUSTED = {
    ("policies/ground/masking/ibans.py", r"(\d+)!"): "python-stdnum's table of countries",
}


@cache
def _found() -> list[tuple[Compiled, Site]]:
    """Every pattern, with the call that makes it."""
    calls = sites()
    pairs = []
    for each in compiled():
        here = [call for call in calls if call.path == each.path]
        [site] = [call for call in here if call.first <= each.line <= call.last]
        pairs.append((each, site))
    return pairs


def test_every_expression_of_the_source_is_attacked() -> None:
    reached = {(site.path, site.first) for _, site in _found()}
    missing = [f"{site.path}:{site.first}" for site in sites() if site[:2] not in reached]
    assert not missing, "add what makes these patterns to `regex_sites._make`"


def test_expressions_are_made_where_the_walk_sees_them() -> None:
    """Only as `re.…`: not under another name, and not by pydantic with Python's engine (its default
    engine is Rust's, which does not backtrack)."""
    for package in PACKAGES:
        for path, tree in modules(package):
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom):
                    assert node.module not in ("re", "sre_compile", "regex"), path
                if isinstance(node, ast.Import):
                    assert not any(each.name == "re" and each.asname for each in node.names), path
                if isinstance(node, ast.Constant):
                    assert node.value != "python-re", path


@pytest.mark.parametrize("package", PACKAGES)
def test_no_expression_takes_more_than_linear_time(package: str) -> None:
    found = []
    for each, site in _found():
        trusted = (each.path, each.pattern) in TRUSTED
        if each.path.startswith(f"{package}/") and not trusted:
            attack = worst(each.pattern, each.flags, site.uses)
            if attack is not None:
                found.append(f"{each.path}:{each.line} {each.pattern!r}\n    {attack}")
    assert not found, "\n".join(found)


_TABLE = r"(?:`[^`]+`|[A-Za-z0-9_.@](?:[A-Za-z0-9_.@*-]*[A-Za-z0-9_@*-])?)"

BACKTRACKING = [
    (r"(a+)+b", "match"),
    (r"(?:a|a)*b", "match"),
    (r"a*a*b", "match"),
    (r"(?:\s*,\s*)*x", "match"),
    (r"[0-9]+x", "search"),
    (r"\s+\Z", "search"),
    (r"(\w+\s?)*;", "fullmatch"),
    (r"(?:/[^/]*)*/a(?:/[^/]*)*/b", "fullmatch"),
    (r"([^/]+)a([^/]+)a([^/]+)b", "fullmatch"),
    (rf"(?:.*?[\s\]])??({_TABLE}(?:\s*,\s*{_TABLE})*)(?:\s+as\s+\w+)?\s*", "fullmatch"),
]


@pytest.mark.parametrize(("pattern", "use"), BACKTRACKING)
def test_an_expression_that_backtracks_is_found(pattern: str, use: str) -> None:
    assert worst(pattern, int(re.DOTALL), frozenset((use,))) is not None
