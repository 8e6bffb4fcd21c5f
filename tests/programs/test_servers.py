"""The programs that tests bring along: unpacked whole, also by several workers at once, and run
with their own libraries."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import kubernetes, sources
from tests.programs.sources import Debian
from tests.servers import need

UNPACK = """
import sys
from pathlib import Path
from tests.programs import kubernetes
print(kubernetes.program("helm", Path(sys.argv[1])))
"""
VERSION = {"ip": "-V", "rsyslogd": "-v", "varnishd": "-V", "varnishtest": "-h"}
"""How a program is asked for its version, or for anything that needs its libraries."""


@pytest.mark.deep(stands_in="test_an_unpacked_program_is_executable")
def test_two_workers_unpack_the_same_program_at_once(tmp_path: Path) -> None:
    need("helm")
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", UNPACK, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    answers = [worker.communicate(timeout=120)[0].strip() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert len(set(answers)) == 1
    helm = Path(answers[0])
    # Nothing half-written stays beside it.
    assert [path.name for path in helm.parent.iterdir()] == ["helm"]
    version = subprocess.run([helm, "version"], check=True, capture_output=True, timeout=60)
    assert b"version.BuildInfo" in version.stdout


@pytest.mark.parametrize("name", sorted(kubernetes.PROGRAMS))
def test_an_unpacked_program_is_executable(name: str) -> None:
    assert os.access(need(name), os.X_OK)


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name, source in sources.BROUGHT.items()
        if isinstance(sources.SOURCES[source], Debian)
    ),
)
def test_a_debian_program_runs_with_its_own_libraries(name: str) -> None:
    asked = [str(need(name)), VERSION.get(name, "--version")]
    answer = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=60)
    assert re.search(rf"[0-9]\.[0-9]|{name}", answer.stdout + answer.stderr)
    assert "error while loading" not in answer.stderr
