"""Makes an installation's keys: in a directory, from which systemd or Docker Compose hands them to
the service, or in a Kubernetes Secret. Never replaces a key.

A job of the Helm chart makes the Secret before the first replica starts. The keys are made here and
go only to the API server: no manifest, no release record and no person handles them. The job's
account may create Secrets, and read none, so it can't leak a key that is there already.
"""

import base64
import json
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from control_api.log import log_key
from control_api.tenants.bootstrap import ADMIN_KEY
from policies.ground.errors import worded
from policies.ground.keys import make_key
from policies.ground.process.secret_file import UnusableFile
from policies.ground.process.tls_files import cluster_context


def write_keys(directory: Path, keys: Mapping[str, bytes]) -> list[str]:
    """Write the files that are missing, each with mode 0600. Returns the names of those written.
    Raises `UnusableFile`."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableFile(f"`{directory}` can't be created: {worded(error)}") from error
    written = []
    for name, content in keys.items():
        path = directory / name
        try:
            # Exclusive, and no link is followed: a key that is there may be in use.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        except OSError as error:
            raise UnusableFile(f"`{path}` can't be written: {worded(error)}") from error
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        written.append(name)
    return written


ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SUPERADMIN_KEY = "superadmin.key"
_SECONDS = 30
# The most that is read of a refusal.
_MESSAGE = 65536
_CREATED, _CONFLICT = 201, 409


class NoSecret(Exception):
    """the Secret with the keys can't be created"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The API server of the cluster that this pod runs in, and the pod's account there."""

    address: str
    namespace: str
    token: str
    authorities: ssl.SSLContext | None
    """None for plain HTTP, which only tests use: a cluster's API server speaks HTTPS."""

    @classmethod
    def of_pod(cls, environ: Mapping[str, str], account: Path = ACCOUNT) -> "Cluster":
        """Return the cluster as the kubelet describes it to every pod. Raises `NoSecret` outside of
        one."""
        host, port = (environ.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
        if not host or not port:
            raise NoSecret("KUBERNETES_SERVICE_HOST is not set: this is no pod of a cluster")
        name = f"[{host}]" if ":" in host else host
        try:
            return cls(
                f"https://{name}:{port}",
                (account / "namespace").read_text("ascii").strip(),
                (account / "token").read_text("ascii").strip(),
                cluster_context(cafile=str(account / "ca.crt")),
            )
        except (OSError, ValueError) as error:
            raise NoSecret(f"`{account}` does not hold a service account: {error}") from error

    def __repr__(self) -> str:
        return f"Cluster({self.address!r}, {self.namespace!r})"


def fresh_keys(entropy: Callable[[int], bytes]) -> dict[str, bytes]:
    """Return the files of a new installation's Secret."""
    return {
        log_key.FILE: log_key.fresh(),
        ADMIN_KEY: make_key(entropy(32)).encode(),
        SUPERADMIN_KEY: make_key(entropy(32)).encode(),
    }


async def create(cluster: Cluster, name: str, keys: Mapping[str, bytes]) -> bool:
    """Create the Secret `name`; False if it exists, and then nothing has changed. Raises
    `NoSecret`."""
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": "sluice", "app.kubernetes.io/part-of": "sluice"},
        },
        "type": "Opaque",
        "data": {key: base64.b64encode(value).decode() for key, value in keys.items()},
    }
    # Creating is the only step: to ask first whether the Secret exists would need the right to read
    # it, and two jobs could both be told that it does not.
    connector = TCPConnector(ssl=True if cluster.authorities is None else cluster.authorities)
    try:
        async with (
            ClientSession(connector=connector, timeout=ClientTimeout(_SECONDS)) as session,
            session.post(
                f"{cluster.address}/api/v1/namespaces/{cluster.namespace}/secrets",
                json=body,
                headers={"Authorization": f"Bearer {cluster.token}"},
                allow_redirects=False,
            ) as response,
        ):
            if response.status == _CREATED:
                return True
            if response.status == _CONFLICT:
                return False
            # The API server's refusals name the account and the right that it lacks, not the body.
            message = _message(await response.content.read(_MESSAGE))
            raise NoSecret(f"Secret `{name}` is refused with {response.status}: {message}")
    except (ClientError, TimeoutError, OSError) as error:
        raise NoSecret(f"`{cluster.address}` does not answer: {error}") from error


def _message(body: bytes) -> str:
    """Return the sentence in a `Status` of the API server."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return "the answer is not one of an API server"
