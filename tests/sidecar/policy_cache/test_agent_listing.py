"""The listing of all agents: whole, as of one revision, or an error. Over HTTP and over Redis."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from policies.definitions.model import Agent
from policies.sets.policy_set import agent_document, agent_name
from sidecar.policy_cache.policy_view import ListingInterrupted
from tests.support.fake_control_api import AGENT, ROLE
from tests.support.sidecar import RunningSidecar

COUNT = 230
"""More than one part of each listing."""


def crowd(count: int = COUNT) -> dict[str, bytes | None]:
    """So many agents, and as many other documents."""
    documents: dict[str, bytes | None] = {}
    for number in range(count):
        name = f"agt_{number:04}"
        documents[agent_name(name)] = agent_document(Agent(name, "approved", (ROLE,)))
        documents[f"agents-of/{name}"] = b"{}"
    return documents


async def listed(running: RunningSidecar) -> list[str]:
    reader = running.parts.replica.agent_documents()
    return sorted([orjson.loads(body)["agent_id"] async for part in reader.read() for body in part])


async def everyone(control: Any, running: RunningSidecar) -> list[str]:
    revision = control.publish({**crowd(), agent_name("agt_0003"): None})
    await running.follows(revision)
    names = {f"agt_{number:04}" for number in range(COUNT)} - {"agt_0003"}
    return sorted({*names, AGENT})


async def test_exactly_the_agents_are_listed(sidecar: RunningSidecar, control: Any) -> None:
    expected = await everyone(control, sidecar)
    assert await listed(sidecar) == expected
    await sidecar.evaluate()  # and decisions go on


async def test_the_working_set_does_not_grow(sidecar: RunningSidecar, control: Any) -> None:
    await everyone(control, sidecar)
    rows = "SELECT count(*) FROM held"
    before = sidecar.parts.cache_file.connection.execute(rows).fetchone()
    await listed(sidecar)
    assert sidecar.parts.cache_file.connection.execute(rows).fetchone() == before


async def test_a_change_during_a_listing_interrupts_it(
    sidecar: RunningSidecar, control: Any
) -> None:
    await everyone(control, sidecar)
    parts = sidecar.parts.replica.agent_documents().read()
    await anext(parts)
    await sidecar.follows(control.publish({agent_name("agt_0001"): None}))
    with pytest.raises(ListingInterrupted):
        _ = [part async for part in parts]
    assert "agt_0001" not in await listed(sidecar)
