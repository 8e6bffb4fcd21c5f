"""Keeps compiled bytecode for the test run, wherever the environment forbids it.

`PYTHONDONTWRITEBYTECODE=1`, common in containers, makes every process compile all its imports
again: starting a control API then costs 4 s of CPU instead of 1.5 s, and the suite starts hundreds.
The variable is there to keep `__pycache__` out of the tree, so the bytecode goes to a folder of its
own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def keep(folder: Path) -> None:
    """Do this in the current process, and in every process that inherits its environment."""
    if not sys.dont_write_bytecode:
        return
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(folder)
