"""Builds the wheel and the sdist, makes empty virtual environments, and finds other Pythons."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
# In a user's environment, neither the checkout nor a setting of the developer's is found.
OUTSIDE = {"PYTHONPATH": "", "SLUICE_DATA_DIR": ""}


def build(target: str, destination: Path, source: Path = ROOT) -> Path:
    """The file that `target`, `wheel` or `sdist`, becomes. Needs no index."""
    _hatchling(target, destination, source)
    (built,) = destination.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


def build_compiled(destination: Path, python: str = sys.executable) -> Path:
    """The wheel with the core compiled, for this platform and the Python given, which needs the
    extra `compile`."""
    switch = {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "true"}
    _hatchling("wheel", destination, ROOT, python, **switch)
    (built,) = destination.glob("*.whl")
    return built


def _hatchling(
    target: str, destination: Path, source: Path, python: str = sys.executable, **more: str
) -> None:
    command = [python, "-m", "hatchling", "build", "-t", target, "-d", str(destination)]
    # A fixed time makes the same input give the same bytes; without it, hatchling has its own.
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"} | more
    subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True)


def empty_venv(folder: Path, python: str | None = None) -> Path:
    """The Python of a virtual environment in which nothing is installed, not even pip."""
    if python is None:
        venv.create(folder, symlinks=True)
    else:
        subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def install(wheel: Path, python: Path) -> None:
    """Install the wheel alone, with this environment's pip."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*command, "--no-deps", "--no-index", str(wheel)], check=True)


def lend_libraries(python: Path) -> None:
    """Let the environment import what the tests' own has installed, except for Sluice: that is
    found by a `.pth` file, which Python reads in no folder but the environment's own."""
    (folder,) = python.parents[1].glob("lib/python*/site-packages")
    (folder / "lent.pth").write_text(f"{SITE_PACKAGES}\n")
    chroma = Path(sysconfig.get_path("scripts"), "chroma")
    (python.parent / "chroma").symlink_to(chroma)


def other_pythons() -> Iterator[tuple[str, str]]:
    """Version and path of each later or earlier Python that Sluice supports, from the PATH and from
    where version managers keep them."""
    home = Path.home()
    places = [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep)]
    for pattern in (".pyenv/versions/*/bin", ".local/share/uv/python/*/bin"):
        places += sorted(home.glob(pattern))
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}"}
    for minor in (11, 12, 13, 14):
        for place in places:
            program = shutil.which(f"python3.{minor}", path=str(place))
            version = f"3.{minor}"
            if program and version not in found and _runs(program, version):
                found.add(version)
                yield version, program


def _runs(program: str, version: str) -> bool:
    # A version manager's shim exists for versions that are not selected, and fails.
    answer = subprocess.run(
        [program, "-m", "ensurepip", "--version"], capture_output=True, check=False
    )
    if answer.returncode:
        return False
    answer = subprocess.run([program, "-V"], capture_output=True, check=False)
    return bool(re.match(rf"Python {re.escape(version)}\.", answer.stdout.decode()))
