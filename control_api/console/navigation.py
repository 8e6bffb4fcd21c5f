"""The areas of the console, as its navigation lists them."""

from typing import NamedTuple

from control_api.alerts.operations import list_fired_alerts
from control_api.console.page import ROOT
from control_api.console.visit import Visit
from control_api.http.route import UseCase
from control_api.use_cases.agents.list_agents import list_agents
from control_api.use_cases.audit.list_checkpoints import list_checkpoints
from control_api.use_cases.audit.list_events import list_events
from control_api.use_cases.audit.show_stats import show_stats
from control_api.use_cases.keys.list_keys import list_keys
from control_api.use_cases.policies.list_policies import list_policies
from control_api.use_cases.policy_tools.show_access import show_access
from control_api.use_cases.sessions.list_sessions import list_sessions
from control_api.use_cases.sidecars.list_sidecars import list_sidecars
from control_api.use_cases.tenants.list_tenants import list_tenants


class Area(NamedTuple):
    """An area: its title, its first page, the operation that this page calls, and the key that
    leads there after `g`. `current` is whether the page that is shown belongs to it."""

    title: str
    path: str
    operation: UseCase
    key: str
    current: bool = False


AREAS = (
    Area("Overview", ROOT, show_stats, "o"),
    Area("Decisions", f"{ROOT}/decisions", list_events, "d"),
    Area("Agents", f"{ROOT}/agents", list_agents, "a"),
    Area("Policies", f"{ROOT}/policies", list_policies, "p"),
    Area("Access", f"{ROOT}/access", show_access, "c"),
    Area("Sessions", f"{ROOT}/sessions", list_sessions, "s"),
    Area("Keys", f"{ROOT}/keys", list_keys, "k"),
    Area("Alerts", f"{ROOT}/alerts", list_fired_alerts, "l"),
    Area("Fleet", f"{ROOT}/fleet", list_sidecars, "f"),
    Area("Audit", f"{ROOT}/audit", list_checkpoints, "u"),
    Area("Tenants", f"{ROOT}/tenants", list_tenants, "t"),
)


def areas(visit: Visit) -> list[Area]:
    """The areas that this visitor may open."""
    return [
        area._replace(current=_belongs(visit.path, area.path))
        for area in AREAS
        if visit.who is not None and visit.may(area.operation)
    ]


def _belongs(path: str, first: str) -> bool:
    # `/console/agent` and `/console/agent/edit` belong to `/console/agents`.
    if first == ROOT:
        return path == ROOT
    singular = first[:-3] + "y" if first.endswith("ies") else first.removesuffix("s")
    return path in (first, singular) or path.startswith((f"{first}/", f"{singular}/"))
