"""Every regular expression of the source and how it is used: found in the syntax tree, and compiled
by importing the module. Run as a program, it takes sites and prints what is compiled, one JSON line
each."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.architecture.tree import PACKAGES, ROOT, modules

FUNCTIONS = frozenset(
    ("compile", "match", "fullmatch", "search", "split", "sub", "subn", "findall", "finditer")
)
ANCHORED = frozenset(("match", "fullmatch"))
# Patterns of no text that anybody outside chooses, and whose it is.
TRUSTED = {
    ("policies/ground/masking/credentials.py", r"(\d+)!"): "python-stdnum's table of countries",
}


class Site(NamedTuple):
    """A call of a function of `re`. `uses` are the methods that are called on its pattern; empty if
    they are not known."""

    path: str
    first: int
    last: int
    pattern: str | None
    """The pattern, as a name or text, of a call that does not compile."""
    uses: frozenset[str]


class Compiled(NamedTuple):
    """A pattern as it was compiled, and where."""

    path: str
    line: int
    pattern: str | bytes
    flags: int


def sites() -> list[Site]:
    """Every call of `re` in the source."""
    trees = [each for package in PACKAGES for each in modules(package)]
    uses: dict[str, set[str]] = defaultdict(set)
    for _, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                uses[node.value.id].add(node.attr)
    return [site for path, tree in trees for site in _sites(path, tree, uses)]


def _sites(path: Path, tree: ast.Module, uses: dict[str, set[str]]) -> Iterator[Site]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_of_re(node.func)]
    if not calls:
        return
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in calls:
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        if name == "escape":
            continue
        assert name in FUNCTIONS, f"{path}:{node.lineno}: `re.{name}` is not known here"
        found, used = None, {name}
        if name == "compile":
            used = _used(node, parents, uses)
        else:
            found = ast.unparse(node.args[0])
        where = str(path.relative_to(ROOT))
        methods = frozenset(used & FUNCTIONS)
        yield Site(where, node.lineno, node.end_lineno or node.lineno, found, methods)


def _is_of_re(called: ast.expr) -> bool:
    return (
        isinstance(called, ast.Attribute)
        and isinstance(called.value, ast.Name)
        and called.value.id == "re"
    )


def _used(node: ast.Call, parents: dict[int, ast.AST], uses: dict[str, set[str]]) -> set[str]:
    """The methods that are called on what `compile` returns, as far as they are known."""
    parent = parents[id(node)]
    if isinstance(parent, ast.Attribute):
        return {parent.attr}
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        return uses[parent.targets[0].id]
    return set()


class Used(NamedTuple):
    """A pattern, and the methods that are called on it; empty if they are not known."""

    compiled: Compiled
    uses: frozenset[str]


def exposed() -> list[Used]:
    """Every pattern that text from outside is matched with. Fails if a site made none."""
    calls = sites()
    pairs: list[tuple[Compiled, Site]] = []
    for each in compiled(calls):
        here = [call for call in calls if call.path == each.path]
        [site] = [call for call in here if call.first <= each.line <= call.last]
        pairs.append((each, site))
    reached = {(site.path, site.first) for _, site in pairs}
    missing = [f"{site.path}:{site.first}" for site in calls if site[:2] not in reached]
    assert not missing, f"add what makes these patterns to `regex_sites._make`: {missing}"
    return [
        Used(each, site.uses) for each, site in pairs if (each.path, each.pattern) not in TRUSTED
    ]


def compiled(calls: list[Site]) -> list[Compiled]:
    """What is compiled when the modules with these calls are imported, in another process."""
    asked = [sys.executable, "-m", "tests.architecture.regex_sites"]
    given = json.dumps([[site.path, site.first, site.pattern] for site in calls])
    answer = subprocess.run(
        asked, cwd=ROOT, input=given, capture_output=True, text=True, check=True
    )
    found = []
    for line in answer.stdout.splitlines():
        path, number, pattern, flags, is_bytes = json.loads(line)
        found.append(
            Compiled(path, number, pattern.encode("latin-1") if is_bytes else pattern, flags)
        )
    return found


def _import_all(calls: list[tuple[str, int, str | None]]) -> None:
    """Import every module that has an expression, and call the functions that compile others. A
    call is its path, its line, and the pattern of one that does not compile."""
    compile_ = re.compile

    def noting(pattern: str | bytes, flags: int = 0) -> re.Pattern[str] | re.Pattern[bytes]:
        made = compile_(pattern, flags)
        here = inspect.currentframe()
        assert here is not None
        caller = here.f_back
        assert caller is not None
        _print(caller.f_code.co_filename, caller.f_lineno, made)
        return made

    re.compile = noting  # type: ignore[assignment]
    for path in sorted({path for path, _, _ in calls}):
        module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
        for place, line, source in calls:
            if place == path and source is not None:
                pattern = eval(source, vars(module))  # the project's own source
                _print(str(ROOT / path), line, compile_(pattern))
    _make()


def _make() -> None:
    """Hostile patterns that a function compiles from what an operator wrote."""
    from policies.definitions.wildcard import matcher
    from policies.ground.masking.mask import mask

    mask("DE44 5001 0517 5407 3249 31")
    for entry in ("*a*a*a*b", "a?*a?*a*b", "*?*?*?a", "*" + "a" * 60 + "b*c", "*aab*aab*b"):
        matcher([entry])
    matcher(["*a*b", "*a*c", "a*a*d"])


def _print(path: str, line: int, made: re.Pattern[str] | re.Pattern[bytes]) -> None:
    if not path.startswith(str(ROOT)) or ".venv" in path:
        return
    text = made.pattern
    is_bytes = isinstance(text, bytes)
    shown = text.decode("latin-1") if isinstance(text, bytes) else text
    flags = made.flags & ~(re.UNICODE if not is_bytes else 0)
    row = [str(Path(path).relative_to(ROOT)), line, shown, int(flags), is_bytes]
    sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    _import_all(json.load(sys.stdin))
