"""Runs test suites of others in processes of their own, against a server and then through the
sidecar, and compares what their tests find."""

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[4]
LONGEST = 1800
"""Seconds after which a suite is given up."""
# The others of the environment are used by no suite, and import for seconds.
_PLUGINS = ("asyncio", "hypothesispytest", "tests.sidecar.protocols.chroma.suite_plugin")


class Outcome(NamedTuple):
    """How a test of the suite went."""

    outcome: str
    """`passed`, `failed` or `skipped`."""
    reason: str
    """The last line of what a failed test printed."""


async def run_suite(
    root: Path,
    tests: Iterable[str],
    folder: Path,
    environment: Mapping[str, str],
    packages: Path,
) -> dict[str, Outcome]:
    """Each test's outcome by its id.

    `tests` are files and folders below `root`, `packages` is a folder that precedes the
    environment's own. The suite writes to `folder` alone and reaches loopback alone. Hypothesis
    draws the same in every run, and little.
    """
    folder.mkdir()
    # Without a file of settings, pytest would take this project's.
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    outcomes = folder / "outcomes"
    command = [
        *(sys.executable, "-W", "ignore", "-m", "pytest", "-c", str(folder / "pytest.ini")),
        *(f"--rootdir={root}", "--quiet", "--tb=short"),
        *("--hypothesis-seed=0", "--hypothesis-profile=suite"),
        *(each for name in (*_PLUGINS, "no:cacheprovider") for each in ("-p", name)),
        *(str(root / each) for each in tests),
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env={
            **os.environ,
            "HOME": str(folder),
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(map(str, (packages, ROOT))),
            "SUITE_OUTCOMES": str(outcomes),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "ANONYMIZED_TELEMETRY": "false",
            **environment,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), LONGEST)
    # 0: all passed, 1: some failed. All else is a suite that didn't run.
    assert process.returncode in (0, 1), output.decode()[-20_000:]
    (folder / "output").write_bytes(output)
    lines = [json.loads(line) for line in outcomes.read_text().splitlines()]
    return {name: Outcome(outcome, reason) for name, outcome, reason in lines}


def lost(straight: Mapping[str, Outcome], through: Mapping[str, Outcome]) -> dict[str, str]:
    """The tests that pass straight and don't through the sidecar, each with what it says there."""
    return {
        name: through[name].reason if name in through else "not run"
        for name, found in straight.items()
        if found.outcome == "passed" and (name not in through or through[name].outcome != "passed")
    }
