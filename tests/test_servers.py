"""The programs that tests bring along: unpacked whole, also by several workers at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import debian_programs, kubernetes_programs
from tests.servers import need

UNPACK = """
import sys
from pathlib import Path
from tests import debian_programs, kubernetes_programs
print(kubernetes_programs.program("helm", Path(sys.argv[1])))
"""


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


@pytest.mark.parametrize("name", sorted(kubernetes_programs.PROGRAMS))
def test_an_unpacked_program_is_executable(name: str) -> None:
    assert os.access(need(name), os.X_OK)


@pytest.mark.parametrize("name", ["nft", "iptables", "chromium"])
def test_an_unpacked_program_runs_with_its_own_libraries(name: str, tmp_path: Path) -> None:
    if not os.environ.get("SLUICE_FETCH"):
        pytest.skip("SLUICE_FETCH is not set: this test downloads Debian's packages")
    folder = tmp_path / "a folder's name"
    debian_programs.fetch(name, folder)
    script = debian_programs.place(name, folder)
    version = subprocess.run([script, "--version"], check=True, capture_output=True, timeout=60)
    assert re.search(rb" v?[0-9]+\.[0-9]", version.stdout)
