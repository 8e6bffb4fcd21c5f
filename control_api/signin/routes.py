"""The routes of signing in to the console."""

from control_api.edge.route import PEOPLE, Route
from control_api.signin.operations import (
    create_sign_in_link,
    list_console_sessions,
    revoke_console_session,
)

ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/console/sign-in-links", PEOPLE, create_sign_in_link, 201, (404,)),
    Route("GET", "/v1/console/sessions", PEOPLE, list_console_sessions),
    Route("DELETE", "/v1/console/sessions/{session_id}", PEOPLE, revoke_console_session),
)
