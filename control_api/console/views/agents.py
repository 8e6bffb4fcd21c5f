"""Shows the console's pages of agents: a list of all, the agents that wait for a decision, and
those that ask for data without being registered; and each agent's own page, with its activity, its
access and its history."""

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

import orjson

from control_api.audit.change_operations import list_changes
from control_api.audit.event_models import AuditEvent
from control_api.audit.event_operations import list_events
from control_api.console.charts import Series, bar_chart
from control_api.console.page import NULL, HtmlPage, PageRedirect, Visit, address, get, post
from control_api.console.words import causes_of, covers, in_words, item_in_words
from control_api.fleet.operations import list_sidecars
from control_api.policy.access_operations import show_access
from control_api.registry.agent_operations import (
    change_agent_status,
    get_agent,
    list_agents,
    register_agent,
    update_agent,
)
from control_api.registry.key_operations import list_keys
from control_api.registry.models import ACTIVITY_WINDOW, AgentDetail
from policies.definitions.model import AGENT_STATUSES
from policies.ground.canonical import rfc3339
from policies.ground.errors import Invalid, NotFound, SluiceError

NOT_REGISTERED = "agent_not_registered"
"""The policy name in the denials of agents that are not registered (`CONTRACT.md`, The ten
checks)."""
DENIALS = 200
"""The most denials among which unknown agents are looked for, newest first."""
LOOKED_UP = 20
"""The most ids of unknown agents that are looked up in the registry."""


class UnknownAgent(NamedTuple):
    """An agent that is not registered but asked for data: how often it asked among the denials
    examined, when last and in which role, and the sources that it asked for, most frequent
    first."""

    agent_id: str
    asked: int
    last: str
    agent_role: str
    sources: list[str]


async def unknown_agents(visit: Visit) -> list[UnknownAgent]:
    """Return the agents that asked for data in the last 7 days without being registered, the last
    to ask first."""
    since = rfc3339(visit.console.clock.now() - ACTIVITY_WINDOW)
    found = await visit.call(
        list_events, policy_name=NOT_REGISTERED, limit=str(DENIALS), **{"from": since}
    )
    by_agent: dict[str, list[AuditEvent]] = {}
    for event in found.rows:
        if event.agent_id is not None:
            by_agent.setdefault(event.agent_id, []).append(event)
    return [
        UnknownAgent(
            agent_id,
            len(events),
            events[0].timestamp,
            events[0].agent_role,
            [name for name, _ in Counter(each.source_id for each in events).most_common(3)],
        )
        for agent_id, events in islice(by_agent.items(), LOOKED_UP)
        if not await _registered(visit, agent_id)
    ]


async def _registered(visit: Visit, agent_id: str) -> bool:
    # It may have been registered since it was denied.
    try:
        await visit.call(get_agent, agent_id=agent_id)
    except NotFound:
        return False
    return True


FILTERS = ("text", "status", "agent_role", "owner")
QUEUE = 50
"""The most agents of each status that the queue of agents waiting for a decision shows."""
FIELDS = ("display_name", "description", "owner", "framework", "workload", "bound_key_id")
"""The text fields of an agent's form, beside its id and role."""


async def show_agents(visit: Visit) -> HtmlPage:
    """Show the agents that wait for a decision or are unknown, then all agents, newest first."""
    given = visit.filled(*FILTERS)
    values: dict[str, Any] = {
        "given": given,
        "statuses": [("", "any"), *((each, each.replace("_", " ")) for each in AGENT_STATUSES)],
        "queue": [],
        "more_wait": False,
        "unknown": [],
        "may_register": visit.may_call(register_agent),
        "agents": None,
    }
    try:
        if not given and not visit.query.get("cursor"):
            values["queue"], values["more_wait"] = await _waiting(visit)
            values["unknown"] = await unknown_agents(visit)
        values["agents"] = await visit.call(
            list_agents, limit="50", **given, **visit.filled("cursor")
        )
    except SluiceError as error:
        return HtmlPage("agents/list.html", values, error)
    return HtmlPage("agents/list.html", values)


async def _waiting(visit: Visit) -> tuple[list[Any], bool]:
    found, more = [], False
    for status in ("pending_approval", "draft"):
        page = await visit.call(list_agents, status=status, limit=str(QUEUE))
        found += page.rows
        more |= page.next is not None
    return found, more


async def new_agent(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    """Show the form for a new agent. The query may prefill it with the id and role that an unknown
    agent states."""
    return _form(None, visit.form or visit.filled("agent_id", "agent_role"), problem)


async def register(visit: Visit) -> PageRedirect:
    agent = await visit.call(
        register_agent,
        agent_id=visit.form.text("agent_id"),
        agent_role=visit.form.get("agent_role", ""),
        permitted_roles=_roles(visit) or None,
        **{name: visit.form.text(name) for name in FIELDS},
    )
    return PageRedirect(address("/agent", id=agent.agent_id, done="registered"))


def _roles(visit: Visit) -> list[str]:
    return [line.strip() for line in visit.form.lines("permitted_roles")]


def _form(agent_id: str | None, typed: Mapping[str, str], problem: SluiceError | None) -> HtmlPage:
    action = address("/agents/register" if agent_id is None else "/agent/save")
    values = {"agent_id": agent_id, "typed": typed, "action": action}
    return HtmlPage("agents/edit.html", values, problem)


MAX_ROLES = 8
"""The most roles whose access one page analyses."""
MAX_LISTED = 200
"""The most keys and sidecars among which the page looks for the agent's own."""
DONE = {
    "registered": "Registered, as a draft. It reads nothing until it is approved.",
    "edited": "Saved.",
    "pending_approval": "Waits for approval now.",
    "approved": "Approved. It may read from now on what its policies allow.",
    "draft": "Sent back: it is a draft again.",
    "suspended": "Suspended. Every evaluation with its id is denied from now on.",
    "deprecated": "Deprecated, for good.",
}


class Action(NamedTuple):
    status: str
    title: str
    text: str
    tone: str


APPROVE = Action("approved", "Approve", "It may then read what is listed here.", "primary")
SUSPEND = Action(
    "suspended", "Suspend", "Every evaluation with its id is denied until you approve it again.",
    "danger",
)  # fmt: skip
DEPRECATE = Action(
    "deprecated", "Deprecate", "Every evaluation with its id is denied, for good.", "danger"
)
ACTIONS = {
    "draft": (
        APPROVE,
        Action("pending_approval", "Ask for approval", "Someone else then decides.", ""),
        DEPRECATE,
    ),
    "pending_approval": (
        APPROVE,
        Action("draft", "Send back", "It becomes a draft again, to be corrected.", ""),
        DEPRECATE,
    ),
    "approved": (SUSPEND, DEPRECATE),
    "suspended": (APPROVE, DEPRECATE),
    "deprecated": (),
}


async def show_agent(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    """Show one agent: its registration, what it did in the last 7 days, and what it may read."""
    agent_id = visit.required("id")
    agent: AgentDetail = await visit.call(get_agent, agent_id=agent_id)
    rows, faults = await _access(visit, agent)
    denials = await visit.call(list_events, decision="DENY", agent_id=agent_id, limit=str(DENIALS))
    values = {
        "agent": agent,
        "typed": visit.form,
        "done_text": DONE.get(visit.query.get("done", "")),
        "actions": ACTIONS[agent.status] if visit.may_call(change_agent_status) else (),
        "may_edit": visit.may_call(update_agent) and agent.status != "deprecated",
        "access": [in_words(each) for each in rows],
        "faults": faults,
        "more_roles": max(0, len(agent.permitted_roles) - MAX_ROLES),
        **_compared(agent, rows),
        **_activity(agent),
        "causes": causes_of(denials.rows, agent_id=agent_id),
        **await _runs_as(visit, agent),
    }
    return HtmlPage("agents/one.html", values, problem)


async def _access(visit: Visit, agent: AgentDetail) -> tuple[list[Any], list[str]]:
    """Return the rows of the access analysis for the agent, and the roles that can't be analysed,
    with the reason. The rows say which sources the policies of the agent's roles allow it, whether
    or not it is approved."""
    rows: list[Any] = []
    faults = []
    for role in agent.permitted_roles[:MAX_ROLES]:
        query = {"agent_role": role, "agent_id": agent.agent_id, "policies_only": "true"}
        try:
            document = await visit.call(show_access, **query)
        except SluiceError as error:
            faults.append(f"{role}: {error.message}")
            continue
        rows += orjson.loads(document.body)["rows"]
    return rows, faults


def _compared(agent: AgentDetail, rows: list[Any]) -> dict[str, Any]:
    """Compare the sources that the agent asked for with those that it may read."""
    allowed = {item_in_words(item): item for row in rows for item in row["sources"]}
    used = [each for each in agent.activity.sources if each.total > each.denied]
    return {
        "used": [(each, covers(allowed.values(), each.source_id)) for each in used],
        "unused": [
            words
            for words, item in sorted(allowed.items())
            if not any(covers([item], each.source_id) for each in used)
        ],
        "tried": [each for each in agent.activity.sources if each.denied],
    }


def _activity(agent: AgentDetail) -> dict[str, Any]:
    spans = agent.activity.over_time.spans
    labels = [each.begin.replace("T", " ")[5:16] for each in spans]
    series = [
        Series("Allowed", [each.allowed for each in spans]),
        Series("Denied", [each.denied for each in spans]),
    ]
    return {
        "chart": bar_chart("Decisions in four hours", labels, series),
        "spans": [each for each in reversed(spans) if each.allowed or each.denied],
    }


async def _runs_as(visit: Visit, agent: AgentDetail) -> dict[str, Any]:
    """Return the keys that are bound to the agent, and the sidecars that report it as theirs."""
    own, limit = agent.agent_id, str(MAX_LISTED)
    keys = []
    for enrolled in ("false", "true"):
        page = await visit.call(list_keys, limit=limit, enrolled=enrolled)
        keys += [
            (each, enrolled == "true")
            for each in page.rows
            if own == each.bound_agent_id or each.key_id == agent.bound_key_id
        ]
    sidecars = await visit.call(list_sidecars, limit=limit)
    return {"keys": keys, "sidecars": [each for each in sidecars.rows if each.agent_id == own]}


async def show_history(visit: Visit) -> HtmlPage:
    agent_id = visit.required("id")
    changes = await visit.call(
        list_changes, object_type="agent", object_id=agent_id, limit="50", **visit.filled("cursor")
    )
    return HtmlPage("agents/history.html", {"agent_id": agent_id, "changes": changes})


async def change_status(visit: Visit) -> PageRedirect:
    agent_id, status = visit.required("id"), visit.form.get("status", "")
    reason = _reason(visit)
    agent = await visit.call(get_agent, agent_id=agent_id)
    if (agent.status, status) == ("draft", "approved"):
        # Two steps by one person, and two entries in the log. If we die between them, the
        # agent waits for approval.
        await visit.call(
            change_agent_status, agent_id=agent_id, status="pending_approval", reason=reason
        )
    await visit.call(change_agent_status, agent_id=agent_id, status=status, reason=reason)
    return PageRedirect(address("/agent", id=agent_id, done=status))


async def edit_agent(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    agent_id = visit.required("id")
    if problem is not None:
        return _form(agent_id, visit.form, problem)
    agent = await visit.call(get_agent, agent_id=agent_id)
    typed = {name: getattr(agent, name) or "" for name in ("agent_role", *FIELDS)}
    typed["permitted_roles"] = "\n".join(agent.permitted_roles)
    return _form(agent.agent_id, typed, None)


async def save_agent(visit: Visit) -> PageRedirect:
    agent_id = visit.required("id")
    # A field that was emptied clears what was there.
    await visit.call(
        update_agent,
        agent_id=agent_id,
        reason=_reason(visit),
        agent_role=visit.form.get("agent_role", ""),
        permitted_roles=_roles(visit) or NULL,
        **{name: visit.form.text(name) or NULL for name in FIELDS},
    )
    return PageRedirect(address("/agent", id=agent_id, done="edited"))


def _reason(visit: Visit) -> str:
    reason = visit.form.text("reason")
    if reason is None:
        raise Invalid("say why: the log keeps the reason")
    return reason


PAGES = (
    get("/agents", list_agents, show_agents),
    get("/agents/new", register_agent, new_agent),
    post("/agents/register", register_agent, register, new_agent),
    get("/agent", get_agent, show_agent),
    get("/agent/history", list_changes, show_history),
    post("/agent/status", change_agent_status, change_status, show_agent),
    get("/agent/edit", update_agent, edit_agent),
    post("/agent/save", update_agent, save_agent, edit_agent),
)
