"""A real Kubernetes API server with its etcd, on loopback, with the admission plug-ins that judge
pods. It has no nodes and no controllers: what it admits is stored, and never runs.

No package on the usual registries brings `kube-apiserver`. Tests that need it take it from the PATH
or from the variable `TEST_KUBE_APISERVER`, and `etcd` from the PATH or
`TEST_ETCD`; they are skipped where either is absent. Knows nothing of Sluice.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.ports import free_port
from tests.support.waiting import until

ISSUER = "https://kubernetes.default.svc.cluster.local"
PLUGINS = "MutatingAdmissionPolicy,MutatingAdmissionWebhook,PodSecurity,ServiceAccount"
_VARIABLES = {"kube-apiserver": "TEST_KUBE_APISERVER", "etcd": "TEST_ETCD"}


class Refused(Exception):
    """The API server answered with an error; the text is its message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def program(name: str) -> str:
    """The path of `kube-apiserver` or `etcd`. Skips the calling test if it is absent."""
    found = os.environ.get(_VARIABLES[name]) or shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here: set {_VARIABLES[name]} to its path")
    return found


class ApiServer:
    """One server with an empty store."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self.token = secrets.token_hex(16)
        self.url = f"https://127.0.0.1:{self.port}"
        self.client = httpx.Client(timeout=60)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Return once it is ready."""
        programs = program("etcd"), program("kube-apiserver")
        self.folder.mkdir(parents=True, exist_ok=True)
        etcd = f"http://127.0.0.1:{free_port()}"
        peer = f"http://127.0.0.1:{free_port()}"
        self._run("etcd", [programs[0], *self._etcd(etcd, peer)])
        self._run("kube-apiserver", [programs[1], *self._api_server(etcd)])
        certificate = self.folder / "certificates" / "apiserver.crt"
        until(
            "the API server has made its certificate", lambda: self._alive() and _full(certificate)
        )
        self.client = httpx.Client(
            base_url=self.url,
            verify=ssl.create_default_context(cafile=certificate),
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=60,
        )
        until("the API server is ready", self._ready)
        self.kubeconfig().write_text(json.dumps(self._kubeconfig(certificate)))
        # No controller makes the namespaces' accounts here.
        self.account("default", "default")

    def stop(self) -> None:
        self.client.close()
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    # --------------------------------------------------------------------------------- objects

    def call(self, method: str, path: str, body: object = None, **query: str) -> Any:
        """The parsed response. Raises `Refused` for an error."""
        patch = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        response = self.client.request(method, path, params=query, json=body, headers=patch or None)
        answer = response.json()
        if response.status_code >= 400:
            raise Refused(response.status_code, answer.get("message", response.text))
        return answer

    def apply(self, manifest: dict[str, Any], *, dry_run: bool = False) -> Any:
        """Create or replace the object, refusing fields that it does not have."""
        query = {"fieldValidation": "Strict", "fieldManager": "test", "force": "true"}
        if dry_run:
            query["dryRun"] = "All"
        name = manifest["metadata"]["name"]
        response = self.client.patch(
            f"{self.path_of(manifest)}/{name}",
            params=query,
            content=yaml.safe_dump(manifest),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        if response.status_code >= 400:
            raise Refused(response.status_code, response.json()["message"])
        return response.json()

    def path_of(self, manifest: dict[str, Any]) -> str:
        """The path of the collection that the object belongs to."""
        group = manifest["apiVersion"]
        base = f"/api/{group}" if "/" not in group else f"/apis/{group}"
        resource = self._resources(base)[manifest["kind"]]
        namespace = manifest["metadata"].get("namespace", "default")
        inside = f"/namespaces/{namespace}" if resource["namespaced"] else ""
        return f"{base}{inside}/{resource['name']}"

    def namespace(self, name: str, **labels: str) -> str:
        """A namespace, with the account that pods run as."""
        self.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        )
        self.account(name, "default")
        return name

    def account(self, namespace: str, name: str) -> None:
        """A ServiceAccount."""
        where = {"name": name, "namespace": namespace}
        self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": where})

    def create_pod(self, namespace: str, pod: dict[str, Any], *, dry_run: bool = True) -> Any:
        """The pod as it is stored after admission. Raises `Refused`."""
        query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return self.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod, **query)

    def kubeconfig(self) -> Path:
        """The file by which `kubectl` speaks with this server as an administrator."""
        return self.folder / "kubeconfig"

    # --------------------------------------------------------------------------------- processes

    def _etcd(self, client: str, peer: str) -> list[str]:
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        ]

    def _api_server(self, etcd: str) -> list[str]:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        signing = self.folder / "signing.key"
        signing.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{self.token},admin,1,"system:masters"\n')
        return [
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder / 'certificates'}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={signing}",
            f"--service-account-signing-key-file={signing}",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--enable-admission-plugins={PLUGINS}",
            "--allow-privileged=true",
            "--endpoint-reconciler-type=none",
        ]

    def _run(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def _alive(self) -> bool:
        for process in self._processes:
            assert process.poll() is None, self._log()
        return True

    def _ready(self) -> bool:
        self._alive()
        with contextlib.suppress(httpx.TransportError):
            return self.client.get("/readyz").status_code == 200
        return False

    def _log(self) -> str:
        return "\n".join(path.read_text()[-4000:] for path in sorted(self.folder.glob("*.log")))

    def _resources(self, base: str) -> dict[str, dict[str, Any]]:
        listed = self.call("GET", base)["resources"]
        return {each["kind"]: each for each in listed if "/" not in each["name"]}

    def _kubeconfig(self, certificate: Path) -> dict[str, Any]:
        cluster = {"server": self.url, "certificate-authority": str(certificate)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }


def _full(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


@contextlib.contextmanager
def running_api_server(folder: Path) -> Iterator[ApiServer]:
    """A server that ends with the block."""
    server = ApiServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
