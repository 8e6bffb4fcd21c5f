"""Small trees of policies and tests, and `sluice policy test` run on one."""

import subprocess
import sys
import textwrap
from pathlib import Path

from deploy.commands.policy.__main__ import main

POLICIES = """\
policies:
  - name: reads
    agent_role: analyst
    allowed_sources: [contracts, handbook]
    denied_sources: [payroll]
    max_sensitivity: high
"""
TESTS = """\
tests:
  - name: reads contracts
    ask: {agent_role: analyst, source_id: contracts, sensitivity_level: low}
    expect: {decision: ALLOW}
  - matrix: {agent_role: [analyst], source_id: [payroll, salaries], sensitivity_level: [low, high]}
    expect_allow: []
"""
FAILING = """\
tests:
  - name: reads salaries
    ask: {agent_role: analyst, source_id: salaries, sensitivity_level: low}
    expect: {decision: ALLOW, policy_name: reads}
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return root


def tree(root: Path, tests: str = TESTS, policies: str = POLICIES) -> Path:
    files = {"default/lending/loans.yaml": policies, "default/lending/loans_test.yaml": tests}
    return write(root, files)


def run(*arguments: str | Path) -> int:
    """The exit code of `sluice policy test` in this process."""
    return main(["test", *map(str, arguments)])


def start(*arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
    """The same as a process."""
    root = Path(__file__).parents[5]
    return subprocess.Popen(
        [sys.executable, "-m", "deploy.commands.policy", "test", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env={"PYTHONPATH": str(root), "PYTHONUNBUFFERED": "1", "PATH": "/usr/bin:/bin"},
    )
