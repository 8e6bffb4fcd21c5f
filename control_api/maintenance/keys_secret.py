"""Creates the Kubernetes Secret with an installation's keys, unless it exists. A job of the Helm
chart runs this before the first replica starts.

The keys are made here and go only to the API server: no manifest, no release record and no person
handles them. The job's account may create Secrets, and read none, so it can't leak a key that is
there already.
"""

import base64
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from control_api.log import log_key
from control_api.maintenance.bootstrap import ADMIN_KEY
from control_api.security.cluster_tls import cluster_context
from policies.ground.keys import make_key

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
        """What the kubelet tells every pod. Raises `NoSecret` outside of one."""
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
    """The files of a new installation's Secret."""
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
    """The sentence in a `Status` of the API server."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return "the answer is not one of an API server"
