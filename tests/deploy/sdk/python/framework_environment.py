"""Virtual environments with the agent frameworks that the recipes run on, and with their vector
stores.

They pin what the project's own lock must not hold. `python -m tests.servers` makes the first one,
and with `--deep` the others. They lie in the virtual environment's folder `frameworks`, or in the
folder that `AGENT_FRAMEWORKS_DIR` names, and are kept until their requirements change.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.deploy.package.distribution import empty_venv
from tests.programs.fetching import Item

SDK = ROOT / "deploy" / "sdk" / "python"
STORES = ROOT / "tests" / "sidecar" / "protocols" / "vector_stores"
OF_STORES = ("llama_milvus", "sql_stores", "vector_stores")
FOLDER = Path(os.environ.get("AGENT_FRAMEWORKS_DIR", Path(sys.prefix) / "frameworks"))
# Environment: the size of its wheels in MB.
USUAL = {"langchain": 14}
DEEP = {
    "frameworks": 90,
    "crewai": 190,
    "vector_stores": 110,
    "llama_milvus": 90,
    "sql_stores": 100,
}
"""Only the deep run needs these."""
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def python_with(name: str) -> Path:
    """The Python of the environment for `<name>.txt`. Skips the test without one."""
    python = _place(name) / "bin" / "python"
    if not python.exists():
        deep = " --deep" if name in DEEP else ""
        pytest.skip(f"no environment {name} here: `python -m tests.servers{deep}` makes it")
    return python


def missing(*, deep: bool) -> list[Item]:
    """The environments that have to be made."""
    wanted = USUAL | DEEP if deep else USUAL
    return [
        Item(name, megabytes, functools.partial(_make, name))
        for name, megabytes in wanted.items()
        if not _place(name).exists()
    ]


def _requirements(name: str) -> Path:
    return (STORES if name in OF_STORES else SDK / "requirements") / f"{name}.txt"


def _place(name: str) -> Path:
    content = _requirements(name).read_bytes() + sys.version.encode()
    return FOLDER / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"


def _make(name: str) -> None:
    place = _place(name)
    for old in FOLDER.glob(f"{name}-*"):
        shutil.rmtree(old)
    begun = FOLDER / f"{name}-begun"
    python = empty_venv(begun)
    command = [*_PIP, "--python", str(python), "install", "--quiet", "--no-deps", "--no-compile"]
    command += ["--only-binary", ":all:", "--require-hashes", "-r", str(_requirements(name))]
    subprocess.run(command, capture_output=True, check=True, timeout=600)
    # It gets its name when it is whole. Its Python finds its libraries wherever it lies; scripts of
    # the frameworks, which name the old path, are not used.
    begun.rename(place)
