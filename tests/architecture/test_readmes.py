"""Each setting, metric, route and check is described in its package's README, INTERNALS.md or
OPERATIONS.md, or in those of a folder inside the package."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.tree import PACKAGES, ROOT, modules, name_of, strings

METRIC = re.compile(r"sluice_[a-z0-9_]+\Z")
PATH = re.compile(r"/(?:v1/|health|metrics\b|docs\b|openapi)[\w/{}.-]*\Z")


def settings(package: str) -> set[str]:
    """The fields of every dataclass in `settings.py`, or in a folder of that name."""
    return {
        line.target.id.rstrip("_")
        for path, tree in modules(package)
        if path.name == "settings.py" or path.parent.name == "settings"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        if any(name_of(each) == "dataclass" for each in node.decorator_list)
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }


def metrics(package: str) -> set[str]:
    """The first argument of every call with a metric's name: an instrument, or a function that
    makes one."""
    return {
        node.args[0].value
        for _, tree in modules(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
        if METRIC.match(node.args[0].value)
    }


def paths(package: str) -> set[str]:
    """The paths of a package's own routes, and of those it calls."""
    return {text for _, tree in modules(package) for text in strings(tree) if PATH.match(text)}


def checks(package: str) -> set[str]:
    """The files of `checks/` that contain a check: a function with the file's name."""
    return {
        path.stem
        for path, tree in modules(package)
        if path.parent.name == "checks"
        and any(isinstance(node, ast.FunctionDef) and node.name == path.stem for node in tree.body)
    }


def told(readme: str, name: str) -> bool:
    """Whether the name is in backticks: by itself, in a longer path of keys, in capitals, or as an
    option."""
    forms = (
        rf"`[^`\n]*(?<![\w/]){re.escape(name)}(?![\w/{{])[^`\n]*`",
        rf"`[^`\n]*SLUICE_\w*{re.escape(name.upper())}\b[^`\n]*`",
        rf"`[^`\n]*--{re.escape(name.replace('_', '-'))}\b[^`\n]*`",
    )
    return any(re.search(form, readme) for form in forms)


@pytest.mark.parametrize("declared", [settings, metrics, paths, checks])
@pytest.mark.parametrize("package", PACKAGES)
def test_a_readme_tells_of_everything_declared(package: str, declared: object) -> None:
    assert callable(declared)
    names = ("README.md", "INTERNALS.md", "OPERATIONS.md")
    pages = [page for name in names for page in (ROOT / package).rglob(name)]
    readme = "\n".join(path.read_text() for path in sorted(pages))
    assert not [name for name in sorted(declared(package)) if not told(readme, name)]


@pytest.mark.deep(stands_in="test_a_readme_tells_of_everything_declared")
def test_the_search_finds_settings_metrics_and_routes() -> None:
    assert len(checks("policies")) == 10
    for package in ("sidecar", "control_api"):
        assert len(settings(package)) > 5
        assert len(metrics(package)) > 5
        assert "/v1/context/evaluate" in paths(package)
        assert "/health/ready" in paths(package)
    assert "chroma_listen" in settings("deploy")
