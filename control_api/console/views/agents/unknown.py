"""Agents that ask for data and are not in the registry, found by their denials."""

from collections import Counter
from itertools import islice
from typing import NamedTuple

from control_api.console.visit import Visit
from control_api.responses.agents import ACTIVITY_WINDOW
from control_api.responses.audit import AuditEvent
from control_api.use_cases.agents.get_agent import get_agent
from control_api.use_cases.audit.list_events import list_events
from policies.ground.canonical import rfc3339
from policies.ground.errors import NotFound

NOT_REGISTERED = "agent_not_registered"
"""The cause of the denials (contract, section 2)."""
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
    since = rfc3339(visit.app.clock.now() - ACTIVITY_WINDOW)
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
