"""Ends sessions of the console: one's own, or another of the tenant."""

from control_api.app_context import AppContext
from control_api.auth.console_session import Visitor
from control_api.auth.principal import Caller, Superadmin, realm_of
from control_api.domain.console_sessions import end_session
from control_api.requests.base import Identifier, RequestModel
from control_api.responses.audit import Empty
from policies.ground.errors import NotFound


class ConsoleSessionRequest(RequestModel):
    """Names one session of the console."""

    session_id: Identifier


async def revoke_console_session(
    app: AppContext, caller: Caller | Superadmin, request: ConsoleSessionRequest
) -> Empty:
    """End a session of the console at once, in every process. With a key of the scope `read`, only
    those that began with the same key."""
    what, session_id = "console.session_revoked", request.session_id
    person = caller.by if caller.scope == "read" else None
    if await end_session(app, realm_of(caller), session_id, what, caller.by, person) is None:
        raise NotFound(f"no such session of the console: `{session_id}`")
    return Empty()


async def sign_out(app: AppContext, visitor: Visitor) -> None:
    """End the visitor's own session. One that has ended already stays so."""
    caller, session_id = visitor.caller, visitor.session.session_id
    await end_session(app, realm_of(caller), session_id, "console.signed_out", caller.by)
