"""The program that containers are run with on this machine, under the name `docker` that documents
use. Knows no image."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

from tests.servers import of_system
from tests.support.documents import put

# `docker compose` is a plugin there, and a program of its own here.
_PODMAN = """#!/bin/sh
[ "$1" = compose ] && {{ shift; exec "{compose}" --podman-path "{podman}" "$@"; }}
exec "{podman}" "$@"
"""


def docker(folder: Path) -> bool:
    """Whether `docker` works, with `folder` first on the path: the real one, if its daemon answers,
    or podman under its name."""
    found = of_system("docker")
    if found and not subprocess.run([found, "info"], capture_output=True, check=False).returncode:
        return True
    podman = of_system("podman")
    if podman is None:
        return False
    compose = Path(sysconfig.get_path("scripts"), "podman-compose")
    put(folder, "docker", _PODMAN.format(compose=compose, podman=podman))
    return True
