"""Makes a copy of the checkout in which the compiled modules lie beside their sources.

A copy, because an extension module beside an edited source would hide the edit. Compiles only what
changed since the last time.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from deploy.compile.compiler import ROOT, compile_modules

LEFT_OUT = (
    ".git", ".venv", ".compiled", ".sluice", "dist", ".hypothesis", "__pycache__", ".*_cache",
    "*.so",
)  # fmt: skip


def make(destination: Path) -> Path:
    """Make or renew `destination/tree`, and return it."""
    built, tree, stamp = (destination / name for name in ("built", "tree", "stamp"))
    inputs = _inputs()
    if not stamp.is_file() or stamp.read_text() != inputs:
        shutil.rmtree(built, ignore_errors=True)
        compile_modules(built)
        stamp.write_text(inputs)
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    shutil.copytree(built, tree, dirs_exist_ok=True)
    return tree


def _inputs() -> str:
    """A digest of what the compiled modules depend on: the types of the sources, and the tools."""
    digest = hashlib.sha256(sys.version.encode())
    sources = (ROOT / package for package in ("policies", "sidecar"))
    files = [each for package in sources for each in package.rglob("*.py")]
    files += (ROOT / "deploy/compile").glob("*.py")
    for path in sorted([*files, ROOT / "requirements.lock"]):
        content = path.read_bytes()
        digest.update(b"%b %d " % (str(path.relative_to(ROOT)).encode(), len(content)) + content)
    return digest.hexdigest()
