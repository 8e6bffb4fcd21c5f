"""Runs a unit's command as systemd does, as far as the service can tell: with its environment, its
credentials and its state directory. What only the kernel enforces is `systemd-analyze`'s part."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.deploy.launcher import ROOT, environ
from tests.support.waiting import PATIENCE


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
        self._notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notified.settimeout(PATIENCE)
        # Relative to the working directory: the path of a socket has at most 107 bytes.
        place = os.path.relpath(self._root / f"{len(list(self._root.iterdir()))}.sock", ROOT)
        with contextlib.chdir(ROOT):
            self._notified.bind(place)
        settings.append(f"NOTIFY_SOCKET={place}")
        with (self._root / f"{self._name}.log").open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "deploy.command", *here],
                cwd=ROOT,
                env=environ(**dict(pair.split("=", 1) for pair in settings)),
                stdout=log,
                stderr=log,
                text=True,
            )

    def wait_ready(self) -> None:
        """Return when `systemctl start` does, for a unit of the type `notify`."""
        assert self.keys["Type"] == ["notify"]
        try:
            assert self._notified.recv(100) == b"READY=1"
        except TimeoutError:
            raise AssertionError(self.said()) from None
        finally:
            self._notified.close()

    def said(self) -> str:
        return (self._root / f"{self._name}.log").read_text()

    def _inside(self, path: str) -> Path:
        return self._root / path.lstrip(os.sep)

    def _expand(self, text: str) -> str:
        for specifier, value in self._specifiers.items():
            text = text.replace(specifier, value)
        return text
