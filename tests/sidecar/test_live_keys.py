"""Keys that are revoked, expire or lose their scope, at the next request."""

from pathlib import Path
from typing import Any

import orjson

from policies.definitions.model import Agent, Key
from policies.ground.keys import key_digest
from policies.sets.policy_set import (
    agent_document,
    agent_name,
    key_document,
    key_name,
)
from sidecar.live_keys import AgentIdentity, LiveKeys
from tests.support.fake_control_api import (
    AGENT,
    EVALUATE_KEY,
    READ_KEY,
    ROLE,
    FakeControlApi,
    fake_control_api,
)
from tests.support.sidecar import EVALUATE, RunningSidecar, ask, retrieval, running_sidecar
from tests.support.waiting import until_async


async def test_a_revoked_key_or_agent_is_refused_within_a_second(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    assert (await sidecar.evaluate())["decision"] == "ALLOW"
    control.publish(
        {
            key_name(key_digest(EVALUATE_KEY)): None,
            agent_name(AGENT): agent_document(Agent(AGENT, "deprecated", (ROLE,))),
        }
    )

    async def refused() -> bool:
        return (await sidecar.call("POST", EVALUATE, orjson.dumps(ask()))).status == 403

    await until_async("the revoked key is refused", refused)
    # With another key, it is the agent that is refused.
    other = key_document(Key("key_r", "evaluate"))
    control.publish({key_name(key_digest(READ_KEY)): other})
    answer: dict[str, Any] = {}

    async def decided() -> bool:
        nonlocal answer
        body = orjson.dumps(ask())
        answer = (await sidecar.call("POST", EVALUATE, body, key=READ_KEY)).json()
        return "decision" in answer

    await until_async("the other key is known", decided)
    assert answer["policy_name"] == "agent_not_approved"


async def test_an_expired_key_is_refused_whatever_the_host_s_clock_shows(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, staleness_seconds=3600) as running:
            expires = running.clock.clock.now() + 60_000_000
            bound = key_document(Key("key_e", "evaluate", expires_at=expires))
            control.publish({key_name(key_digest(EVALUATE_KEY)): bound})
            await running.follows(control.revision)
            assert (await running.evaluate())["decision"] == "ALLOW"
            running.clock.wall_ahead = 3600
            assert (await running.evaluate())["decision"] == "ALLOW"
            running.clock.ahead = 61
            answer = await running.call("POST", EVALUATE, orjson.dumps(ask()))
            assert answer.status == 403
            refused = "sluice_refused_keys_total"
            way = '{reason="expired",way="evaluate_context"}'
            assert await running.metric(f"{refused}{way}") == 1
            question = await running.call("POST", "/access/v1/evaluation", b"{}", key=READ_KEY)
            assert question.status == 403
            way = '{reason="scope",way="authzen"}'
            assert await running.metric(f"{refused}{way}") == 1


async def test_an_agent_whose_key_was_revoked_is_denied_and_recorded(
    sidecar: RunningSidecar, control: FakeControlApi
) -> None:
    keys = LiveKeys(sidecar.parts.policies.policy_set, sidecar.clock.clock)
    agent = AgentIdentity.of(AGENT, ROLE, EVALUATE_KEY, keys)
    assert EVALUATE_KEY not in repr(agent)
    key = agent.key()
    assert (await sidecar.decide(retrieval(), key)).decision.decision == "ALLOW"
    assert sidecar.parts.enforcer.preview.permits(retrieval(), key)
    control.publish({key_name(key_digest(EVALUATE_KEY)): None})
    await until_async("it follows", lambda: agent.key() is None)
    pending = await sidecar.decide(retrieval(), agent.key())
    assert pending.decision.policy_name == "key_not_valid"
    assert not sidecar.parts.enforcer.preview.permits(retrieval(), agent.key())
    assert [r["policy_name"] for r in await sidecar.responses()] == [
        "underwriting",
        "key_not_valid",
    ]


async def test_an_agent_needs_a_key_that_may_evaluate(sidecar: RunningSidecar) -> None:
    keys = LiveKeys(sidecar.parts.policies.policy_set, sidecar.clock.clock)
    assert AgentIdentity.of(AGENT, ROLE, READ_KEY, keys).key() is None
