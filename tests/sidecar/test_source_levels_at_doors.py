"""The levels of sources hold at the doors, too: AuthZEN's, and those that gateways ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from policies.sets.source_levels import SOURCES, sources_document
from sidecar.settings.model import NamedSource, Source
from tests.sidecar.authzen.questions import EVALUATION, EVALUATIONS, question
from tests.sidecar.doors.http.checks import checks
from tests.support.fake_control_api import FakeControlApi, fake_control_api, policy
from tests.support.sidecar import RunningSidecar, running_sidecar
from tests.support.waiting import until_async

LOCAL = "http://127.0.0.1:9"
NAMED = {"chroma://kb/default/pay": NamedSource("salaries", "critical")}
KB = Source("kb", "chroma", LOCAL, None, "low", names=NAMED)
OPEN = policy(allowed_sources=("*",), max_sensitivity="high")


def resource(name: str) -> dict[str, Any]:
    return {"type": "source", "id": name, "properties": {"sensitivity_level": "low"}}


async def states(running: RunningSidecar, control: FakeControlApi, levels: Any) -> None:
    revision = control.publish({SOURCES: sources_document(levels)})

    async def applied() -> bool:
        return running.parts.policies.policy_set.revision >= revision

    await until_async("the sidecar has the revision", applied)


async def answered(running: RunningSidecar, name: str) -> bool:
    found = await running.call("POST", EVALUATION, orjson.dumps(question(resource=resource(name))))
    decision: bool = found.json()["decision"]
    return decision


async def test_authzen_has_the_floors_of_sidecar_and_tenant(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant(OPEN)
        async with running_sidecar(tmp_path, control, sources=(KB,)) as running:
            assert await answered(running, "handbook")
            assert not await answered(running, "salaries")
            await states(running, control, {"hand*": "critical"})
            assert not await answered(running, "handbook")
            body = question(resource=None, evaluations=[
                {"resource": resource(name)} for name in ("handbook", "salaries", "contracts")
            ])  # fmt: skip
            found = await running.call("POST", EVALUATIONS, orjson.dumps(body))
            told = [each["decision"] for each in found.json()["evaluations"]]
            assert told == [False, False, True]


async def test_a_gateway_s_door_applies_the_level_of_the_tenant(tmp_path: Path) -> None:
    async with checks(tmp_path, OPEN) as asked:
        for door in ("edge", "nginx"):
            assert (await asked.ask(door)).status == 200
        await states(asked.running, asked.control, {"rest://crm*": "critical"})
        for door in ("edge", "nginx"):
            assert (await asked.ask(door)).status == 403
        assert (await asked.running.records())[-1]["pub"]["facts"]["levels"]["tenant"] == "critical"
