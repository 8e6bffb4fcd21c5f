"""The table of all pages and actions of the console. The pipeline and the tests derive from it."""

from control_api.console.page import Page
from control_api.console.views import (
    access,
    agents,
    alerts,
    audit,
    decisions,
    fleet,
    keys,
    overview,
    policies,
    sessions,
    sign_in,
    tenants,
)

PAGES: tuple[Page, ...] = (
    *sign_in.PAGES,
    *overview.PAGES,
    *decisions.PAGES,
    *agents.PAGES,
    *policies.PAGES,
    *access.PAGES,
    *sessions.PAGES,
    *keys.PAGES,
    *alerts.PAGES,
    *fleet.PAGES,
    *audit.PAGES,
    *tenants.PAGES,
)
