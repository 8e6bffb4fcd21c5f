"""The agents: those that wait for a decision, those that are unknown, all of them, a new one."""

from collections.abc import Mapping
from typing import Any

from control_api.console.page import ROOT, Html, Page, See
from control_api.console.views.agents.unknown import unknown_agents
from control_api.console.visit import Visit, address
from control_api.use_cases.agents.list_agents import list_agents
from control_api.use_cases.agents.register_agent import register_agent
from policies.definitions.model import AGENT_STATUSES
from policies.ground.errors import SluiceError

FILTERS = ("text", "status", "agent_role", "owner")
QUEUE = 50
"""The most agents of each status that the queue shows."""
FIELDS = ("display_name", "description", "owner", "framework", "workload", "bound_key_id")
"""The fields of an agent that are text, beside its id and role."""


async def show_agents(visit: Visit) -> Html:
    """The agents that wait for approval or are unknown, then all of them, newest first."""
    given = visit.given(*FILTERS)
    values: dict[str, Any] = {
        "given": given,
        "statuses": [("", "any"), *((each, _spaced(each)) for each in AGENT_STATUSES)],
        "queue": [],
        "more_wait": False,
        "unknown": [],
        "may_register": visit.may(register_agent),
        "agents": None,
        "problem": None,
    }
    try:
        if not given and not visit.query.get("cursor"):
            values["queue"], values["more_wait"] = await _waiting(visit)
            values["unknown"] = await unknown_agents(visit)
        values["agents"] = await visit.call(
            list_agents, limit="50", **given, **visit.given("cursor")
        )
    except SluiceError as error:
        return Html("agents/list.html", {**values, "problem": error}, error.status)
    return Html("agents/list.html", values)


async def _waiting(visit: Visit) -> tuple[list[Any], bool]:
    found, more = [], False
    for status in ("pending_approval", "draft"):
        page = await visit.call(list_agents, status=status, limit=str(QUEUE))
        found += page.rows
        more |= page.next is not None
    return found, more


async def new_agent(visit: Visit) -> Html:
    """The form for a new agent; the query may say what an unknown one calls itself."""
    return _form(visit.given("agent_id", "agent_role"), None)


async def register(visit: Visit) -> Html | See:
    """Register an agent as a draft."""
    try:
        agent = await visit.call(
            register_agent,
            agent_id=visit.form.text("agent_id"),
            agent_role=visit.form.get("agent_role", ""),
            permitted_roles=roles(visit) or None,
            **{name: visit.form.text(name) for name in FIELDS},
        )
    except SluiceError as error:
        return _form(visit.form, error)
    return See(address("/agent", id=agent.agent_id, done="registered"))


def roles(visit: Visit) -> list[str]:
    """The roles of the form, one on a line."""
    lines = visit.form.get("permitted_roles", "").split("\n")
    return [line.strip() for line in lines if line.strip()]


def _form(typed: Mapping[str, str], problem: SluiceError | None) -> Html:
    values = {
        "agent_id": None,
        "typed": typed,
        "action": "/console/agents/register",
        "problem": problem,
    }
    return Html("agents/edit.html", values, 200 if problem is None else problem.status)


def _spaced(status: str) -> str:
    return status.replace("_", " ")


PAGES = (
    Page("GET", f"{ROOT}/agents", list_agents, show_agents),
    Page("GET", f"{ROOT}/agents/new", register_agent, new_agent),
    Page("POST", f"{ROOT}/agents/register", register_agent, register),
)
