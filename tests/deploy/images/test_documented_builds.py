"""The commands of deploy/images/README.md. With SLUICE_IMAGE_BASE they build for real, which takes
minutes and fetches from the registries; without, a stand-in takes what the tool would be told."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from shlex import quote

import pytest

from policies import __version__
from tests.deploy.container_tools import docker
from tests.deploy.launcher import ROOT, environ
from tests.servers import need, of_system
from tests.support.documents import commands, paste, put

PAGE = "deploy/images/README.md"
BASE = os.environ.get("SLUICE_IMAGE_BASE")
# The options of `python -m deploy.images`, by the names that the tools themselves give them.
OPTIONS = re.sub(
    r"--(pip-config|certificates) (\S+)",
    lambda found: f"--secret id={found[1].replace('-config', '.conf')},src={found[2]}",
    os.environ.get("SLUICE_IMAGE_OPTIONS", ""),
)
DIGEST = f"debian:bookworm-slim@sha256:{'a' * 64}"
# Fails unless a target that the Dockerfile has is built from a base with a digest.
TOOL = """#!/usr/bin/env bash
set -euo pipefail
echo "$(basename "$0") $*" >> "$ASKED"
case "$1" in
  build)
    all=" $* "
    [[ "$all" =~ \\ (-f|--file)\\ ([^ ]+)\\  ]] && file="${BASH_REMATCH[2]}"
    [[ "$all" =~ \\ --target\\ ([a-z]+)\\  ]] && grep -q "^FROM .* AS ${BASH_REMATCH[1]}\\$" "$file"
    [[ "$all" =~ BASE=[^\\ ]+@sha256: ]] ;;
  inspect) ;;
  *) exit 3 ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone, in which a reader types."""
    if of_system("git") is None or of_system("make") is None or not (ROOT / ".git").exists():
        pytest.skip("needs git, make and a clone")
    done = paste(f"git clone -q {quote(str(ROOT))} clone", tmp_path, environ())
    assert done.returncode == 0, done.stderr
    return tmp_path / "clone"


def script(title: str, base: str) -> str:
    text = commands(PAGE, title).replace("BASE=debian:bookworm-slim@sha256:…", f"BASE={base}")
    text = text.replace("BASE=…", f"BASE={base}").replace("DATE_EPOCH=…", "DATE_EPOCH=1700000000")
    assert "…" not in text
    return text


def test_the_tool_is_called_as_the_readme_documents(clone: Path, tmp_path: Path) -> None:
    for name in ("docker", "buildah"):
        put(tmp_path / "bin", name, TOOL)
    asked = tmp_path / "asked"
    # The clone's own code, with the libraries of this environment.
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = environ(PATH=path, ASKED=str(asked), PYTHONPATH=str(clone), PYTHON=sys.executable)
    for title in ("build", "build one", "digests", "bills"):
        done = paste(script(title, DIGEST), clone, settings)
        assert done.returncode == 0, f"{title}: {done.stderr}"
    lines = asked.read_text()
    assert lines.count("buildah build") == 4
    assert lines.count("docker build") == 2
    assert f"registry.example/sluice/sidecar:{__version__}" in lines
    settings["PYTHON"] = sys.executable
    done = paste(script("build one", "debian:bookworm-slim"), clone, settings)
    assert done.returncode != 0


@pytest.mark.deep(stands_in="test_the_tool_is_called_as_the_readme_documents")
@pytest.mark.skipif(BASE is None, reason="SLUICE_IMAGE_BASE names no base to build from")
def test_the_images_are_built_as_the_readme_documents(clone: Path, tmp_path: Path) -> None:
    need("buildah")
    if not docker(tmp_path / "bin"):
        pytest.skip("needs docker or podman")
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = environ(PATH=path, PYTHONPATH=str(clone), PYTHON=sys.executable)
    (clone / "bills").mkdir()
    for title in ("build one", "digests", "bills"):
        text = script(title, str(BASE)).replace("-t sluice/sidecar", "-t sluice/sidecar:guide")
        text = text.replace("docker build ", f"docker build {OPTIONS} ")
        text = text.replace(f"sluice/sidecar:{__version__}", "sluice/sidecar:guide")
        done = paste(text, clone, settings)
        assert done.returncode == 0, f"{title}: {done.stderr}"
    assert (clone / "bills/sidecar.cdx.json").is_file()
    shutil.rmtree(clone / "bills")
    paste("docker rmi sluice/sidecar:guide", clone, settings)
