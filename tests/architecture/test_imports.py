"""Which module may import which, what no module may use, and that these rules are enforced."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.direct_imports import direct_imports, forbidden
from tests.architecture.tree import ROOT
from tests.runner import tiers

BIN = Path(sys.executable).parent


def lint_imports(config: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "lint-imports"), "--no-cache", "--config", str(config)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.deep(stands_in="test_no_file_imports_what_a_contract_forbids_it")
def test_every_import_contract_holds() -> None:
    answer = lint_imports(ROOT / "pyproject.toml", ROOT)
    assert answer.returncode == 0, answer.stdout


def test_no_file_imports_what_a_contract_forbids_it() -> None:
    """Directly: what it reaches through another module, `lint-imports` finds."""
    config = (ROOT / "pyproject.toml").read_text()
    pairs = direct_imports()
    assert not forbidden(pairs, config)
    wrong = {
        ("sidecar.enforce", "control_api.settings"),  # independent
        ("policies.evaluate", "time"),  # forbidden
        ("sidecar.spool.instance", "sidecar.enforce"),  # of a higher layer
        ("sidecar.protocols.s3", "sidecar.protocols.rest"),  # of the same layer
    }
    assert {(one, other) for _, one, other in forbidden(wrong, config)} == wrong


def test_no_import_leads_back_to_its_module() -> None:
    """Imports for type checking count. A module's own package does not: it is loaded before."""
    pairs = {
        (one, other) for one, other in direct_imports() if not f"{one}.".startswith(f"{other}.")
    }
    assert _in_circles(pairs) == set()
    assert _in_circles({*pairs, ("control_api.store.url", "control_api.serve")}) >= {
        "control_api.store.url",
        "control_api.serve",
    }


def _in_circles(pairs: set[tuple[str, str]]) -> set[str]:
    """The modules that a circle goes through. What nothing left imports, or imports nothing left,
    is in none."""
    while True:
        lasting = {one for one, _ in pairs} & {other for _, other in pairs}
        left = {pair for pair in pairs if lasting.issuperset(pair)}
        if left == pairs:
            return lasting
        pairs = left


@tiers.sampled("name")
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("policies/evaluate.py", "import sidecar"),
        ("policies/evaluate.py", "import time"),
        ("policies/evaluate.py", "import socket"),
        ("policies/evaluate.py", "import asyncio"),
        ("policies/evaluate.py", "import yaml"),
        ("policies/evaluate.py", "import cryptography"),
        ("sidecar/enforce.py", "import control_api"),
        ("sidecar/enforce.py", "import sqlalchemy"),
        ("sidecar/enforce.py", "import pydantic"),
        ("sidecar/enforce.py", "import deploy"),
        ("control_api/settings.py", "import sidecar"),
        ("control_api/settings.py", "import deploy"),
        ("deploy/command.py", "import sidecar"),
        ("deploy/command.py", "import control_api"),
        ("policies/evaluate.py", "import deploy"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, name: str, line: str) -> None:
    for package in ("policies", "sidecar", "control_api", "deploy"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    for module, library in (("definitions/load", "yaml"), ("ground/signing", "cryptography")):
        path = tmp_path / "policies" / f"{module}.py"
        path.parent.mkdir()
        (path.parent / "__init__.py").touch()
        path.write_text(f"import {library}\n")
    process = tmp_path / "policies" / "ground" / "process"
    process.mkdir()
    (process / "__init__.py").touch()
    config = tmp_path / "pyproject.toml"
    # The layers are those of the real tree; this one has a file for each package.
    config.write_text((ROOT / "pyproject.toml").read_text().partition("# Layers, ")[0])
    assert lint_imports(config, tmp_path).returncode == 0
    (tmp_path / name).write_text(f"{line}\n")
    answer = lint_imports(config, tmp_path)
    assert answer.returncode == 1, answer.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import time\n\ntime.time()\n",
        "import time\n\ntime.monotonic()\n",
        "import time\n\ntime.perf_counter()\n",
        "from datetime import UTC, datetime\n\ndatetime.now(UTC)\n",
        "import asyncio\n\nasyncio.create_task(None)\n",
        "import asyncio\n\nasyncio.ensure_future(None)\n",
        "import os\n\nos.environ.get('A')\n",
        "import os\n\nos.getenv('A')\n",
    ],
)
@pytest.mark.parametrize("package", ["policies", "sidecar", "control_api"])
def test_a_clock_a_loose_task_and_the_environment_are_refused(package: str, code: str) -> None:
    assert "TID251" in checked(package, code)


@pytest.mark.parametrize(
    "code",
    [
        "import random\n\nrandom.random()\n",
        "from random import choice\n\nchoice([1])\n",
        "import random\n\nrandom.SystemRandom()\n",
        "import secrets\n\nsecrets.randbelow(2)\n",
    ],
)
def test_a_test_may_not_draw_without_the_seed_of_the_run(code: str) -> None:
    assert "TID251" in checked("tests", code)


def test_a_test_may_read_the_clock_and_draw_by_a_seed() -> None:
    code = "import random\nimport time\n\nrandom.Random(time.time()).random()\n"
    assert "TID251" not in checked("tests", code)


def checked(package: str, code: str) -> str:
    ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID251"]
    return subprocess.run(
        [*ruff, "--stdin-filename", f"{package}/somewhere.py", "-"],
        cwd=ROOT,
        input=code,
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def test_the_bans_are_lifted_for_mains_and_deploy_alone() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lifted = config["tool"]["ruff"]["lint"]["per-file-ignores"]
    assert {path for path, rules in lifted.items() if "TID251" in rules} == {
        "*/__main__.py",
        "deploy/*.py",
        "deploy/{ci,compile,compose,grafana,images,init,kustomize,local,package,sdk}/**",
        "deploy/commands/client/**",
    }
