"""No regular expression backtracks: text from agents, data sources and callers of the API is
matched in time linear in its length."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture import judged_patterns
from tests.architecture.regex_attack import worst
from tests.architecture.regex_sites import exposed
from tests.architecture.tree import PACKAGES, modules


def test_no_expression_takes_more_than_linear_time(request: pytest.FixtureRequest) -> None:
    """A pattern is attacked until its judgement is recorded; with `--deep`, each is attacked."""
    patterns = {judged_patterns.line(used): used for used in exposed()}
    known = judged_patterns.read()
    # A Python without records of its own attacks all of them, too.
    recorded = known and not request.config.getoption("--deep", default=False)
    new = [used for line, used in patterns.items() if not recorded or line not in known]
    assert not (found := judged_patterns.attack(new)), "\n".join(found)
    if known:
        assert known == patterns.keys(), f"run `{judged_patterns.COMMAND}`, and commit its file"


def test_regular_expressions_are_written_where_the_check_sees_them() -> None:
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


@pytest.mark.deep(stands_in="test_no_expression_takes_more_than_linear_time")
@pytest.mark.parametrize(("pattern", "use"), BACKTRACKING)
def test_an_expression_that_backtracks_is_found(pattern: str, use: str) -> None:
    assert worst(pattern, int(re.DOTALL), frozenset((use,))) is not None
