"""What this process holds of a tenant is never older than what it has published."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from control_api.store import tenant_state
from control_api.store.tenant_state import TenantState
from policies.definitions.model import Agent, AgentStatus
from policies.sets.policy_set import agent_document, agent_name
from tests.support.waiting import turns


def agent(agent_id: str, status: AgentStatus) -> bytes:
    return agent_document(Agent(agent_id, status, ("support",)))


class Table:
    """The documents, and a reader that can be held up between reading and answering."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes | None] = {}
        self.reads: list[Sequence[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(self, names: Sequence[str]) -> Mapping[str, bytes | None]:
        self.reads.append(names)
        found = {name: self.rows[name] for name in names if name in self.rows}
        await self.gate.wait()
        return found


async def no_enrolled_key(digest: bytes) -> None:
    raise AssertionError("only a key without a document is looked for among the enrolled ones")


async def test_a_document_is_read_once_and_so_is_its_absence() -> None:
    table = Table()
    state = TenantState("t", 1, True, table.load, no_enrolled_key)
    table.rows[agent_name("a")] = agent("a", "approved")
    for _ in range(3):
        await state.need((agent_name("a"), agent_name("none")))
        found = state.policy_set.agent("a")
        assert found is not None
        assert found.status == "approved"
        assert state.policy_set.agent("none") is None
    assert table.reads == [[agent_name("a"), agent_name("none")]]


async def test_a_document_published_during_a_read_is_not_overwritten_by_it() -> None:
    table = Table()
    name = agent_name("a")
    table.rows[name] = agent("a", "approved")
    state = TenantState("t", 1, True, table.load, no_enrolled_key)
    table.gate.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(state.need((name,)))
        await turns()
        table.rows[name] = agent("a", "deprecated")
        state.published(2, {name: table.rows[name]})
        table.gate.set()
    found = state.policy_set.agent("a")
    assert found is not None
    assert found.status == "deprecated"
    assert state.policy_set.revision == 2


async def test_a_published_document_is_in_force_without_a_read() -> None:
    table = Table()
    name = agent_name("a")
    state = TenantState("t", 1, True, table.load, no_enrolled_key)
    await state.need((name,))
    assert state.policy_set.agent("a") is None
    state.published(2, {name: agent("a", "approved")})
    await state.need((name,))
    assert state.policy_set.agent("a") is not None
    state.published(3, {name: None})
    assert state.policy_set.agent("a") is None
    assert len(table.reads) == 1


async def test_memory_is_bounded_and_documents_needed_together_are_loaded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tenant_state, "MAX_DOCUMENTS", 8)
    table = Table()
    table.rows = {agent_name(f"a{n}"): agent(f"a{n}", "approved") for n in range(100)}
    state = TenantState("t", 1, True, table.load, no_enrolled_key)
    for n in range(97):
        await state.need([agent_name(f"a{n + step}") for step in range(4)])
        assert all(state.policy_set.agent(f"a{n + step}") for step in range(4))
    # Of all that was loaded, only the newest documents are still here.
    table.reads.clear()
    await state.need([agent_name(f"a{n}") for n in range(92, 100)])
    assert not table.reads
    await state.need([agent_name("a91")])
    assert table.reads == [[agent_name("a91")]]


async def test_a_waiter_is_woken_by_a_change_or_a_timeout() -> None:
    state = TenantState("t", 1, True, Table().load, no_enrolled_key)
    loop = asyncio.get_running_loop()
    started = loop.time()
    # expires on purpose
    await state.wait(0.05)
    assert loop.time() - started >= 0.04
    async with asyncio.TaskGroup() as group:
        waiters = [group.create_task(state.wait(30)) for _ in range(100)]
        await turns()
        assert state.has_waiters
        state.published(2, {})
        await asyncio.wait(waiters, timeout=20)
        assert all(waiter.done() for waiter in waiters)
    assert not state.has_waiters
