"""The names that operators and clients use, read from a version's source: routes, settings, keys of
a sidecar's settings file, and metrics."""

from __future__ import annotations

import ast
import re
from pathlib import Path

Names = dict[str, list[str]]
_ROUTE = re.compile(r'"(GET|POST|PUT|PATCH|DELETE)",\s*"(/[^"]*)"')
_KEY = re.compile(r"^ *#? *(?:- )?([a-z_]+):(?: |$)", re.MULTILINE)
_METRIC = re.compile(r'\(\s*"(sluice_[a-z0-9_]+)",')


def names_in(source: Path) -> Names:
    """The names in the packages in the folder `source`."""
    control = source / "control_api"
    routes = "\n".join(path.read_text() for path in control.rglob("routes.py"))
    example = (source / "sidecar" / "config" / "sidecar.example.yaml").read_text()
    modules = [
        path for name in ("control_api", "sidecar") for path in (source / name).rglob("*.py")
    ]
    return {
        "routes": sorted({f"{method} {path}" for method, path in _ROUTE.findall(routes)}),
        "settings": sorted(f"SLUICE_{name.upper()}" for name in _fields(control / "settings.py")),
        "sidecar": sorted(set(_KEY.findall(example))),
        "metrics": sorted({name for path in modules for name in _METRIC.findall(path.read_text())}),
    }


def _fields(module: Path) -> list[str]:
    """The fields of the class `Settings` in a module."""
    [made] = [
        node
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "Settings"
    ]
    return [
        line.target.id
        for line in made.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    ]


def told(text: str, name: str) -> bool:
    """Whether a text has the name in backticks: by itself, in a longer form, or by its beginning
    and an ellipsis; of a route, its path or the collection that it belongs to is enough."""
    path = name.rpartition(" ")[2]
    forms = [re.escape(path)]
    if path.startswith("/"):
        forms += [re.escape(path.partition("/{")[0])]
    else:
        parts = path.split("_")
        forms += [re.escape("_".join(parts[:n]) + "_…") for n in range(2, len(parts))]
    return any(re.search(rf"`[^`\n]*(?<![\w/]){form}(?![\w/])[^`\n]*`", text) for form in forms)
