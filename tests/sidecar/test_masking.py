"""A sidecar masks before a record reaches the spool, and before the control API hears of a
session."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from policies.definitions.model import TenantSettings
from policies.ground.keys import key_digest
from policies.ground.masking import MaskingTurns, masked_text
from policies.retrieval import Retrieval
from policies.sets.policy_set import key_name
from policies.trail.masked_ahead import masked_ahead
from policies.trail.spool_chain import read_payload
from tests.support.fake_control_api import EVALUATE_KEY, ROLE, FakeControlApi, fake_control_api
from tests.support.sidecar import EVALUATE, RunningSidecar, ask, running_sidecar
from tests.support.waiting import never, until_async

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
        pending = await running.decide(retrieval, None)
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


async def test_whatever_is_recorded_was_masked_before(
    tmp_path: Path, control: FakeControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(text: str) -> None:
        raise AssertionError(f"masked while it is recorded: {text:.20}")

    monkeypatch.setattr("policies.trail.record.masked_text", late)
    control.create_tenant(settings=TenantSettings("default", pii_masking=True))
    # The numbers take more time than a turn of the loop has for masking.
    long = f"{QUERY} {'600 123 456 ' * 200}"
    masked = masked_text(long).text
    item = ask(user_id=USER, query=long)
    async with running_sidecar(tmp_path, control) as running:
        enforcer, retrieval = running.parts.enforcer, Retrieval(ROLE, USER, "contracts", "low")
        await running.evaluate(user_id=USER, query=long, session_id="s-1")
        answer = await running.call("POST", f"{EVALUATE}/batch", orjson.dumps({"items": [item]}))
        assert answer.status == 200
        await (await enforcer.deny(retrieval, "why", "not")).durable
        for each in await enforcer.decide((retrieval,) * 2, None):
            await each.durable
        found = await recorded(running)
    assert [each.get("query") for each in found] == [masked, masked, None, None]
    assert {each["user_id"] for each in found} == {"[EMAIL]"}
    assert [claim["user_id"] for claim in control.claims] == ["[EMAIL]"]


async def test_others_are_answered_while_a_batch_is_masked(
    tmp_path: Path, control: FakeControlApi
) -> None:
    control.create_tenant(settings=TenantSettings("default", pii_masking=True))
    items = [ask(query=f"{number} {'600 123 456 ' * 20}") for number in range(10)]
    async with running_sidecar(tmp_path, control) as running:
        batch = asyncio.create_task(
            running.call("POST", f"{EVALUATE}/batch", orjson.dumps({"items": items}))
        )
        answered = 0
        while not batch.done():
            await running.call("GET", "/health")
            answered += 1
        assert (await batch).status == 200
    # Items that are masked without a pause would let one or two through.
    assert answered > 3


@pytest.mark.parametrize("path", [EVALUATE, f"{EVALUATE}/batch"])
async def test_masking_ends_when_the_client_leaves(
    tmp_path: Path, control: FakeControlApi, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def endless(
        _turns: MaskingTurns, _retrievals: Sequence[Retrieval], *, urgent: bool
    ) -> list[Retrieval]:
        assert not urgent
        waiting.set()
        try:
            await never()
            return []
        finally:
            ended.set()

    monkeypatch.setattr("sidecar.enforce.masked_ahead", endless)
    control.create_tenant(settings=TenantSettings("default", pii_masking=True))
    asked = ask(query="600 123 456 " * 40)
    body = orjson.dumps(asked if path == EVALUATE else {"items": [asked]})
    async with running_sidecar(tmp_path, control) as running:
        call = asyncio.create_task(running.call("POST", path, body))
        await until_async("it waits", waiting.is_set)
        call.cancel()
        await until_async("the work ends", ended.is_set)
        assert await running.records() == []


@pytest.mark.parametrize("waits_for", ["masking", "claim"])
async def test_a_key_that_is_revoked_while_its_call_waits_allows_nothing(
    tmp_path: Path, control: FakeControlApi, monkeypatch: pytest.MonkeyPatch, waits_for: str
) -> None:
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(
        turns: MaskingTurns, retrievals: Sequence[Retrieval], *, urgent: bool = False
    ) -> list[Retrieval]:
        waiting.set()
        await go_on.wait()
        return await masked_ahead(turns, retrievals, urgent=urgent)

    control.create_tenant(settings=TenantSettings("default", pii_masking=waits_for == "masking"))
    async with running_sidecar(tmp_path, control) as running:
        if waits_for == "masking":
            monkeypatch.setattr("sidecar.enforce.masked_ahead", slowly)
        else:
            control.hold_claims = go_on
        call = asyncio.create_task(running.evaluate(session_id="s-1"))
        await until_async("it waits", lambda: waiting.is_set() or control.claims)
        await running.follows(control.publish({key_name(key_digest(EVALUATE_KEY)): None}))
        go_on.set()
        answer = await call
    assert (answer["decision"], answer["policy_name"]) == ("DENY", "key_not_valid")
