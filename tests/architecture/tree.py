"""The project's own files, and what their source declares. Imports none of them."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("policies", "sidecar", "control_api", "deploy")
GENERATED = {".git", ".venv", ".compiled", ".sluice", "__pycache__", "dist"}


def files() -> list[Path]:
    """All files that are committed or would be; without git, all that are not generated."""
    if shutil.which("git") and (ROOT / ".git").exists():
        asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        answer = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
        found = [ROOT / name for name in answer.stdout.split("\0") if name]
        return [path for path in found if path.is_file()]
    every = [path for path in ROOT.rglob("*") if path.is_file()]
    return [
        path
        for path in every
        if path.suffix != ".so"
        and not any(
            part in GENERATED or part.endswith("_cache") for part in path.relative_to(ROOT).parts
        )
    ]


def modules(package: str) -> Iterator[tuple[Path, ast.Module]]:
    """The package's files, parsed."""
    for path in sorted((ROOT / package).rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"), str(path))


def strings(tree: ast.Module) -> Iterator[str]:
    """Whole string literals, without f-strings and docstrings."""
    pieces = {
        id(piece)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for piece in node.values
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in pieces
        ):
            yield node.value


def name_of(node: ast.expr) -> str:
    """The called name: `Counter` for `Counter(…)` and for `prometheus_client.Counter(…)`."""
    if isinstance(node, ast.Call):
        return name_of(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
