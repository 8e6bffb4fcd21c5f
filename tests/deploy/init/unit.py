"""Runs a unit's command as systemd does, as far as the service can tell: with its environment, its
credentials and its state directory. What only the kernel enforces is `systemd-analyze`'s part."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.deploy.launcher import ROOT, environ


class Unit:
    """One unit below `root`, a folder that stands for `/`."""

    def __init__(self, root: Path, name: str, instance: str = "") -> None:
        self._root = root
        self._name = name
        self._state, self._credentials = root / "var/lib", root / f"run/credentials/{name}"
        self._specifiers = {
            "%d": str(self._credentials),
            "%S": str(self._state),
            "%i": instance,
        }
        self.keys: dict[str, list[str]] = defaultdict(list)
        for line in (root / "etc/systemd/system" / name).read_text().splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.startswith(("#", "[")):
                self.keys[key].append(self._expand(value))

    def start(self, program: str) -> subprocess.Popen[str]:
        """Start `ExecStart`. `program` is the path in it that stands for this checkout's."""
        self._credentials.mkdir(parents=True)
        for each in self.keys["LoadCredential"]:
            name, _, path = each.partition(":")
            copy = self._credentials / name
            copy.write_bytes(self._inside(path).read_bytes())
            copy.chmod(0o400)
        for each in self.keys["StateDirectory"]:
            (self._state / each).mkdir(parents=True, mode=0o700)
        settings = [pair for line in self.keys["Environment"] for pair in shlex.split(line)]
        for file in self.keys["EnvironmentFile"]:
            lines = self._inside(file).read_text().splitlines()
            settings += [line for line in lines if line and not line.startswith("#")]
        first, *arguments = shlex.split(self.keys["ExecStart"][0])
        assert first == program
        here = [str(self._inside(each)) if each[:5] == "/etc/" else each for each in arguments]
        with (self._root / f"{self._name}.log").open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "deploy.command", *here],
                cwd=ROOT,
                env=environ(**dict(pair.split("=", 1) for pair in settings)),
                stdout=log,
                stderr=log,
                text=True,
            )

    def said(self) -> str:
        return (self._root / f"{self._name}.log").read_text()

    def _inside(self, path: str) -> Path:
        return self._root / path.lstrip(os.sep)

    def _expand(self, text: str) -> str:
        for specifier, value in self._specifiers.items():
            text = text.replace(specifier, value)
        return text
