"""An extra is enough: the services start with what it installs, though the tests' environment has
all the others' libraries too."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest

from deploy.install import LOCK, pins
from deploy.lock import part
from tests.deploy.launcher import ROOT, environ

# Finds nothing of what another extra brings, and then imports a module as its command would.
CODE = """
import importlib, sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name in {absent} else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
for module in {modules}:
    importlib.import_module(module)
"""


def absent(extra: str) -> set[str]:
    """The top-level modules of every distribution that the extra does not lead to."""
    text = part(LOCK.read_text(), [extra])
    present = {block.partition("==")[0] for block in pins(text)} | {"sluice-governance"}

    def canonical(name: str) -> str:
        return re.sub("[-_.]+", "-", name).lower()

    return {
        module
        for module, owners in packages_distributions().items()
        if not present & set(map(canonical, owners))
    }


@pytest.mark.parametrize(
    ("extra", "modules"),
    [
        (
            "base",
            [
                "deploy.commands.policy.__main__",
                "deploy.commands.postgres.__main__",
                "deploy.command",
                "deploy.commands.client.client",
                "deploy.init.run",
            ],
        ),
        (
            "sidecar",
            [
                "sidecar.__main__",
                "sidecar.doctor.__main__",
                "sidecar.redirect.__main__",
                "sidecar.wait.__main__",
            ],
        ),
        (
            "server",
            [
                "control_api.serve",
                "control_api.tenants.bootstrap",
                "deploy.kubernetes.admission.__main__",
            ],
        ),
    ],
)
def test_each_extra_is_enough_to_import_its_modules(extra: str, modules: list[str]) -> None:
    missing = absent(extra)
    assert {"redis", "botocore", "chromadb"} <= missing
    code = CODE.format(absent=sorted(missing), modules=modules)
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
