"""A session, claimed by whoever is first, and how long it lives. Used by evaluations and sidecars
alike. Knows no HTTP and no check."""

from control_api.app_context import AppContext
from control_api.caches.tenant_state import TenantState
from control_api.store.queries.sessions import SessionRow
from policies.definitions.model import TenantSettings
from policies.sets.role import Role
from policies.trail.record import masked_user


async def claim(
    service: AppContext,
    tenant: TenantState,
    session_id: str,
    agent_role: str,
    agent_id: str | None,
    user_id: str,
) -> SessionRow:
    """The session as the store has it, made now if there was none; remembered for this process.
    Its user is masked first where the tenant masks.

    The documents `tenant` and that of the role must have been asked for (`TenantState.need`).
    """
    policy_set = tenant.policy_set
    if policy_set.masks():
        user_id = masked_user(user_id)
    while True:
        changes = tenant.sessions.changes
        row = await service.sessions.claim(
            tenant.tenant_id,
            session_id,
            agent_role,
            agent_id,
            user_id,
            lifetime(policy_set.role(agent_role), policy_set.settings()),
            service.clock.now(),
        )
        if changes == tenant.sessions.changes:
            break
        # A session was revoked while we read: what we read may be what was before.
    tenant.sessions.keep(row)
    service.instruments.sessions.labels(row.state(service.clock.now())).inc()
    return row


def lifetime(role: Role | None, settings: TenantSettings) -> int:
    """Minutes: the smallest of the role's policies', else the tenant's setting (contract, 3)."""
    if role is not None and role.session_ttl_minutes is not None:
        return role.session_ttl_minutes
    return settings.session_ttl_minutes
