"""Revokes a session: this process and every connected sidecar deny all further calls in it."""

from typing import ClassVar

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain.sessions import log_revocation, read_session
from control_api.requests.base import Identifier, RequestModel, Text
from control_api.responses.tenants import SessionDetail
from control_api.store.queries import sessions
from control_api.store.queries.sessions import SessionRow
from control_api.store.transaction import Transaction
from policies.ground.errors import NotFound
from policies.sets.policy_set import session_document, session_name


class RevokeSessionRequest(RequestModel):
    """The session and the reason, which is stored with the session and not in the log."""

    in_query: ClassVar[frozenset[str]] = frozenset({"reason"})

    session_id: Identifier
    reason: Text | None = None


async def revoke_session(
    app: AppContext, caller: Caller, request: RevokeSessionRequest
) -> SessionDetail:
    """Revoke a session at once; revoking it again changes nothing."""

    async def work(tx: Transaction) -> tuple[SessionRow, SessionDetail]:
        row = await sessions.find(tx.connection, tx.tenant_id, request.session_id)
        if row is None:
            raise NotFound(f"no such session: `{request.session_id}`")
        if row.revoked_at is None:
            await sessions.revoke(
                tx.connection, tx.tenant_id, row.session_id, request.reason, tx.now
            )
            # Publish it even if it has expired: a sidecar whose clock is behind may still consider
            # it active.
            await tx.publish({session_name(row.session_id): session_document(row.session_id)})
            row = row._replace(revoked_at=tx.now)
            await log_revocation(app, tx, row, caller.by)
        return row, await read_session(tx.connection, tx.tenant_id, request.session_id, tx.now)

    row, revoked = await app.store.write(caller.tenant_id, work)
    # Committed. If we die here, sidecars still learn of it from the published document.
    if app.publishing is not None:
        app.publishing.session(caller.tenant_id, row)
    return revoked
