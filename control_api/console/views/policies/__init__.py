"""The console's pages of the area "Policies"."""

from control_api.console.page import Page
from control_api.console.views.policies import candidates, editor, guardrails, one, sources

PAGES: tuple[Page, ...] = (
    *one.PAGES,
    *editor.PAGES,
    *candidates.PAGES,
    *guardrails.PAGES,
    *sources.PAGES,
)
