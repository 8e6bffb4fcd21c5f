"""How long what a tenant recorded is kept: read, and changed (`service.md` 2.8). The purge itself
is hourly, and nobody's to start over HTTP."""

from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import shown_retention
from control_api.requests.base import EmptyRequest, RequestModel
from control_api.responses.management import RetentionSettings
from control_api.store.queries.tenants import StoredTenant
from control_api.tenants.tenant_change import change_tenant, stored

Days = Annotated[int, Field(ge=0, le=3650)]


class NewRetention(RequestModel):
    """Days to keep each for; what is left out stays, 0 keeps for ever."""

    example: ClassVar[dict[str, Any]] = {"retention_days": 730, "session_retention_days": 30}

    retention_days: Days = 365
    session_retention_days: Days = 90


async def show_retention_settings(
    service: AppContext, caller: Caller, _: EmptyRequest
) -> RetentionSettings:
    """Show how long audit events and sessions are kept."""
    async with service.store.reading(caller.tenant.tenant_id) as connection:
        return shown_retention(await stored(connection, caller.tenant.tenant_id))


async def change_retention_settings(
    service: AppContext, caller: Caller, asked: NewRetention
) -> RetentionSettings:
    """Change how long audit events and sessions are kept, from the next purge on."""
    given = asked.model_dump(include=asked.model_fields_set)

    def changed(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        return replace(tenant, **given), given

    tenant_id, by = caller.tenant.tenant_id, caller.by
    return shown_retention(
        await change_tenant(service, tenant_id, "settings.retention", by, changed)
    )
