"""Lists the routes of signing in to the console."""

from control_api.edge.route import PEOPLE, Route
from control_api.signin import operations

ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/console/sign-in-links", PEOPLE, operations.create_sign_in_link, 201, (404,)),
    Route("GET", "/v1/console/sessions", PEOPLE, operations.list_console_sessions),
    Route("DELETE", "/v1/console/sessions/{session_id}", PEOPLE, operations.revoke_console_session),
)
