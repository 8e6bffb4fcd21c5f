"""The console's pages of the area "Alerts": one module per topic."""

from control_api.console.page import Page
from control_api.console.views.alerts import freeze, rules

PAGES: tuple[Page, ...] = (*rules.PAGES, *freeze.PAGES)
