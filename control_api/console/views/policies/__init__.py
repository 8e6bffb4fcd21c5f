"""The console's pages of the area "Policies"."""

from control_api.console.page import Page
from control_api.console.views.policies import (
    candidate,
    candidates,
    editor,
    guardrails,
    history,
    impact,
    listing,
    one,
    restoring,
    sources,
    tests,
)

PAGES: tuple[Page, ...] = (
    *listing.PAGES,
    *one.PAGES,
    *editor.PAGES,
    *history.PAGES,
    *restoring.PAGES,
    *candidates.PAGES,
    *candidate.PAGES,
    *impact.PAGES,
    *guardrails.PAGES,
    *sources.PAGES,
    *tests.PAGES,
)
