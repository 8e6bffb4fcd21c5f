"""What makes this verifier a second one: it shares no code with the product."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

HERE = Path(__file__).parent
ALLOWED = {"cryptography", "tests"}
VERIFIER = {path for path in HERE.glob("*.py") if not path.name.startswith("test_")}


def test_the_second_verifier_imports_only_the_standard_library_and_cryptography() -> None:
    assert len(VERIFIER) > 10
    for path in VERIFIER:
        for name in _imported(path):
            top = name.partition(".")[0]
            assert top in sys.stdlib_module_names | ALLOWED, f"{path.name} imports {name}"
            if top == "tests":
                assert name.startswith("tests.second_verifier"), f"{path.name} imports {name}"


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module or "")
    return names
