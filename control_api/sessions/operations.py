"""Claims, shows and lists sessions, and revokes one or many (`CONTRACT.md`, Incident controls)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from prometheus_client import Counter
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.auth import Caller
from control_api.edge.answers import Page, page_of
from control_api.edge.field_descriptions import says
from control_api.edge.requests import Identifier, ListRequest, RequestModel, Text
from control_api.log.append import Changes
from control_api.policy.publishing.assembly import Publishing
from control_api.sessions import ending
from control_api.sessions.ending import SessionFilter, SessionPosition
from control_api.sessions.models import (
    Revoked,
    SessionDetail,
    SessionResponse,
    session_detail,
    session_fields,
)
from control_api.store.counters import queries as counters
from control_api.store.counters.counters import Dimension
from control_api.store.queries import session_rows
from control_api.store.queries.session_rows import SessionClaimer, SessionRow
from control_api.store.store import Store
from control_api.store.tenant_state import TenantState
from control_api.store.transaction import Transaction
from policies.definitions.model import SessionState, TenantSettings
from policies.ground.clock import Clock
from policies.ground.errors import NotFound, invalid
from policies.sets.policy_set import session_document, session_name
from policies.sets.role import Role
from policies.trail.change import ObjectChange
from policies.trail.record import masked_user


@dataclass(frozen=True, slots=True)
class Sessions:
    """The objects that operations on sessions work with. `publishing` is None without Redis;
    `claims` counts claims by the state of the claimed session."""

    store: Store
    clock: Clock
    changes: Changes
    claimer: SessionClaimer
    publishing: Publishing | None
    claims: Counter


class SessionsRequest(ListRequest):
    """Every filter is an exact match; a session must match all that are given. `status` is the
    session's status at the time of the request."""

    agent_role: Identifier | None = None
    status: Annotated[SessionState | None, says("Only sessions with this status.")] = None


async def list_sessions(
    sessions: Sessions, caller: Caller, request: SessionsRequest
) -> Page[SessionResponse]:
    """List sessions, newest first."""
    now = sessions.clock.now()
    async with sessions.store.reading(caller.tenant_id) as connection:
        rows = await session_rows.page(
            connection,
            caller.tenant_id,
            agent_role=request.agent_role,
            state=request.status,
            now=now,
            after=request.after(int, str),
            limit=request.limit + 1,
        )
    return page_of(
        rows,
        request.limit,
        lambda row: (row.created_at, row.session_id),
        lambda row: SessionResponse(**session_fields(row, now)),
    )


async def claim(
    sessions: Sessions,
    tenant: TenantState,
    session_id: str,
    agent_role: str,
    agent_id: str | None,
    user_id: str,
) -> SessionRow:
    """Claim a session: return its row, which is created now if this is the first claim, and cache
    it in this process.

    The caller must have loaded the tenant's document and the role's (`TenantState.need`).
    """
    policy_set = tenant.policy_set
    if policy_set.masks():
        # Mask before anything is stored, as in records: a session must not reveal what they hide.
        user_id = masked_user(user_id)
    while True:
        changes = tenant.sessions.changes
        row = await sessions.claimer.claim(
            tenant.tenant_id,
            session_id,
            agent_role,
            agent_id,
            user_id,
            lifetime(policy_set.role(agent_role), policy_set.settings()),
            sessions.clock.now(),
        )
        if changes == tenant.sessions.changes:
            break
        # A session was revoked while we read. The row may predate the revocation: read again.
    tenant.sessions.keep(row)
    sessions.claims.labels(row.state(sessions.clock.now())).inc()
    return row


async def log_revocation(sessions: Sessions, tx: Transaction, row: SessionRow, by: str) -> None:
    """Record in the log that a session was revoked. `tx` must have published its revocation, and
    `row` is the revoked session. The log gets the session as the list of sessions shows it: without
    its user."""
    detail = {"agent_role": row.agent_role, "agent_id": row.agent_id}
    change = ObjectChange(
        session_fields(row._replace(revoked_at=None), tx.now),
        session_fields(row, tx.now),
        published=tx.published(session_name(row.session_id)),
    )
    await sessions.changes.record(tx, "session.revoked", row.session_id, by, detail, change)


def lifetime(role: Role | None, settings: TenantSettings) -> int:
    """Return a session's lifetime in minutes: the shortest that one of the role's policies sets, or
    else the tenant's setting (`CONTRACT.md`, Sessions)."""
    if role is not None and role.session_ttl_minutes is not None:
        return role.session_ttl_minutes
    return settings.session_ttl_minutes


async def read_session(
    connection: AsyncConnection, tenant_id: str, session_id: str, now: int
) -> SessionDetail:
    """Return the session as of `now`, in microseconds. Raise `NotFound` if it was never claimed."""
    row = await session_rows.find(connection, tenant_id, session_id)
    if row is None:
        raise NotFound(f"no such session: `{session_id}`")
    counted = await counters.one_of(connection, tenant_id, Dimension.session, session_id)
    return session_detail(row, counted, now)


class SessionRequest(RequestModel):
    """A request about one session, which the path names by its id."""

    session_id: Identifier


async def get_session(sessions: Sessions, caller: Caller, request: SessionRequest) -> SessionDetail:
    """Show one session; a session that was never claimed is not found."""
    tenant_id = caller.tenant_id
    async with sessions.store.reading(tenant_id) as connection:
        return await read_session(connection, tenant_id, request.session_id, sessions.clock.now())


class RevokeSessionRequest(RequestModel):
    """The session and the reason, which is stored with the session and not in the log."""

    in_query: ClassVar[frozenset[str]] = frozenset({"reason"})

    session_id: Identifier
    reason: Annotated[Text | None, says("Why the session is revoked.")] = None


async def revoke_session(
    sessions: Sessions, caller: Caller, request: RevokeSessionRequest
) -> SessionDetail:
    """Revoke a session at once; revoking it again changes nothing."""

    async def work(tx: Transaction) -> tuple[SessionRow, SessionDetail]:
        row = await session_rows.find(tx.connection, tx.tenant_id, request.session_id)
        if row is None:
            raise NotFound(f"no such session: `{request.session_id}`")
        if row.revoked_at is None:
            await session_rows.revoke(
                tx.connection, tx.tenant_id, row.session_id, request.reason, tx.now
            )
            # Publish it even if it has expired: a sidecar whose clock is behind may still consider
            # it active.
            await tx.publish({session_name(row.session_id): session_document(row.session_id)})
            row = row._replace(revoked_at=tx.now)
            await log_revocation(sessions, tx, row, caller.by)
        return row, await read_session(tx.connection, tx.tenant_id, request.session_id, tx.now)

    row, revoked = await sessions.store.write(caller.tenant_id, work)
    # Committed. If we die here, sidecars still learn of it from the published document.
    if sessions.publishing is not None:
        sessions.publishing.session(caller.tenant_id, row)
    return revoked


BATCH = 200
"""The most sessions that one transaction revokes: on SQLite, evaluations wait while it runs."""

NO_FILTER = "agent_role, agent_id, user_id: at least one is required"


class RevokedSessions(RequestModel):
    """Selects the sessions to revoke, and gives the reason. At least one of role, agent and user is
    required, and a session must match all that are given. The reason is stored with each session,
    not logged."""

    example: ClassVar[dict[str, Any]] = {"agent_id": "agt_loans", "reason": "leaked key"}

    agent_role: Identifier | None = None
    agent_id: Identifier | None = None
    user_id: Identifier | None = None
    reason: Text
    dry_run: Annotated[bool, says("Count the sessions, and revoke none.")] = False


async def revoke_sessions(sessions: Sessions, caller: Caller, request: RevokedSessions) -> Revoked:
    """Revoke all sessions of a role, an agent or a user at once.

    Sessions claimed while the request runs may be missed: suspend the agent or freeze the tenant
    first. Users whose masked ids are the same can't be told apart, so the sessions of all of them
    are revoked. With `dry_run`, count them and revoke none.
    """
    wanted = _filter(request)
    tenant_id = caller.tenant_id
    if request.dry_run:
        await _revoke(sessions, caller, [], request.reason)  # for the revision, as below
        async with sessions.store.reading(tenant_id) as connection:
            now = sessions.clock.now()
            return Revoked(await ending.count_revocable(connection, tenant_id, wanted, now))
    revoked, after = 0, None
    while True:
        now = sessions.clock.now()
        async with sessions.store.reading(tenant_id) as connection:
            found: list[SessionPosition] = await ending.revocable(
                connection, tenant_id, wanted, now, after, BATCH
            )
        # Write even if nothing was found: the write yields the revision for the response.
        ids = [session_id for _, session_id in found]
        # Many small transactions, so that the tenant's evaluations and other writes don't wait for
        # long. If we die between two, the sessions of the first are revoked and published, the
        # caller gets no response, and the same request sent again revokes the rest.
        revoked += await _revoke(sessions, caller, ids, request.reason)
        if len(found) < BATCH:
            return Revoked(revoked)
        after = found[-1]


def _filter(request: RevokedSessions) -> SessionFilter:
    user_id = request.user_id
    if request.agent_role is None and request.agent_id is None and user_id is None:
        raise invalid([NO_FILTER])
    # A session keeps the user id as it was claimed, masked or not: look for both forms.
    users = () if user_id is None else tuple({user_id, masked_user(user_id)})
    return SessionFilter(request.agent_role, request.agent_id, users)


async def _revoke(sessions: Sessions, caller: Caller, ids: Sequence[str], reason: str) -> int:
    """Revoke these sessions in one transaction; each gets its own log entry and document."""

    async def work(tx: Transaction) -> list[SessionRow]:
        rows = await ending.revoke_matching(tx.connection, tx.tenant_id, ids, reason, tx.now)
        if rows:
            await tx.publish(
                {session_name(row.session_id): session_document(row.session_id) for row in rows}
            )
        for row in rows:
            await log_revocation(sessions, tx, row, caller.by)
        return rows

    tenant_id = caller.tenant_id
    rows = await sessions.store.write(tenant_id, work)
    # Committed. If we die here, sidecars still learn of it from the published documents.
    if sessions.publishing is not None:
        for row in rows:
            sessions.publishing.session(tenant_id, row)
    return len(rows)
