"""Carries out the first start with an empty store: creates a tenant, its admin key and the
superadmin key.

    create keys > write the file (0600) > one transaction > print keys

In this order a crash loses nothing: keys in the store are always in the file too, and the next
start uses the keys of a file that it finds beside an empty store. If `SLUICE_KEYS_DIR` names keys
made elsewhere, the admin key is read from there, and no file is written.

Also makes the keys of an installation for the command `make-keys`: in a directory, from which
systemd or Docker Compose hands them to the service, or in a Kubernetes Secret. Never replaces a
key.

A job of the Helm chart makes the Secret before the first replica starts. The keys are made here and
go only to the API server: no manifest, no release record and no person handles them. The job's
account may create Secrets, and read none, so it can't leak a key that is there already.
"""

import base64
import json
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from control_api.log import log_key
from control_api.log.tenant_change import effective
from control_api.registry.key_operations import add_key, build_key
from control_api.registry.models import NewKey
from control_api.settings import Settings
from control_api.store.queries import tenant_rows
from control_api.store.queries.tenant_rows import Installation, StoredTenant
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from control_api.tenants.models import shown_tenant
from policies.ground.errors import worded
from policies.ground.ids import uuid7
from policies.ground.keys import key_digest, make_key, well_formed
from policies.ground.process import secret_file
from policies.ground.process.secret_file import UnusableFile
from policies.ground.process.tls_files import cluster_context
from policies.sets.policy_set import TENANT, tenant_document
from policies.trail.change import ObjectChange, change_record

FILE = "first-start.json"
ADMIN_KEY = "admin.key"
DEFAULT_TENANT = "default"
_ACTOR = "system"


@dataclass(frozen=True, slots=True)
class FirstKeys:
    """The keys that a first start created. `superadmin_key` is None if the operator set one.
    `repr` shows neither key."""

    tenant_id: str
    admin_key: str
    superadmin_key: str | None

    def __repr__(self) -> str:
        return f"FirstKeys(tenant_id={self.tenant_id!r})"


async def first_start(
    store: Store, settings: Settings, entropy: Callable[[int], bytes]
) -> tuple[Installation, FirstKeys | None]:
    """Create the installation if the store has none. Return the installation, and its keys if this
    was the first start."""
    async with store.reading_all_tenants() as connection:
        installed = await tenant_rows.installed(connection)
    if installed is not None:
        return installed, None
    if settings.keys_dir is not None:
        # Every replica reads the same key, so it doesn't matter which of them is first.
        keys = _mounted(settings.keys_dir / ADMIN_KEY)
        await _install(store, settings, entropy, keys)
        return await _installed(store), None
    path = settings.data_dir / FILE
    keys = _unfinished(path, settings) or _make(settings, entropy)
    # The file comes before the commit. If we die in between, the next start finds an empty store
    # and uses the keys in this file; if we die after the commit, the operator finds them in it.
    secret_file.write(path, orjson.dumps(keys, option=orjson.OPT_INDENT_2) + b"\n")
    made = await _install(store, settings, entropy, keys)
    if made is not None:
        return made, keys
    # Another process on the same database was first. Its keys are valid; ours are not.
    path.unlink()
    return await _installed(store), None


async def _installed(store: Store) -> Installation:
    async with store.reading_all_tenants() as connection:
        installed = await tenant_rows.installed(connection)
    assert installed is not None
    return installed


def _mounted(path: Path) -> FirstKeys:
    """Read the admin key that was made elsewhere and mounted at `path`. Raise `UnusableFile` if it
    is not an API key of ours."""
    key = secret_file.read_mounted(path).decode("ascii", errors="replace").strip()
    if not well_formed(key):
        # A key without the checksum of ours would be refused whenever it is used.
        raise secret_file.UnusableFile(f"`{path}` holds no API key of Sluice")
    return FirstKeys(DEFAULT_TENANT, key, None)


def _make(settings: Settings, entropy: Callable[[int], bytes]) -> FirstKeys:
    superadmin = None if settings.superadmin_key else make_key(entropy(32))
    return FirstKeys(DEFAULT_TENANT, make_key(entropy(32)), superadmin)


def _unfinished(path: Path, settings: Settings) -> FirstKeys | None:
    """Return the keys of a first start that died before its commit, read from its file. None if
    there are none to reuse."""
    content = secret_file.read(path)
    if content is None:
        return None
    try:
        wire = orjson.loads(content)
        keys = FirstKeys(wire["tenant_id"], wire["admin_key"], wire["superadmin_key"])
    except (ValueError, KeyError, TypeError):
        # Not what a first start writes. The store is empty, so none of its keys is in use.
        return None
    valid = keys.tenant_id == DEFAULT_TENANT and well_formed(keys.admin_key)
    # The operator may have set or unset the superadmin key since.
    matching = (keys.superadmin_key is None) == (settings.superadmin_key is not None)
    return keys if valid and matching else None


async def _install(
    store: Store, settings: Settings, entropy: Callable[[int], bytes], keys: FirstKeys
) -> Installation | None:
    """Write the installation, its first tenant and that tenant's admin key in one transaction.
    Return None if another process was first."""
    superadmin = keys.superadmin_key

    async def work(tx: Transaction) -> Installation | None:
        epoch = uuid7(tx.now, entropy(10))
        digest = None if superadmin is None else key_digest(superadmin)
        made = Installation(epoch, tx.now, digest)
        if not await tenant_rows.install(tx.connection, made):
            return None
        tenant = StoredTenant(keys.tenant_id, keys.tenant_id, tx.now, False, False, True)
        await tenant_rows.add(tx.connection, tenant)
        await tx.publish({TENANT: tenant_document(effective(tenant, settings))})
        detail = {"name": tenant.name}
        change = ObjectChange(None, asdict(shown_tenant(tenant)), published=tx.published(TENANT))
        what, new_id = ("tenant.created", tenant.tenant_id), uuid7(tx.now, entropy(10))
        await tx.append(change_record(*what, _ACTOR, detail, record_id=new_id, change=change))
        wanted = NewKey(name="first admin", scope="admin", expires_days=None)
        admin = build_key(wanted, keys.admin_key, entropy(16), tx.now)
        await add_key(tx, admin, _ACTOR, uuid7(tx.now, entropy(10)))
        return made

    return await store.write(keys.tenant_id, work)


def write_keys(directory: Path, keys: Mapping[str, bytes]) -> list[str]:
    """Write those of the key files that are missing, each with mode 0600, and return their names.
    Raise `UnusableFile` if the directory can't be written."""
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
    """The Kubernetes API server of the cluster that this pod runs in, and the pod's service account
    there."""

    address: str
    namespace: str
    token: str
    authorities: ssl.SSLContext | None
    """The certificate authorities that vouch for the API server. None means plain HTTP, which only
    tests use."""

    @classmethod
    def of_pod(cls, environ: Mapping[str, str], account: Path = ACCOUNT) -> "Cluster":
        """Return the cluster as the kubelet describes it to every pod. Raise `NoSecret` if this
        process runs in no pod, or the files of its service account can't be read."""
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
    """Make the keys of a new installation, by file name."""
    return {
        log_key.FILE: log_key.fresh(),
        ADMIN_KEY: make_key(entropy(32)).encode(),
        SUPERADMIN_KEY: make_key(entropy(32)).encode(),
    }


async def create(cluster: Cluster, name: str, keys: Mapping[str, bytes]) -> bool:
    """Create the Secret `name`. Return False if it exists already; it is then left unchanged. Raise
    `NoSecret` if it can't be created."""
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
    """Return the message in an error response (`Status`) of the API server."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return "the answer is not one of an API server"
