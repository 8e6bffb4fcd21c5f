"""Lists all routes of the features. Dispatch, authentication, scope checks, parsing, the OpenAPI
description and the tests derive from this table."""

from control_api import service
from control_api.alerts import routes as alerts
from control_api.audit import routes as audit
from control_api.decisions import routes as decisions
from control_api.edge.route import Route
from control_api.fleet import routes as fleet
from control_api.policy import routes as policy
from control_api.registry import routes as registry
from control_api.sessions import routes as sessions
from control_api.settings import Settings
from control_api.signin import routes as signin
from control_api.tenants import routes as tenants

ROUTES: tuple[Route, ...] = (
    *decisions.ROUTES,
    *audit.ROUTES,
    *policy.ROUTES,
    *registry.ROUTES,
    *alerts.ROUTES,
    *sessions.ROUTES,
    *signin.ROUTES,
    *tenants.ROUTES,
    *fleet.ROUTES,
    *service.ROUTES,
)


def routes_of(settings: Settings) -> tuple[Route, ...]:
    """Return the API's routes, without `/metrics` if it has its own port."""
    # On a port of its own, `/metrics` must not be reachable on the public one as well.
    own_port = settings.metrics_listen is not None
    return tuple(route for route in ROUTES if not (own_port and route is service.METRICS))
