"""The first start with an empty store: a tenant, its admin's key, the superadmin's key.

    keys made > file written (0600) > one transaction > keys printed

Knows the order in which a crash loses nothing: a store that has keys has them in a file, and a file
without a store is taken up by the next start.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson

from control_api.keys.key_change import add_key, build_key
from control_api.requests.key import NewKey
from control_api.security import secret_file
from control_api.settings import Settings
from control_api.store.queries import tenants
from control_api.store.queries.tenants import Installation, StoredTenant
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from control_api.tenants.tenant_settings import effective
from policies.ground.ids import uuid7
from policies.ground.keys import key_digest, make_key, well_formed
from policies.sets.policy_set import TENANT, tenant_document
from policies.trail.record import change_record

FILE = "first-start.json"
DEFAULT_TENANT = "default"
_BY = "system"


@dataclass(frozen=True, slots=True)
class FirstKeys:
    """What a first start made. `superadmin_key` is None where the operator set it. Its
    representation shows neither."""

    tenant_id: str
    admin_key: str
    superadmin_key: str | None

    def __repr__(self) -> str:
        return f"FirstKeys(tenant_id={self.tenant_id!r})"


async def first_start(
    store: Store, settings: Settings, entropy: Callable[[int], bytes]
) -> tuple[Installation, FirstKeys | None]:
    """The installation, and what was made for it if this was its first start."""
    async with store.reading_all_tenants() as connection:
        installed = await tenants.installed(connection)
    if installed is not None:
        return installed, None
    path = settings.data_dir / FILE
    keys = _unfinished(path, settings) or _make(settings, entropy)
    # Before the store knows them: if we die after the commit, they are in the file, and if we die
    # before, the next start finds an empty store and takes these up.
    secret_file.write(path, orjson.dumps(_wire(keys), option=orjson.OPT_INDENT_2) + b"\n")
    made = await _install(store, settings, entropy, keys)
    if made is not None:
        return made, keys
    # Another process was first, on a database that we share: its keys count, ours open nothing.
    path.unlink()
    async with store.reading_all_tenants() as connection:
        installed = await tenants.installed(connection)
    assert installed is not None
    return installed, None


def _make(settings: Settings, entropy: Callable[[int], bytes]) -> FirstKeys:
    superadmin = None if settings.superadmin_key else make_key(entropy(32))
    return FirstKeys(DEFAULT_TENANT, make_key(entropy(32)), superadmin)


def _unfinished(path: Path, settings: Settings) -> FirstKeys | None:
    """The keys of a first start that died before its commit."""
    content = secret_file.read(path)
    if content is None:
        return None
    try:
        wire = orjson.loads(content)
        keys = FirstKeys(wire["tenant_id"], wire["admin_key"], wire["superadmin_key"])
    except (ValueError, KeyError, TypeError):
        return None
    sound = keys.tenant_id == DEFAULT_TENANT and well_formed(keys.admin_key)
    # The operator may have set the superadmin's key since, or taken it back.
    matching = (keys.superadmin_key is None) == (settings.superadmin_key is not None)
    return keys if sound and matching else None


def _wire(keys: FirstKeys) -> dict[str, str | None]:
    return {
        "tenant_id": keys.tenant_id,
        "admin_key": keys.admin_key,
        "superadmin_key": keys.superadmin_key,
    }


async def _install(
    store: Store, settings: Settings, entropy: Callable[[int], bytes], keys: FirstKeys
) -> Installation | None:
    """All of it in one transaction; None where another process was first."""
    superadmin = keys.superadmin_key

    async def work(tx: Transaction) -> Installation | None:
        epoch = uuid7(tx.now, entropy(10))
        digest = None if superadmin is None else key_digest(superadmin)
        made = Installation(epoch, tx.now, digest)
        if not await tenants.install(tx.connection, made):
            return None
        tenant = StoredTenant(keys.tenant_id, keys.tenant_id, tx.now, False, False, True)
        await tenants.add(tx.connection, tenant)
        await tx.publish({TENANT: tenant_document(effective(tenant, settings))})
        detail = {"name": tenant.name}
        record_id = uuid7(tx.now, entropy(10))
        await tx.append(
            change_record("tenant.created", tenant.tenant_id, _BY, detail, record_id=record_id)
        )
        wanted = NewKey(name="first admin", scope="admin", expires_days=None)
        admin = build_key(wanted, keys.admin_key, entropy(16), tx.now)
        await add_key(tx, admin, _BY, uuid7(tx.now, entropy(10)))
        return made

    return await store.write(keys.tenant_id, work)
