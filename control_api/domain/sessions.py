"""Claims a session for its first caller, for evaluations and sidecars alike, and reads one session
in detail. Knows no HTTP and no check."""

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.app_context import AppContext
from control_api.caches.tenant_state import TenantState
from control_api.presenters import session_detail, session_fields
from control_api.responses.tenants import SessionDetail
from control_api.store.counters import queries as counters
from control_api.store.counters.dimensions import Dimension
from control_api.store.queries import sessions
from control_api.store.queries.sessions import SessionRow
from control_api.store.transaction import Transaction
from policies.definitions.model import TenantSettings
from policies.ground.errors import NotFound
from policies.sets.policy_set import session_name
from policies.sets.role import Role
from policies.trail.change import ObjectChange
from policies.trail.record import masked_user


async def claim(
    app: AppContext,
    tenant: TenantState,
    session_id: str,
    agent_role: str,
    agent_id: str | None,
    user_id: str,
) -> SessionRow:
    """The stored session, created now for its first caller, and cached for this process.

    The caller must have loaded the tenant's document and the role's (`TenantState.need`).
    """
    policy_set = tenant.policy_set
    if policy_set.masks():
        # Mask before anything is stored, as in records: a session must not reveal what they hide.
        user_id = masked_user(user_id)
    while True:
        changes = tenant.sessions.changes
        row = await app.sessions.claim(
            tenant.tenant_id,
            session_id,
            agent_role,
            agent_id,
            user_id,
            lifetime(policy_set.role(agent_role), policy_set.settings()),
            app.clock.now(),
        )
        if changes == tenant.sessions.changes:
            break
        # A session was revoked while we read. The row may predate the revocation: read again.
    tenant.sessions.keep(row)
    app.instruments.decisions.sessions.labels(row.state(app.clock.now())).inc()
    return row


async def log_revocation(app: AppContext, tx: Transaction, row: SessionRow, by: str) -> None:
    """Log the revocation of a session, which `tx` has published. `row` is the revoked one. The log
    gets the session as the list of sessions shows it: without its user."""
    detail = {"agent_role": row.agent_role, "agent_id": row.agent_id}
    change = ObjectChange(
        session_fields(row._replace(revoked_at=None), tx.now),
        session_fields(row, tx.now),
        published=tx.published(session_name(row.session_id)),
    )
    await app.log_change(tx, "session.revoked", row.session_id, by, detail, change)


def lifetime(role: Role | None, settings: TenantSettings) -> int:
    """A session's lifetime in minutes: the shortest that one of the role's policies sets, or else
    the tenant's setting (contract, section 3)."""
    if role is not None and role.session_ttl_minutes is not None:
        return role.session_ttl_minutes
    return settings.session_ttl_minutes


async def read_session(
    connection: AsyncConnection, tenant_id: str, session_id: str, now: int
) -> SessionDetail:
    """The session as of `now`, in microseconds; `NotFound` if it was never claimed."""
    row = await sessions.find(connection, tenant_id, session_id)
    if row is None:
        raise NotFound(f"no such session: `{session_id}`")
    counted = await counters.one_of(connection, tenant_id, Dimension.session, session_id)
    return session_detail(row, counted, now)
