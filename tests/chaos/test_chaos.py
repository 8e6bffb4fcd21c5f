"""The most revealing faults, in every test run; `make chaos` makes all of them."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support import redis

SELECTED = ("sidecar killed", "control killed", "PostgreSQL killed", "Redis flushed", "disk fails")
SECONDS = 3.0
PATIENCE = 6.0
"""Shorter faults and more patience than in `make chaos`: other tests run at the same time."""


@pytest.mark.deep(
    stands_in="tests/stories/test_kill.py::test_every_answered_decision_is_recorded_once_through_kills"
)
@redis.needs_redis
async def test_the_promises_hold_under_the_most_telling_faults() -> None:
    """As a process of its own, like `make chaos`: the links need an event loop that never waits."""
    with tempfile.TemporaryDirectory(prefix="sluice-chaos-") as made:
        folder = Path(made)
        folder.chmod(0o711)
        command = [sys.executable, "-m", "tests.chaos", *SELECTED, "--seconds", f"{SECONDS:g}"]
        process = await asyncio.create_subprocess_exec(
            *command,
            "--patience",
            f"{PATIENCE:g}",
            "--keep",
            str(folder / "system"),
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        if process.returncode:
            pytest.fail(output.decode(errors="replace"))
