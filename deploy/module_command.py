"""Builds the command line that runs a module of Sluice in a new Python process, from a checkout or
from an installed wheel."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGES = Path(__file__).resolve().parent.parent
# Only a wheel has this file. There the packages' folder is not on Python's path, but is a program
# that runs one of them (`deploy/package`).
INSTALLED = (PACKAGES / "__main__.py").is_file()


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the words of a command line that does what `python -m MODULE ARGUMENT…` does, with
    this Python and this copy of Sluice."""
    # `-P` keeps the current folder off the import path: a folder in it may be named like a package.
    return [sys.executable, "-P", str(PACKAGES) if INSTALLED else "-m", module, *arguments]
