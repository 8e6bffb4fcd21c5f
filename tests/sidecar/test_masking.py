"""A sidecar masks before a record reaches the spool, and before the control API hears of a
session."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from policies.definitions.model import TenantSettings
from policies.retrieval import Retrieval
from policies.trail.spool_chain import read_payload
from tests.support.fake_control_api import ROLE, FakeControlApi, fake_control_api
from tests.support.sidecar import RunningSidecar, running_sidecar
from tests.support.waiting import until_async

USER, QUERY = "ann@example.com", "card 4111 1111 1111 1111"


@pytest.fixture
async def control() -> AsyncIterator[FakeControlApi]:
    async with fake_control_api() as started:
        yield started


async def recorded(running: RunningSidecar) -> list[dict[str, Any]]:
    """What the spool's records commit to, and whether they say that masking was on."""
    await until_async("everything is on disk", lambda: not running.spool.bytes_waiting)
    batch = await running.spool.batch(1 << 30, 1 << 20)
    found = []
    for raw in [] if batch is None else batch.payloads:
        sent = orjson.loads(raw)
        core = read_payload(sent).core
        opened = {path: value for path, (_, value) in sent["open"].items()}
        found.append({**opened, "masking": core["pub"].get("masking", False)})
    return found


@pytest.mark.parametrize("masking", [True, False])
async def test_the_tenants_document_decides_what_is_masked(
    tmp_path: Path, control: FakeControlApi, masking: bool
) -> None:
    control.create_tenant(settings=TenantSettings("default", pii_masking=masking))
    async with running_sidecar(tmp_path, control) as running:
        await running.evaluate(user_id=USER, query=QUERY, session_id="s-1")
        (record,) = await recorded(running)
    user, query = ("[EMAIL]", "card [CARD]") if masking else (USER, QUERY)
    assert record == {"user_id": user, "query": query, "masking": masking}
    assert [claim["user_id"] for claim in control.claims] == [user]


async def test_without_a_policy_set_everything_is_masked(
    tmp_path: Path, control: FakeControlApi
) -> None:
    async with running_sidecar(tmp_path, control, synced=False) as running:
        # As the proxy asks: its agent's key is known by the policy set alone.
        retrieval = Retrieval(ROLE, USER, "contracts", "low", query=QUERY)
        pending = await running.parts.enforcer.evaluate(retrieval, None)
        assert pending.decision.policy_name == "policy_set_stale"
        (record,) = await recorded(running)
    assert record == {"user_id": "[EMAIL]", "query": "card [CARD]", "masking": True}


async def test_a_policy_set_that_is_too_old_masks(tmp_path: Path, control: FakeControlApi) -> None:
    control.create_tenant()
    async with running_sidecar(tmp_path, control) as running:
        await running.evaluate(user_id=USER)
        await control.stop()
        running.clock.ahead = 60
        assert (await running.evaluate(user_id=USER))["policy_name"] == "policy_set_stale"
        before, after = await recorded(running)
    assert (before["user_id"], after["user_id"]) == (USER, "[EMAIL]")
