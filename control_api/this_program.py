"""Builds the command line that runs a module of the control API in a new Python process, from a
checkout or an installed wheel."""

import sys
from pathlib import Path

IMPACT_RUN = "impact-run"
"""The command-line argument that starts the process of an impact run
(`control_api.policy.impact_process`). Only the service passes it, so `--help` does not list it."""
_PACKAGES = Path(__file__).resolve().parents[1]


def this_program(module: str = "control_api") -> list[str]:
    """Return the command line that runs the module with this Python and these packages."""
    # Pass `-P` on: without it, the current folder would come first on the new one's path.
    safe_path = ["-P"] if sys.flags.safe_path else []
    # Installed from a wheel, the packages are not on Python's path; their folder is a program that
    # runs one of them (deploy/INTERNALS.md, "Wheels").
    runner = str(_PACKAGES) if (_PACKAGES / "__main__.py").is_file() else "-m"
    return [sys.executable, *safe_path, runner, module]
