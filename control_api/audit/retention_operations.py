"""Shows and changes how long a tenant's records are kept (`CONTRACT.md`, Verification and
retention), and what was purged.

The purge itself runs hourly; no request starts it.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from control_api.audit.bundle import Audit
from control_api.audit.event_models import AuditPolicyText, PurgeAnchor, Retention
from control_api.auth import Caller
from control_api.edge.field_descriptions import says
from control_api.edge.requests import EmptyRequest, RequestModel
from control_api.log.checks import anchor_answer
from control_api.log.tenant_change import stored
from control_api.store.queries import holds, purges, redactions
from control_api.store.queries.tenant_rows import StoredTenant


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """The time for which a tenant's audit events and sessions are kept, in days and in words
    (`CONTRACT.md`, Verification and retention)."""

    retention_days: int
    session_retention_days: int
    audit_policy: AuditPolicyText
    session_policy: Annotated[str, says("What happens to ended sessions, in words.")]

    example: ClassVar[dict[str, Any]] = {
        "retention_days": 365,
        "session_retention_days": 90,
        "audit_policy": "audit events recorded more than 365 days ago are removed every hour, "
        "the oldest first; the rest still verifies, from the anchor on",
        "session_policy": "sessions that expired or were revoked more than 90 days ago are "
        "removed every hour; their ids are never used again",
    }


def shown_retention(tenant: StoredTenant) -> RetentionSettings:
    return RetentionSettings(
        tenant.retention_days,
        tenant.session_retention_days,
        audit_policy_text(tenant.retention_days),
        _session_policy_text(tenant.session_retention_days),
    )


def audit_policy_text(days: int) -> str:
    """Describe in a sentence when old audit events are removed. 0 days means that they are kept
    forever."""
    if not days:
        return "audit events are kept forever"
    return (
        f"audit events recorded more than {_days(days)} ago are removed every hour, the oldest "
        "first; the rest still verifies, from the anchor on"
    )


def _session_policy_text(days: int) -> str:
    if not days:
        return "expired and revoked sessions are kept forever"
    return (
        f"sessions that expired or were revoked more than {_days(days)} ago are removed every "
        "hour; their ids are never used again"
    )


def _days(days: int) -> str:
    return "1 day" if days == 1 else f"{days} days"


Days = Annotated[int, Field(ge=0, le=3650)]


class NewRetention(RequestModel):
    """The days to keep events and sessions. A field left out keeps its value; 0 keeps the data
    forever."""

    example: ClassVar[dict[str, Any]] = {"retention_days": 730, "session_retention_days": 30}
    shown = RetentionSettings

    retention_days: Days = 365
    session_retention_days: Days = 90


async def show_retention_settings(
    audit: Audit, caller: Caller, _: EmptyRequest
) -> RetentionSettings:
    """Show how long audit events and sessions are kept."""
    async with audit.store.reading(caller.tenant_id) as connection:
        return shown_retention(await stored(connection, caller.tenant_id))


async def change_retention_settings(
    audit: Audit, caller: Caller, request: NewRetention
) -> RetentionSettings:
    """Change how long audit events and sessions are kept; the next purge applies it."""
    # Only the fields that were sent: the model's default must not replace the other's value.
    changes = request.model_dump(include=request.model_fields_set)

    def changed(tenant: StoredTenant) -> tuple[StoredTenant, dict[str, Any]]:
        return replace(tenant, **changes), changes

    tenant_id, by = caller.tenant_id, caller.by
    tenant = await audit.tenants.change(
        tenant_id, "settings.retention", by, changed, shown_retention
    )
    return shown_retention(tenant)


async def show_retention(audit: Audit, caller: Caller, _: EmptyRequest) -> Retention:
    """Show how long audit events are kept, the anchor of the last purge, and what a legal hold
    keeps."""
    tenant_id = caller.tenant_id
    async with audit.store.reading(tenant_id) as connection:
        tenant = await stored(connection, tenant_id)
        anchor = await purges.latest_anchor(connection, tenant_id)
        held = await holds.active(connection, tenant_id)
        size = await redactions.log_size(connection, tenant_id) if held else 0
        kept = range(0 if anchor is None else anchor.purged.size, size)
        held_from = await holds.first_held(connection, tenant_id, held, kept, size)
    return Retention(
        tenant.retention_days,
        audit_policy_text(tenant.retention_days),
        None if anchor is None else PurgeAnchor(**anchor_answer(anchor)),
        held_from if held else None,
    )
