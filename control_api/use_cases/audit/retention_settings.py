"""Shows and changes how long a tenant's records are kept (`service.md` 2.8).

The purge itself runs hourly; no request starts it.
"""

from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.tenants import change_tenant, stored
from control_api.presenters import shown_retention
from control_api.requests.base import EmptyRequest, RequestModel
from control_api.responses.management import RetentionSettings
from control_api.store.queries.tenants import StoredTenant

Days = Annotated[int, Field(ge=0, le=3650)]


class NewRetention(RequestModel):
    """The days to keep events and sessions. A field left out keeps its value; 0 keeps the data
    forever."""

    example: ClassVar[dict[str, Any]] = {"retention_days": 730, "session_retention_days": 30}
    shown = RetentionSettings

    retention_days: Days = 365
    session_retention_days: Days = 90


async def show_retention_settings(
    app: AppContext, caller: Caller, _: EmptyRequest
) -> RetentionSettings:
    """Show how long audit events and sessions are kept."""
    async with app.store.reading(caller.tenant_id) as connection:
        return shown_retention(await stored(connection, caller.tenant_id))


async def change_retention_settings(
    app: AppContext, caller: Caller, request: NewRetention
) -> RetentionSettings:
    """Change how long audit events and sessions are kept; the next purge applies it."""
    # Only the fields that were sent: the model's default must not replace the other's value.
    given = request.model_dump(include=request.model_fields_set)

    def changed(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        return replace(tenant, **given), given

    tenant_id, by = caller.tenant_id, caller.by
    tenant = await change_tenant(app, tenant_id, "settings.retention", by, changed, shown_retention)
    return shown_retention(tenant)
