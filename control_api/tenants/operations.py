"""Creates, shows, changes, deactivates and freezes tenants.

While a tenant is inactive, its keys are refused and its sidecars deny everything; its data remains.
During a freeze every evaluation is denied (`CONTRACT.md`, Incident controls).
"""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar

from control_api.auth import Caller, Superadmin
from control_api.edge.answers import Empty, Page, page_of, time_or_none
from control_api.edge.requests import EmptyRequest, Identifier, ListRequest, RequestModel, Text
from control_api.log.append import Changes
from control_api.log.tenant_change import TenantChanges, effective, stored
from control_api.policy.bundle import Policies
from control_api.policy.reload import reload_tenant
from control_api.registry.key_operations import add_key, build_key
from control_api.registry.models import NewKey
from control_api.settings import Settings
from control_api.store.queries import tenant_rows
from control_api.store.queries.tenant_rows import StoredTenant
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from control_api.tenants.models import (
    TENANT_NAME,
    CreatedTenant,
    Freeze,
    TenantRequest,
    TenantResponse,
    TenantSettingsResponse,
    shown_tenant,
)
from policies.definitions.definition import LoadError
from policies.ground.clock import Clock
from policies.ground.errors import Conflict
from policies.ground.ids import prefixed
from policies.ground.keys import make_key
from policies.sets.policy_set import TENANT, tenant_document
from policies.trail.change import ObjectChange


@dataclass(frozen=True, slots=True)
class Tenants:
    """The objects that operations on tenants work with. `entropy(n)` returns n random bytes;
    `settings` bind every tenant; `policies` loads a new tenant's policies from its files."""

    store: Store
    clock: Clock
    entropy: Callable[[int], bytes]
    changes: Changes
    changing: TenantChanges
    settings: Settings
    policies: Policies


class NewSettings(RequestModel):
    """The settings to change. Settings left out keep their value."""

    example: ClassVar[dict[str, Any]] = {"require_agent_id": True}

    tenant_id: Identifier
    require_agent_id: bool = False
    pii_masking: bool = False


async def change_tenant_settings(
    tenants: Tenants, caller: Superadmin, request: NewSettings
) -> TenantSettingsResponse:
    """Change a tenant's settings."""
    # Only the settings that were sent: the model's default must not replace the other's value.
    changes = request.model_dump(include=request.model_fields_set - {"tenant_id"})

    def changed(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        return replace(tenant, **changes), changes

    tenant = await tenants.changing.change(
        request.tenant_id, "tenant.settings", caller.by, changed, _settings
    )
    return _settings(tenant)


def _settings(tenant: StoredTenant) -> TenantSettingsResponse:
    return TenantSettingsResponse(tenant.tenant_id, tenant.require_agent_id, tenant.pii_masking)


_FIRST_KEY = NewKey(name="first admin", scope="admin", expires_days=None)
_log = logging.getLogger("sluice.policies")


class NewTenant(RequestModel):
    """The tenant's name, which must be unique."""

    example: ClassVar[dict[str, Any]] = {"name": "acme"}

    name: Annotated[Identifier, TENANT_NAME]


async def create_tenant(tenants: Tenants, caller: Superadmin, request: NewTenant) -> CreatedTenant:
    """Create a tenant; its admin key is shown only in this response."""
    tenant_id = prefixed("ten_", tenants.entropy(16))
    secret = make_key(tenants.entropy(32))

    async def work(tx: Transaction) -> None:
        if await tenant_rows.find_by_name(tx.connection, tenant_id, request.name) is not None:
            raise Conflict(f"a tenant named `{request.name}` already exists")
        tenant = StoredTenant(tenant_id, request.name, tx.now, False, False, True)
        await tenant_rows.add(tx.connection, tenant)
        await tx.publish({TENANT: tenant_document(effective(tenant, tenants.settings))})
        detail = {"name": tenant.name}
        change = ObjectChange(None, asdict(shown_tenant(tenant)), published=tx.published(TENANT))
        await tenants.changes.record(tx, "tenant.created", tenant_id, caller.by, detail, change)
        admin = build_key(_FIRST_KEY, secret, tenants.entropy(16), tx.now)
        await add_key(tx, admin, caller.by, tenants.changes.new_id())

    await tenants.store.write(tenant_id, work)
    # Committed. If we die here, the caller never sees the admin key; the superadmin creates another
    # with `provision_key`. The tenant's files are loaded when they change, or at the next start.
    try:
        await reload_tenant(tenants.policies, tenant_id, caller.by)
    except LoadError as error:
        # The tenant exists nonetheless; the file watcher retries when the tenant's files change.
        _log.error("the policy files of tenant `%s` can't be loaded: %s", tenant_id, error)
    return CreatedTenant(tenant_id, secret)


async def deactivate_tenant(tenants: Tenants, caller: Superadmin, request: TenantRequest) -> Empty:
    """Deactivate a tenant; its keys stop working until it is reactivated."""

    await tenants.changing.change(
        request.tenant_id,
        "tenant.deactivated",
        caller.by,
        lambda tenant: (replace(tenant, active=False), {}),
        shown_tenant,
    )
    return Empty()


async def reactivate_tenant(
    tenants: Tenants, caller: Superadmin, request: TenantRequest
) -> TenantResponse:
    """Reactivate a tenant; its keys work again."""

    tenant = await tenants.changing.change(
        request.tenant_id,
        "tenant.reactivated",
        caller.by,
        lambda tenant: (replace(tenant, active=True), {}),
        shown_tenant,
    )
    return shown_tenant(tenant)


class NewFreeze(RequestModel):
    """The reason, shown to keys of scope `admin` and `read`. Agents do not see it, and the log does
    not contain it."""

    example: ClassVar[dict[str, Any]] = {"reason": "a leaked key reads contracts"}

    reason: Text


async def freeze_tenant(tenants: Tenants, caller: Caller, request: NewFreeze) -> Freeze:
    """Deny every evaluation of the tenant with `tenant_frozen` until the freeze is lifted, here and
    in every connected sidecar.

    Freezing a frozen tenant changes nothing: the time and reason of the first freeze stay.
    Management, audit and the delivery of records go on.
    """

    def frozen(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        # The first freeze stays: its time says when the denials began.
        if tenant.frozen_at is not None:
            return tenant, {}
        now = tenants.clock.now()
        return replace(tenant, frozen_at=now, freeze_reason=request.reason), {}

    tenant_id = caller.tenant_id
    return _freeze(
        await tenants.changing.change(tenant_id, "tenant.frozen", caller.by, frozen, _freeze)
    )


async def lift_freeze(tenants: Tenants, caller: Caller, _: EmptyRequest) -> Freeze:
    """Lift the tenant's freeze; without one, nothing changes."""

    def lifted(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        # The log then shows how long the freeze lasted.
        since = {"frozen_at": tenant.frozen_at}
        return replace(tenant, frozen_at=None, freeze_reason=None), since

    tenant_id = caller.tenant_id
    return _freeze(
        await tenants.changing.change(tenant_id, "tenant.unfrozen", caller.by, lifted, _freeze)
    )


async def show_freeze(tenants: Tenants, caller: Caller, _: EmptyRequest) -> Freeze:
    """Show whether the tenant is frozen, since when, and why."""
    tenant_id = caller.tenant_id
    async with tenants.store.reading(tenant_id) as connection:
        return _freeze(await stored(connection, tenant_id))


def _freeze(tenant: StoredTenant) -> Freeze:
    at = time_or_none(tenant.frozen_at)
    return Freeze(at is not None, tenant.freeze_reason, at)


async def get_tenant(
    tenants: Tenants, _caller: Superadmin, request: TenantRequest
) -> TenantResponse:
    """Show a tenant."""
    async with tenants.store.reading(request.tenant_id) as connection:
        return shown_tenant(await stored(connection, request.tenant_id))


async def list_tenants(
    tenants: Tenants, _caller: Superadmin, request: ListRequest
) -> Page[TenantResponse]:
    """List tenants, newest first."""
    async with tenants.store.reading_all_tenants() as connection:
        rows = await tenant_rows.page(connection, request.after(int, str), request.limit + 1)
    return page_of(rows, request.limit, lambda row: (row.created_at, row.tenant_id), shown_tenant)
