"""A sidecar decides only for the agents of its own key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import orjson
import pytest

from policies.definitions.model import Key, TenantSettings
from policies.ground.doctor_finding import Severity
from policies.ground.keys import key_digest
from policies.sets.policy_set import key_document, key_name, tenant_document
from sidecar.doctor.examination import DoctorContext
from sidecar.doctor.policy_set import own_key
from tests.support.fake_control_api import (
    AGENT,
    EVALUATE_KEY,
    SIDECAR_KEY,
    FakeControlApi,
    fake_control_api,
)
from tests.support.sidecar import (
    EVALUATE,
    RunningSidecar,
    ask,
    retrieval,
    running_sidecar,
    settings,
)

FROZEN_AT = 1_767_225_600_000_000


@pytest.fixture
async def control() -> AsyncIterator[FakeControlApi]:
    async with fake_control_api() as made:
        made.create_tenant()
        yield made


async def bind(running: RunningSidecar, control: FakeControlApi, *agent_ids: str) -> None:
    key = Key("key_s", "sidecar", agent_ids=agent_ids)
    control.publish({key_name(key_digest(SIDECAR_KEY)): key_document(key)})
    await running.follows(control.revision)


@pytest.mark.parametrize(
    ("agent_ids", "own", "none"),
    [
        ((AGENT,), True, False),
        ((AGENT, "absent"), True, True),
        (("*",), True, True),
        (("agt_of_another_sidecar",), False, False),
    ],
)
async def test_a_call_for_an_agent_of_another_key_is_denied_and_recorded(
    tmp_path: Path,
    control: FakeControlApi,
    agent_ids: tuple[str, ...],
    own: bool,
    none: bool,
) -> None:
    async with running_sidecar(tmp_path, control) as running:
        await bind(running, control, *agent_ids)
        for agent_id, allowed in ((AGENT, own), (None, none)):
            answer = await running.evaluate(agent_id=agent_id, session_id=None)
            assert (answer["decision"] == "ALLOW") is allowed
            assert allowed or answer["policy_name"] == "key_agent_binding"
        records = await running.records()
        assert len(records) == 2
        # Lists show no source either, and no session is claimed for a foreign agent.
        key, preview = running.agent_key(), running.parts.enforcer.preview
        assert preview.permits(retrieval(agent_id=AGENT), key) is own
        new = retrieval(agent_id=AGENT, session_id="s-new")
        assert preview.must_claim(new, key) is own


async def test_without_a_binding_every_agent_is_decided_for(
    tmp_path: Path, control: FakeControlApi
) -> None:
    async with running_sidecar(tmp_path, control) as running:
        key = key_document(Key("key_s", "sidecar"))
        control.publish({key_name(key_digest(SIDECAR_KEY)): key})
        await running.follows(control.revision)
        for agent_id in (AGENT, None):
            answer = await running.evaluate(agent_id=agent_id, session_id=None)
            assert answer["decision"] == "ALLOW"


async def test_the_key_of_another_agent_is_refused_with_403_and_decides_nothing(
    tmp_path: Path, control: FakeControlApi
) -> None:
    async with running_sidecar(tmp_path, control) as running:
        await bind(running, control, "agt_of_this_sidecar")
        bound = key_document(Key("key_e", "evaluate", AGENT))
        control.publish({key_name(key_digest(EVALUATE_KEY)): bound})
        await running.follows(control.revision)
        answer = await running.call("POST", EVALUATE, orjson.dumps(ask()))
        assert answer.status == 403
        assert await running.records() == []
        await bind(running, control, AGENT)
        assert (await running.evaluate())["decision"] == "ALLOW"


async def test_a_freeze_precedes_the_binding_in_the_answer(
    tmp_path: Path, control: FakeControlApi
) -> None:
    async with running_sidecar(tmp_path, control) as running:
        await bind(running, control, "agt_of_another_sidecar")
        frozen = TenantSettings(control.tenant_id, frozen_at=FROZEN_AT)
        control.publish({"tenant": tenant_document(frozen)})
        await running.follows(control.revision)
        answer = await running.evaluate(session_id=None)
        assert answer["policy_name"] == "tenant_frozen"


async def test_the_doctor_reports_a_key_that_may_act_for_every_agent(
    tmp_path: Path, control: FakeControlApi
) -> None:
    async def said(*agent_ids: str, older: bool = False) -> list[Severity]:
        if older:
            document = key_document(Key("key_s", "sidecar"))
            control.publish({key_name(key_digest(SIDECAR_KEY)): document})
            await running.follows(control.revision)
        else:
            await bind(running, control, *agent_ids)
        return [each.severity for each in own_key(context)]

    async with running_sidecar(tmp_path, control) as running:
        context = cast("DoctorContext", SimpleNamespace(settings=settings(tmp_path, control)))
        assert await said(older=True) == [Severity.MEDIUM]
        assert await said("*") == [Severity.LOW]
        assert await said(AGENT) == []
