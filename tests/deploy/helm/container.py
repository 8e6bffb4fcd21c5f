"""Runs a rendered container's command as a process on this machine: its arguments, its environment
and its volumes, with folders instead of mounts.

Proves that the chart's names are the services' names. What needs a kernel, such as the read-only
root, is for a cluster to show.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.deploy.helm.chart import ROOT, Manifest
from tests.support.ports import free_port

Files = dict[str, bytes]


class Container:
    """The first container of `pod`, with `volumes` for what its Secrets and ConfigMaps hold. In a
    network namespace, given by its process, it listens as it would in a pod; else on free ports."""

    def __init__(
        self,
        pod: Manifest,
        folder: Path,
        volumes: dict[str, Files],
        secrets: dict[str, str],
        namespace: int | None = None,
    ) -> None:
        self.spec = pod["containers"][0]
        self.folder = folder
        own = [each["containerPort"] for each in self.spec.get("ports", [])]
        self.ports = {each: each if namespace else free_port() for each in own}
        self._enter = ["nsenter", f"--net=/proc/{namespace}/ns/net"] if namespace else []
        self._mounts = {
            each["mountPath"]: self._fill(each["name"], volumes.get(each["name"], {}))
            for each in self.spec["volumeMounts"]
        }
        self.environ = {
            each["name"]: self._here(self._value(each, secrets)) for each in self.spec["env"]
        }
        self._log = folder / f"{self.spec['name']}.log"

    def paths(self) -> list[Path]:
        """Every path that its arguments and settings name, but that of its scratch folder."""
        named = [*self.environ.values(), *map(self._here, self.spec["args"])]
        return [Path(text) for text in named if text.startswith("/") and text != "/tmp"]

    def start(self, *arguments: str, **changed: str) -> subprocess.Popen[bytes]:
        """The container's command, or `sluice` with other `arguments`, as by `kubectl exec`."""
        kept = {name: text for name, text in os.environ.items() if "SLUICE" not in name}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [
                    *self._enter,
                    sys.executable,
                    "-m",
                    "deploy.command",
                    *(arguments or map(self._here, self.spec["args"])),
                ],
                cwd=ROOT,
                env={**kept, **self.environ, **changed},
                stdout=log,
                stderr=log,
            )

    def run(self, **changed: str) -> int:
        """The exit code of a container that ends."""
        return self.start(**changed).wait(120)

    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def probe(self, name: str, host: str = "127.0.0.1") -> str:
        """The address that the kubelet asks, on this machine."""
        asked = self.spec[name]["httpGet"]
        ports = {each["name"]: each["containerPort"] for each in self.spec["ports"]}
        port = self.ports[ports.get(asked["port"], asked["port"])]
        return f"{asked.get('scheme', 'HTTP').lower()}://{host}:{port}{asked['path']}"

    def _fill(self, name: str, files: Files) -> Path:
        """A volume as the kubelet writes it: the names are links into a folder that it replaces."""
        target = self.folder / "volumes" / name
        data = target / "..2026_11_22_10_00_00.1"
        data.mkdir(parents=True)
        (target / "..data").symlink_to(data.name)
        for file, content in files.items():
            path = data / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o400)
        for top in {Path(file).parts[0] for file in files}:
            (target / top).symlink_to(f"..data/{top}")
        return target

    def _value(self, variable: dict[str, Any], secrets: dict[str, str]) -> str:
        source = variable.get("valueFrom")
        if source is None:
            return str(variable["value"])
        if "fieldRef" in source:
            return "pod-1"
        reference = source["secretKeyRef"]
        return secrets[f"{reference['name']}/{reference['key']}"]

    def _here(self, text: str) -> str:
        for path, folder in self._mounts.items():
            text = text.replace(path, str(folder))
        for inside, outside in self.ports.items():
            if inside != outside:
                text = text.replace(f"*:{inside}", f"127.0.0.1:{outside}")
        return text
