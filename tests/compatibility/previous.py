"""Runs a control API and a sidecar from the source of another version, beside today's."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import fork_server
from tests.support.stack import ROOT, Stack

# The last commit of 0.1, the version before this one.
PREVIOUS = "ea8a4494"
_BEHIND = """
import runpy, time
now = time.time_ns
time.time_ns = lambda: now() - {days} * 86_400 * 10**9
runpy.run_module("control_api", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the previous version."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git history here: an sdist has none; the recordings are tested anyway")
    command = ["git", "archive", PREVIOUS, "policies", "sidecar", "control_api"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if answer.returncode:
        pytest.skip(f"the history of this clone does not reach back to {PREVIOUS}")
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=io.BytesIO(answer.stdout)) as archive:
        # Python before 3.11.4 has no such filter.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder


def of_version(stack: Stack, source: Path = ROOT, *, service: str) -> None:
    """From its next start, have `service`, `control` or `sidecar`, run the packages in `source`."""
    chosen = stack.control if service == "control" else stack.sidecar
    first = chosen.command.index("-m")
    # `-P`: otherwise the working directory, this checkout, would come before PYTHONPATH.
    chosen.command = [sys.executable, "-P", *chosen.command[first:]]
    chosen.environ["PYTHONPATH"] = str(source)


@contextmanager
def days_ago(stack: Stack, days: int) -> Iterator[None]:
    """Run the control API, which must not run yet, with a clock that is so many days behind."""
    command = stack.control.command
    stack.control.command = [sys.executable, "-P", "-c", _BEHIND.format(days=days)]
    try:
        stack.start_control()
        yield
    finally:
        stack.control.stop()
        stack.control.command = command


def control_command(stack: Stack, *arguments: str) -> None:
    """Run a command of the control API's version with its settings, such as `migrate`."""
    command = [*stack.control.command, *arguments]
    fork_server.run(command, {**os.environ, **stack.control.environ}, check=True)


def prepare(stack: Stack) -> None:
    """Like `Stack.prepare`, with keys that never expire: a recording is used for years."""
    stack.sidecar_key, stack.agent_key = (new_key(stack, name) for name in ("sidecar", "evaluate"))
    stack.agent_id = "agt_story"
    new_agent(stack, stack.agent_id)
    stack.write_config()


def new_key(stack: Stack, scope: str, name: str | None = None) -> str:
    """A key as the previous version makes it, without the agents that it speaks for."""
    body = {"name": name or scope, "scope": scope, "expires_days": None}
    key: str = stack.admin("POST", "/v1/keys", body)["key"]
    return key


def new_agent(stack: Stack, agent_id: str) -> None:
    """An approved agent of the stack's role."""
    stack.admin("POST", "/v1/agents", {"agent_id": agent_id, "agent_role": stack.role})
    for status in ("pending_approval", "approved"):
        stack.admin("PATCH", f"/v1/agents/{agent_id}/status", {"status": status})
