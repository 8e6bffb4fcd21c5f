"""Lists the routes of sessions."""

from control_api.edge.route import ADMIN, READ, Route
from control_api.sessions import operations

ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/sessions", READ, operations.list_sessions),
    # A session may have the id `revoke`; GET and DELETE must still reach it.
    Route("POST", "/v1/sessions/revoke", ADMIN, operations.revoke_sessions, falls_through=True),
    Route("GET", "/v1/sessions/{session_id}", READ, operations.get_session, of_log=True),
    Route("DELETE", "/v1/sessions/{session_id}", ADMIN, operations.revoke_session),
)
