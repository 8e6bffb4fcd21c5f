"""The wheel of an image is built where nothing is installed but what the Dockerfile installs, from
the files that it copies. A checkout's environment has every library, and proves nothing of that."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from deploy.compile.build_hook import REQUIRED
from deploy.compile.compiler import missing
from deploy.compile.modules import FILES, GROUPS
from deploy.install import LOCK
from deploy.lock import part
from tests.deploy.images.test_dockerfile import STAGES
from tests.deploy.launcher import environ
from tests.deploy.package.distribution import OUTSIDE, ROOT, empty_venv, install

TOOLS = STAGES["tools"][1]


def extras() -> list[str]:
    """The extras of the lock that the build's environment has."""
    found: list[str] = re.findall(r"-m deploy\.images\.libraries /tools (.*)$", TOOLS, re.MULTILINE)
    [names] = found
    return names.split()


def copy_sources(folder: Path) -> None:
    """Copy what the Dockerfile copies, and nothing else of the checkout."""
    for line in re.findall(r"(?m)^COPY (.*)$", TOOLS):
        *sources, target = line.split()
        for source in sources:
            place = folder / target / (Path(source).name if target.endswith("/") else "")
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.so")
                shutil.copytree(ROOT / source, folder / target, ignore=ignored, dirs_exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)


def make_tools(folder: Path) -> Path:
    """The Python of an environment with the locked libraries of the build, from pip's index. Skips
    the test without one."""
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    locked = folder / "locked.txt"
    locked.write_text(part(LOCK.read_text("utf-8"), extras()), "utf-8")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run(
        [*pip, "--require-hashes", "-r", str(locked)], capture_output=True, text=True, check=False
    )
    if re.search("No matching distribution|Temporary failure|Connection", done.stderr):
        pytest.skip(f"no index for pip here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return python


def test_the_dockerfile_installs_and_copies_everything_that_the_build_needs() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project, wheel = settings["project"], settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    wanted = {"pyproject.toml", project["readme"], *project["license-files"]}
    copied = [line.split() for line in re.findall(r"(?m)^COPY (.*)$", TOOLS)]
    sources = {name for *names, _ in copied for name in names}
    assert {*wheel["only-include"], *wanted} <= sources
    assert "compile" in extras()
    assert set(REQUIRED) <= set(project["optional-dependencies"]["compile"])


@pytest.mark.deep(
    stands_in="test_the_dockerfile_installs_and_copies_everything_that_the_build_needs"
)
def test_the_compiled_wheel_is_built_with_only_what_the_dockerfile_provides(
    tmp_path: Path,
) -> None:
    if lacking := missing():
        pytest.skip(f"the core can't be compiled here: {lacking}")
    source, wheels = tmp_path / "source", tmp_path / "wheel"
    copy_sources(source)
    tools = make_tools(tmp_path / "tools")
    # The services' libraries are not there, as in the image's build.
    absent = "import prometheus_client"
    assert subprocess.run([tools, "-c", absent], capture_output=True, check=False).returncode
    [command] = re.findall(r"(?m)^RUN (HATCH_BUILD_HOOK_ENABLE_CUSTOM=.*)$", TOOLS)
    (setting, program, *words) = shlex.split(command)
    assert program == "/tools/bin/pip"
    words = [str(wheels) if word == "/wheel" else word for word in words]
    clean = environ(**OUTSIDE, SOURCE_DATE_EPOCH="1700000000")
    done = subprocess.run(
        [str(tools), "-m", "pip", *words],
        cwd=source,
        env=clean | dict([setting.split("=")]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = wheels.glob("sluice_governance-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        compiled = [name for name in archive.namelist() if name.endswith(".so")]
    assert len(compiled) == len(FILES) + len(GROUPS)
    python = empty_venv(tmp_path / "host")
    install(wheel, python)
    said = subprocess.check_output([python.parent / "sluice", "--version"], env=clean, text=True)
    assert ", the core is compiled\n" in said
    assert os.fspath(ROOT) not in said
