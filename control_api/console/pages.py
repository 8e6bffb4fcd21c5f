"""The table of all pages and actions of the console. The pipeline and the tests derive from it."""

from control_api.console.page import Page
from control_api.console.views import (
    access,
    account,
    agents,
    alerts,
    audit,
    decision,
    decisions,
    fleet,
    keys,
    overview,
    policies,
    sessions,
    sign_in,
    single_sign_on,
    tenants,
)

PAGES: tuple[Page, ...] = (
    *sign_in.PAGES,
    *single_sign_on.PAGES,
    *account.PAGES,
    *overview.PAGES,
    *decisions.PAGES,
    *decision.PAGES,
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
