"""Where the console is, and the route of each operation that a page offers."""

from functools import cache

from control_api.audit.event_operations import follow_events
from control_api.edge.answers import EVENTS
from control_api.edge.route import READ, Operation, Route
from control_api.routes import ROUTES

ROOT = "/console"

# A stream without an end, which a browser keeps open behind the session's cookie.
LIVE = Route("GET", f"{ROOT}/decisions/live", READ, follow_events, content_type=EVENTS)

OWN = (LIVE,)
"""The operations that the console alone offers."""


@cache
def route_of(operation: Operation) -> Route:
    """The route of an operation, which says who may call it. Raises `LookupError` if no route
    offers it: then neither may a page."""
    for route in (*ROUTES, *OWN):
        if route.operation is operation:
            return route
    raise LookupError(f"no route offers `{getattr(operation, '__name__', operation)}`")
