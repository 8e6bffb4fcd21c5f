"""Shows the console's pages of agents: all of them, those that wait for a decision, and those that
ask for data without being registered."""

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from control_api.audit.event_models import AuditEvent
from control_api.audit.event_operations import list_events
from control_api.console.page import Html, Page, See
from control_api.console.routes import ROOT
from control_api.console.visit import Visit, address
from control_api.registry.agent_operations import get_agent, list_agents, register_agent
from control_api.registry.models import ACTIVITY_WINDOW
from policies.definitions.model import AGENT_STATUSES
from policies.ground.canonical import rfc3339
from policies.ground.errors import NotFound, SluiceError

NOT_REGISTERED = "agent_not_registered"
"""The cause of the denials (`CONTRACT.md`, The ten checks)."""
DENIALS = 200
"""The most denials among which unknown agents are looked for, newest first."""
LOOKED_UP = 20
"""The most ids that are looked up in the registry."""


class UnknownAgent(NamedTuple):
    """An agent that is not registered: how often it asked among these denials, when last and in
    which role, and the sources that it asked for, most frequent first."""

    agent_id: str
    asked: int
    last: str
    agent_role: str
    sources: list[str]


async def unknown_agents(visit: Visit) -> list[UnknownAgent]:
    """Those of the last 7 days, the last to ask first."""
    since = rfc3339(visit.console.clock.now() - ACTIVITY_WINDOW)
    found = await visit.call(
        list_events, policy_name=NOT_REGISTERED, limit=str(DENIALS), **{"from": since}
    )
    asked: dict[str, list[AuditEvent]] = {}
    for event in found.rows:
        if event.agent_id is not None:
            asked.setdefault(event.agent_id, []).append(event)
    return [
        _of(agent_id, events)
        for agent_id, events in islice(asked.items(), LOOKED_UP)
        if not await _registered(visit, agent_id)
    ]


async def _registered(visit: Visit, agent_id: str) -> bool:
    # It may have been registered since it was denied.
    try:
        await visit.call(get_agent, agent_id=agent_id)
    except NotFound:
        return False
    return True


def _of(agent_id: str, events: list[AuditEvent]) -> UnknownAgent:
    sources = [name for name, _ in Counter(each.source_id for each in events).most_common(3)]
    newest = events[0]
    return UnknownAgent(agent_id, len(events), newest.timestamp, newest.agent_role, sources)


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
