"""Inside the service, imports go downwards: http > use cases > adapters > pure parts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import control_api

assert control_api.__file__ is not None
PACKAGE = Path(control_api.__file__).parent

# What the modules of a folder, or a module, may not import.
FORBIDDEN = {
    "store": ("http", "use_cases", "log", "service", "serve", "tenants", "asked", "settings"),
    "log": ("http", "use_cases", "service", "serve", "tenants", "asked", "settings"),
    "use_cases": ("http", "serve", "first_start", "policy_watch", "authenticate"),
    "http": ("store", "log", "serve", "service", "tenants", "authenticate", "settings"),
    "publishing": ("http", "use_cases", "service", "serve", "tenants", "asked", "settings"),
    "workers": ("use_cases", "service", "serve", "store", "log", "tenants", "asked"),
    "asked.py": ("http", "store", "log", "use_cases", "service"),
    "shapes.py": ("http", "store", "log", "use_cases", "service"),
    "policy_plan.py": ("http", "log", "use_cases", "service"),
    "metrics.py": ("http", "store", "log", "use_cases", "service"),
    "settings.py": ("http", "store", "log", "use_cases", "service"),
    "settings_reader.py": ("http", "store", "log", "use_cases", "service", "settings"),
}


def imported(path: Path) -> set[str]:
    """The parts of this package that a file imports, at any depth of it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
    return {name.split(".")[1] for name in names if name.startswith("control_api.")}


@pytest.mark.parametrize("part", FORBIDDEN)
def test_a_layer_imports_none_above_it(part: str) -> None:
    files = [PACKAGE / part] if part.endswith(".py") else sorted((PACKAGE / part).glob("*.py"))
    assert files
    found = {path.name: sorted(imported(path) & set(FORBIDDEN[part])) for path in files}
    assert not {name: parts for name, parts in found.items() if parts}


def test_no_use_case_knows_a_status_a_header_or_a_route() -> None:
    for path in (PACKAGE / "use_cases").glob("*.py"):
        text = path.read_text()
        assert "aiohttp" not in text, path.name
        assert "/v1/" not in text, path.name
