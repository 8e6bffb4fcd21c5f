"""The console's pages of the area "Agents"."""

from control_api.console.views.agents import one_agent, registry

PAGES = (*registry.PAGES, *one_agent.PAGES)
