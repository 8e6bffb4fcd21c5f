"""An installed wheel shows its own SHA-256, wherever its readers are told to install one."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from tests.deploy.launcher import environ
from tests.deploy.package.distribution import OUTSIDE

# What the console's pages for evidence and downloads are given, and then a report's page.
SHOWN = """
import sys
sys.path.insert(0, sys.argv[1])
from control_api.console.views.audit.checkpoints import installing
from deploy.commands.report import page
print(installing()["digest"], page.wheel_digest())
"""


def test_an_installed_wheel_shows_the_sha256_of_its_file(
    wheel: Path, complete: Path, tmp_path: Path
) -> None:
    expected = hashlib.sha256(wheel.read_bytes()).hexdigest()

    def printed(*command: object) -> str:
        outside = environ(**OUTSIDE)
        return subprocess.check_output([*map(str, command)], cwd=tmp_path, env=outside, text=True)

    assert f"wheel's SHA-256: {expected}\n" in printed(complete.parent / "sluice", "--version")
    (packages,) = complete.parents[1].glob("lib/python3*/site-packages/sluice/lib")
    assert printed(complete, "-c", SHOWN, packages).split() == [expected] * 2
