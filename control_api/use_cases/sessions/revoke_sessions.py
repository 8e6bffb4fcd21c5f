"""Revokes every session of a role, an agent or a user, as in an incident (contract, section 6)."""

from collections.abc import Sequence
from typing import Any, ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.sessions import log_revocation
from control_api.requests.base import Identifier, RequestModel, Text
from control_api.responses.tenants import Revoked
from control_api.store.queries import session_revocation
from control_api.store.queries.session_revocation import SessionFilter, SessionPosition
from control_api.store.queries.sessions import SessionRow
from control_api.store.transaction import Transaction
from policies.ground.errors import invalid
from policies.sets.policy_set import session_document, session_name
from policies.trail.record import masked_user

BATCH = 200
"""Sessions revoked in one transaction. On SQLite, evaluations wait while it runs."""

NO_FILTER = "agent_role, agent_id, user_id: at least one is required"


class RevokedSessions(RequestModel):
    """Whose sessions to revoke, and why. At least one of role, agent and user is required, and a
    session must match all that are given. The reason is stored with each session, not logged."""

    example: ClassVar[dict[str, Any]] = {"agent_id": "agt_loans", "reason": "leaked key"}

    agent_role: Identifier | None = None
    agent_id: Identifier | None = None
    user_id: Identifier | None = None
    reason: Text
    dry_run: bool = False


async def revoke_sessions(app: AppContext, caller: Caller, request: RevokedSessions) -> Revoked:
    """Revoke all sessions of a role, an agent or a user at once.

    Sessions claimed while the request runs may be missed: suspend the agent or freeze the tenant
    first. Users whose masked ids are the same can't be told apart, so the sessions of all of them
    are revoked. With `dry_run`, count them and revoke none.
    """
    wanted = _filter(request)
    tenant_id = caller.tenant_id
    if request.dry_run:
        await _revoke(app, caller, [], request.reason)  # for the revision, as below
        async with app.store.reading(tenant_id) as connection:
            now = app.clock.now()
            return Revoked(await session_revocation.count(connection, tenant_id, wanted, now))
    revoked, after = 0, None
    while True:
        now = app.clock.now()
        async with app.store.reading(tenant_id) as connection:
            found: list[SessionPosition] = await session_revocation.revocable(
                connection, tenant_id, wanted, now, after, BATCH
            )
        # Write even if nothing was found: the write yields the revision for the response.
        ids = [session_id for _, session_id in found]
        # Many small transactions, so that the tenant's evaluations and other writes don't wait for
        # long. If we die between two, the sessions of the first are revoked and published, the
        # caller gets no response, and the same request sent again revokes the rest.
        revoked += await _revoke(app, caller, ids, request.reason)
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


async def _revoke(app: AppContext, caller: Caller, ids: Sequence[str], reason: str) -> int:
    """Revoke these sessions in one transaction; each gets its own log entry and document."""

    async def work(tx: Transaction) -> list[SessionRow]:
        rows = await session_revocation.revoke_all(tx.connection, tx.tenant_id, ids, reason, tx.now)
        if rows:
            await tx.publish(
                {session_name(row.session_id): session_document(row.session_id) for row in rows}
            )
        for row in rows:
            await log_revocation(app, tx, row, caller.by)
        return rows

    tenant_id = caller.tenant_id
    rows = await app.store.write(tenant_id, work)
    # Committed. If we die here, sidecars still learn of it from the published documents.
    if app.publishing is not None:
        for row in rows:
            app.publishing.session(tenant_id, row)
    return len(rows)
