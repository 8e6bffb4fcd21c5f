"""Installs the libraries that some extras need into a virtual environment, as `requirements.lock`
pins them: only wheels, checked by their hashes, without resolving dependencies. A package index
that sends wrong files can make a build fail, but can't add anything to an image."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.images.layout import TOOLS
from deploy.install import LOCK
from deploy.lock import part

# Secrets of the build (Dockerfile); both may be left out.
_SECRETS = {
    "PIP_CONFIG_FILE": Path("/run/secrets/pip.conf"),
    "PIP_CERT": Path("/run/secrets/certificates"),
}


def install(venv: Path, extras: Sequence[str]) -> None:
    """Install the libraries that the distribution needs with these extras, but not the distribution
    itself."""
    chosen = Path("/tmp/chosen.txt")  # noqa: S108  # of the build's own container
    chosen.write_text(part(LOCK.read_text("utf-8"), [*extras]), "utf-8")
    wheels = ("--no-deps", "--no-compile", "--only-binary", ":all:")
    pip(venv, "install", *wheels, "--require-hashes", "-r", str(chosen))


def pip(venv: Path, *arguments: str) -> None:
    """Run the build stage's pip on a virtual environment."""
    secrets = {name: str(file) for name, file in _SECRETS.items() if file.exists()}
    command = [str(TOOLS / "bin/pip"), "--python", str(venv / "bin/python"), *arguments]
    command += ["--no-input", "--disable-pip-version-check", "--no-cache-dir"]
    subprocess.run(command, check=True, env=os.environ | secrets)


if __name__ == "__main__":
    install(Path(sys.argv[1]), sys.argv[2:])
