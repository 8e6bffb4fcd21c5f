"""A freeze, a suspended agent and revoked sessions reach a sidecar by long poll and through Redis,
and survive a restart without the control API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from policies.definitions.model import Agent, AgentStatus, TenantSettings
from policies.sets.policy_set import (
    agent_document,
    agent_name,
    session_document,
    session_name,
    tenant_document,
)
from tests.support import redis
from tests.support.fake_control_api import AGENT, ROLE, FakeControlApi, fake_control_api
from tests.support.fake_control_api_with_redis import FakeControlApiWithRedis
from tests.support.redis import running_redis
from tests.support.sidecar import EVALUATE, RunningSidecar, ask, running_sidecar
from tests.support.waiting import until_async

FROZEN_AT = 1_767_225_600_000_000


WAYS = ["http", pytest.param("redis", marks=redis.needs_redis)]


@pytest.fixture(params=WAYS)
async def control(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FakeControlApi]:
    if request.param == "http":
        async with fake_control_api() as made:
            made.create_tenant()
            yield made
        return
    with running_redis(tmp_path / "redis") as server:
        by_redis = FakeControlApiWithRedis(server)
        await by_redis.start()
        by_redis.create_tenant()
        yield by_redis
        await by_redis.stop()


def settings(control: FakeControlApi, **changed: Any) -> dict[str, bytes | None]:
    return {"tenant": tenant_document(TenantSettings(control.tenant_id, **changed))}


async def followed(running: RunningSidecar, revision: int) -> None:
    await until_async("it follows", lambda: running.parts.policies.policy_set.revision >= revision)


async def test_a_freeze_denies_everything_and_is_lifted(
    tmp_path: Path, control: FakeControlApi
) -> None:
    async with running_sidecar(tmp_path, control) as running:
        assert (await running.evaluate())["decision"] == "ALLOW"
        await followed(running, control.publish(settings(control, frozen_at=FROZEN_AT)))
        for changed in (
            {},
            {"agent_id": "stranger"},
            {"source_id": "payroll"},
            {"session_id": "s"},
        ):
            answer = await running.evaluate(**changed)
            assert (answer["decision"], answer["policy_name"]) == ("DENY", "tenant_frozen")
            assert "2026-01-01T00:00:00.000000Z" in answer["reason"]
        assert control.claims == [], "a denied call claims nothing"
        [*_, record] = await running.records()
        assert record["pub"]["facts"]["frozen_at"] == FROZEN_AT
        assert "check" not in record["pub"]["response"]
        await followed(running, control.publish(settings(control)))
        assert (await running.evaluate(session_id="s"))["decision"] == "ALLOW"


async def test_batches_lists_and_explanations_show_a_freeze(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant(settings=TenantSettings(control.tenant_id, frozen_at=FROZEN_AT))
        async with running_sidecar(tmp_path, control) as running:
            body = orjson.dumps({"items": [ask(), ask(source_id="none")]})
            results = (await running.call("POST", f"{EVALUATE}/batch", body)).json()["results"]
            assert [each["policy_name"] for each in results] == ["tenant_frozen"] * 2
            explained = await running.call("POST", f"{EVALUATE}?explain=true", orjson.dumps(ask()))
            assert explained.headers["X-Sluice-Decision"] == "DENY"
            assert explained.json()["explain"]["nearest_miss"] == {
                "check": None,
                "policy_name": "tenant_frozen",
                "change": "lift the tenant's freeze (`DELETE /v1/freeze`)",
            }
            metrics = (await running.call("GET", "/metrics", key=None)).text()
            assert '="tenant_frozen"' in metrics


async def test_a_freeze_survives_a_restart_without_the_control_api(
    tmp_path: Path, control: FakeControlApi
) -> None:
    async with running_sidecar(tmp_path, control) as running:
        assert (await running.evaluate())["decision"] == "ALLOW"
        await followed(running, control.publish(settings(control, frozen_at=FROZEN_AT)))
        assert (await running.evaluate())["policy_name"] == "tenant_frozen"
    await control.stop()
    async with running_sidecar(tmp_path, control, synced=False) as running:
        assert (await running.evaluate())["policy_name"] == "tenant_frozen"


async def test_an_unreadable_document_denies(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    """As a version that knows no freeze meets one; here a later form that this version lacks."""
    later = {"tenant_id": control.tenant_id, "active": True, "stopped": {}}
    await followed(sidecar, control.publish({"tenant": orjson.dumps(later)}))
    answer = await sidecar.evaluate()
    assert (answer["decision"], answer["policy_name"]) == ("DENY", "evaluation_error")
    [record] = await sidecar.records()
    assert record["pub"]["masking"] is True
    await followed(sidecar, control.publish(settings(control)))
    assert (await sidecar.evaluate())["decision"] == "ALLOW"


async def test_an_agent_is_denied_while_it_is_suspended(
    tmp_path: Path, control: FakeControlApi
) -> None:
    async with running_sidecar(tmp_path, control) as running:
        steps: list[tuple[AgentStatus, str]] = [
            ("approved", "ALLOW"),
            ("suspended", "DENY"),
            ("approved", "ALLOW"),
        ]
        for status, decision in steps:
            agent = agent_document(Agent(AGENT, status, (ROLE,)))
            await followed(running, control.publish({agent_name(AGENT): agent}))
            answer = await running.evaluate()
            assert answer["decision"] == decision
            assert decision == "ALLOW" or answer["policy_name"] == "agent_not_approved"


async def test_many_sessions_revoked_at_once_do_not_stay_in_memory(
    tmp_path: Path, control: FakeControlApi
) -> None:
    """More than the names that a head tells, or a change remembers."""
    async with running_sidecar(tmp_path, control) as running:
        for session_id in ("s1", "s2", "kept"):
            assert (await running.evaluate(session_id=session_id))["decision"] == "ALLOW"
        ids = ["s1", "s2", *(f"other-{number}" for number in range(5000))]
        await followed(
            running, control.publish({session_name(each): session_document(each) for each in ids})
        )
        for session_id in ("s1", "s2"):
            answer = await running.evaluate(session_id=session_id)
            assert answer["policy_name"] == "session_revoked"
        assert (await running.evaluate(session_id="kept"))["decision"] == "ALLOW"
