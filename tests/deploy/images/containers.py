"""Runs containers from the images that `make images` built, with the podman and runtime that are
here. Skips, with a reason, what this machine can't run."""

from __future__ import annotations

import functools
import json
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.servers import need, of_system

ROOT = Path(__file__).resolve().parents[3]
# What every orchestrator should give them: no rights, no writable root.
CONFINED = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
_LIMIT = 4096
_RUNTIMES = ("crun", "runc")


def podman(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run podman, and return its exit code and output."""
    command = [str(need("podman")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


@functools.cache
def image(name: str) -> str:
    """The image `sluice/<name>` of this version. Skips unless it was built from these sources."""
    from policies import __version__

    reference = f"sluice/{name}:{__version__}"
    found = podman("image", "inspect", reference)
    if found.returncode:
        pytest.skip(f"no image {reference} here: `make images BASE=…` builds it")
    built_from = json.loads(found.stdout)[0]["Labels"]["org.opencontainers.image.revision"]
    if built_from != (revision := _revision()):
        pytest.skip(f"{reference} is of {built_from}, not of {revision}: `make images` again")
    return reference


def inspect(reference: str) -> dict[str, Any]:
    """What podman knows of an image."""
    found: dict[str, Any] = json.loads(podman("image", "inspect", reference).stdout)[0]
    return found


@functools.cache
def options() -> tuple[str, ...]:
    """podman's options for a run on this machine."""
    # Without CAP_SYS_RESOURCE, a runtime can't raise the limits to podman's own defaults.
    limits = []
    for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        hard = resource.getrlimit(number)[1]
        most = _LIMIT if hard == resource.RLIM_INFINITY else min(hard, _LIMIT)
        limits.append(f"--ulimit={name}={most}:{most}")
    errors = []
    for runtime in filter(of_system, _RUNTIMES):
        tried = ("--runtime", runtime, "run", "--rm", *limits, "--network=none")
        answer = podman(*tried, image("sidecar"), "--version")
        if answer.returncode == 0:
            return tried
        errors.append(f"{runtime}: {answer.stderr.strip()}")
    pytest.skip(f"podman can't run a container here: {'; '.join(errors) or 'no runtime'}")


def run(name: str, *arguments: str, more: tuple[str, ...] = ()) -> str:
    """The output of a confined container of the image `name`."""
    answer = podman(*options(), *CONFINED, *more, image(name), *arguments)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def python(name: str, program: str, *more: str) -> str:
    """The output of a Python program inside the image."""
    return run(name, "-c", program, more=("--entrypoint=python", *more))


@contextmanager
def mounted(reference: str) -> Iterator[Path]:
    """The image's root file system, read-only."""
    answer = podman("image", "mount", reference)
    if answer.returncode:
        pytest.skip(f"podman can't mount an image here: {answer.stderr.strip()}")
    try:
        yield Path(answer.stdout.strip().split()[-1])
    finally:
        podman("image", "unmount", reference)


def _revision() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40"]
    answer = subprocess.run([*command, "--exclude=*"], capture_output=True, text=True, check=False)
    return answer.stdout.strip()
