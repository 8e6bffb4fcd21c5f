"""Builds both images: `python -m deploy.images --base debian:bookworm-slim@sha256:…`.

Determines the arguments of the Dockerfile (version, revision, time of the commit) and calls the
build tool that is installed: buildah, podman or docker. Knows nothing of what is inside the images.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = "deploy/images/Dockerfile"
# Target of the Dockerfile: the image's name, as the chart's values have it.
TARGETS = {"sidecar": "sidecar", "server": "control"}
TOOLS = ("buildah", "podman", "docker")


class CannotBuild(Exception):
    """the images can't be built; the message says why, and what to do"""


def main(arguments: list[str] | None = None) -> int:
    """Build the images, and print their names. Returns 0, 1 for a failure, 2 for unusable
    arguments."""
    options, more = _parser().parse_known_args(arguments)
    try:
        tool = options.tool or next(filter(shutil.which, TOOLS), None)
        if tool is None:
            raise CannotBuild(f"none of {', '.join(TOOLS)} is installed; install one of them")
        if not re.search(r"@sha256:[0-9a-f]{64}\Z", options.base):
            # A tag may move: a build from it could not be repeated.
            raise CannotBuild(f"--base must end in `@sha256:<digest>`, but is `{options.base}`")
        for target in options.target or TARGETS:
            name = f"{options.name}/{TARGETS[target]}:{_version()}"
            command = build_command(tool, target, name, options)
            subprocess.run([*command, *more, str(ROOT)], check=True)
            print(name, flush=True)
    except (CannotBuild, OSError, subprocess.CalledProcessError) as problem:
        print(f"sluice: {problem}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.images",
        description="Builds the container images. Options that are not listed here go to the tool.",
    )
    add = parser.add_argument
    add("--base", required=True, help="a Debian 12 image by digest, to take packages from")
    add("--target", action="append", choices=TARGETS, help="one image (default: both)")
    add("--name", default="sluice", help="what stands before `/sidecar` and `/control`")
    add("--tool", choices=TOOLS, help="default: the first that is installed")
    add("--source", default="", help="the address of the source code, for the image's label")
    add("--pip-config", type=Path, help="a configuration for pip, for the build alone")
    add("--certificates", type=Path, help="the authorities that pip trusts, for the build alone")
    return parser


def build_command(tool: str, target: str, name: str, options: argparse.Namespace) -> list[str]:
    """Return the command line that builds one image, without the build's folder at its end. Raises
    `CannotBuild` if the commit's time is unknown."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct")
    if not epoch:
        raise CannotBuild("set SOURCE_DATE_EPOCH: outside a clone, the commit's time is unknown")
    facts = {
        "BASE": options.base,
        "SOURCE_DATE_EPOCH": epoch,
        "VERSION": _version(),
        "REVISION": _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"),
        "SOURCE": options.source,
    }
    command = [tool, "build", "--file", str(ROOT / DOCKERFILE), "--target", target, "--tag", name]
    for fact, value in facts.items():
        command += ["--build-arg", f"{fact}={value}"]
    secrets = {"pip.conf": options.pip_config, "certificates": options.certificates}
    for secret, path in secrets.items():
        if path is not None:
            command += ["--secret", f"id={secret},src={path.resolve()}"]
    if tool != "docker":
        # Docker takes the time from the build argument; these have an option of their own.
        command += ["--layers", "--timestamp", epoch]
    return command


def _version() -> str:
    text = (ROOT / "policies/__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        raise CannotBuild("policies/__init__.py has no `__version__`")
    return found[1]


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""  # the label stays empty
    return answer.stdout.strip() if answer.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main())
