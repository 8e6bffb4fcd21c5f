"""The table of all pages and actions of the console, from which the pipeline and the tests are
derived."""

from control_api.console.page import Page
from control_api.console.views import (
    access,
    agents,
    alerts,
    decisions,
    fleet,
    keys,
    overview,
    sessions,
    sign_in,
    tenants,
)
from control_api.console.views.audit import changes, checkpoints, evidence, retention
from control_api.console.views.policies import candidates, editor, guardrails, one, sources

_MODULES = (
    sign_in, overview, decisions, agents, one, editor, candidates, guardrails, sources, access,
    sessions, keys, alerts, fleet, checkpoints, changes, retention, evidence, tenants,
)  # fmt: skip
PAGES: tuple[Page, ...] = tuple(page for module in _MODULES for page in module.PAGES)
