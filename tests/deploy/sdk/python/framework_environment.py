"""Virtual environments with the agent frameworks that the recipes run on, made at first use.

They pin what the project's own lock must not hold. One lies in the virtual environment's folder
`frameworks`, or in the folder that `AGENT_FRAMEWORKS_DIR` names, and is kept until its
requirements change.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.deploy.package.distribution import empty_venv

SDK = ROOT / "deploy" / "sdk" / "python"
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
# What pip says of files that are not those of the requirements. Anything else that stops it is the
# registry's or the network's.
_TAMPERED = "DO NOT MATCH THE HASHES"


def python_with(name: str) -> Path:
    """The Python of the environment for `requirements/<name>.txt`. Skips the test if the registry
    can't be reached, or has no file for this Python or machine."""
    requirements = SDK / "requirements" / f"{name}.txt"
    folder = Path(os.environ.get("AGENT_FRAMEWORKS_DIR", Path(sys.prefix) / "frameworks"))
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:16]
    place = folder / f"{name}-{digest}"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be making it
        if not (place / "ready").exists():
            for old in folder.glob(f"{name}-*"):
                shutil.rmtree(old)
            _make(place, requirements)
            (place / "ready").touch()
    return place / "bin" / "python"


def _make(place: Path, requirements: Path) -> None:
    python = empty_venv(place)
    command = [*_PIP, "--python", str(python), "install", "--quiet", "--no-deps", "--no-compile"]
    command += ["--only-binary", ":all:", "--require-hashes", "-r", str(requirements)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if answer.returncode == 0:
        return
    shutil.rmtree(place)
    assert _TAMPERED not in answer.stderr, answer.stderr
    pytest.skip(f"`{requirements.name}` can't be installed: {answer.stderr.strip()[-500:]}")
