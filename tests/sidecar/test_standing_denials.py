"""What denies every request is told in the log when it begins and when it ends, and in the fleet's
list."""

import asyncio
from pathlib import Path

import orjson
import pytest

from policies.definitions.model import Agent, Key, TenantSettings
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import (
    agent_document,
    agent_name,
    key_document,
    key_name,
    tenant_document,
)
from tests.support.fake_control_api import AGENT, EVALUATE_KEY, READ_KEY, ROLE, FakeControlApi
from tests.support.sidecar import EVALUATE, FaultyDisk, RunningSidecar, ask, running_sidecar
from tests.support.waiting import until_async

OTHER_KEY = make_key(b"o" * 32)
FROZEN_AT = 1_767_225_600_000_000


async def test_an_invalid_key_of_an_agent_is_logged_and_replaced_from_the_file(
    sidecar: RunningSidecar,
    control: FakeControlApi,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts, file = sidecar.parts, tmp_path / "agent.key"
    assert parts.agent_key_file is not None
    other = key_document(Key("key_r", "evaluate"))
    revoked = {key_name(key_digest(EVALUATE_KEY)): None, key_name(key_digest(READ_KEY)): other}
    await sidecar.follows(control.publish(revoked))
    for _ in range(2):
        parts.standing_denials.look()
    [line] = caplog.messages
    assert line.startswith("every proxied request is denied for the agent's key: ")
    assert "is unknown or revoked (`key_not_valid`): write a valid one into that file" in line
    assert "unknown or revoked" in (await sidecar.problems())["agent_key"]
    await parts.reporter.report()
    assert control.reports[-1]["refusing"].startswith("agent_key: the key in `agent.key_file`")
    # What is no key changes nothing, and says so.
    file.write_text("slc_no")
    await parts.agent_key_file.follow()
    assert caplog.messages[-1].endswith("a mistyped or truncated key: expected one line, `slc_…`")
    why = (await sidecar.problems())["agent_key"]
    assert "unknown or revoked (`key_not_valid`), and `agent.key_file` holds a mistyped" in why
    assert await sidecar.metric('sluice_not_ready{reason="agent_key"}') == 1
    # Another wrong one is told at once, with what is wrong with it and what to do.
    foreign = key_document(Key("key_o", "evaluate", "agt_other"))
    await sidecar.follows(control.publish({key_name(key_digest(OTHER_KEY)): foreign}))
    parts.standing_denials.look()
    file.write_text(OTHER_KEY)
    await parts.agent_key_file.follow()
    parts.standing_denials.look()
    replaced, denied = caplog.messages[-2:]
    assert "recovered" not in caplog.text
    assert replaced == (
        f"the agent's key is replaced by that in `{file}`, which is bound to another agent than "
        "`agent.id`: write one that fits into that file"
    )
    assert denied.startswith("every proxied request is denied for the agent's key: ")
    # Whose key it is stands in the log alone: anyone may read whether the sidecar is ready.
    why = "is bound to another agent than `agent.id` (`key_agent_binding`)"
    assert f"{why}, it is key `key_o` of agent `agt_other`: write a valid one" in denied
    assert f"{why}: write a valid one" in (await sidecar.problems())["agent_key"]
    file.write_text(READ_KEY)
    await parts.agent_key_file.follow()
    parts.standing_denials.look()
    assert caplog.messages[-1] == (
        "recovered: the agent's key is valid, and proxied requests are decided"
    )
    assert await sidecar.problems() == {}
    assert await sidecar.metric('sluice_not_ready{reason="agent_key"}') == 0
    assert EVALUATE_KEY not in caplog.text
    assert READ_KEY not in caplog.text
    assert OTHER_KEY not in caplog.text


async def test_a_key_of_another_agent_or_role_does_not_replace_a_matching_one(
    sidecar: RunningSidecar,
    control: FakeControlApi,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts, file = sidecar.parts, tmp_path / "agent.key"
    assert parts.agent_key_file is not None
    good, name = key_name(key_digest(READ_KEY)), key_name(key_digest(EVALUATE_KEY))
    await sidecar.follows(control.publish({good: key_document(Key("key_r", "evaluate"))}))
    file.write_text(READ_KEY)
    await parts.agent_key_file.follow()
    for held, said in (("", "is empty"), ("slc_no", "holds a mistyped or truncated key")):
        file.write_text(held)
        await parts.agent_key_file.follow()
        assert f"{said}: expected one line, `slc_…`; the one before stays" in caplog.messages[-1]
    # A key that may not evaluate, or not as this agent in this role, replaces none that may.
    for unfit, said in (
        (None, "is unknown or revoked"),
        (Key("key_e", "read"), "has another scope than"),
        (Key("key_e", "evaluate", "agt_other"), "is bound to another agent than `agent.id`"),
        (Key("key_e", "evaluate", None, ("other",)), "is not for the role `agent.role`"),
    ):
        await sidecar.follows(
            control.publish({name: None if unfit is None else key_document(unfit)})
        )
        file.write_text(EVALUATE_KEY)
        await parts.agent_key_file.follow()
        assert await sidecar.problems() == {}
        assert said in (parts.agent_key_file.problem or "")
        assert said in caplog.messages[-1]
    # Once the one in use is revoked too, it is not ready, and says for what.
    await sidecar.follows(control.publish({good: None}))
    await parts.agent_key_file.follow()
    parts.standing_denials.look()
    why = (await sidecar.problems())["agent_key"]
    assert "is not for the role `agent.role` (`key_role_restriction`)" in why
    agent = agent_document(Agent(AGENT, "approved", (ROLE,), "key_o"))
    bound = key_document(Key("key_e", "evaluate"))
    await sidecar.follows(control.publish({name: bound, agent_name(AGENT): agent}))
    assert "is not the one that `agent.id` is bound to" in (await sidecar.problems())["agent_key"]
    # Whether a key is valid can't be known by a set that is too old.
    parts.policies.freshness.expire("the key was refused")
    parts.standing_denials.look()
    assert "agent_key" not in await sidecar.problems()
    assert "recovered: the agent's key is valid" not in caplog.text


async def test_a_role_that_the_agent_lacks_is_logged_until_it_has_it(
    sidecar: RunningSidecar, control: FakeControlApi, caplog: pytest.LogCaptureFixture
) -> None:
    parts = sidecar.parts
    fault = "`agent.role` is not among the roles that `agent.id` is registered with"
    for roles in (("other",), ("other", ROLE)):
        agent = agent_document(Agent(AGENT, "approved", roles))
        await sidecar.follows(control.publish({agent_name(AGENT): agent}))
        parts.standing_denials.look()
        wrong = ROLE not in roles
        assert await sidecar.metric('sluice_not_ready{reason="agent_role"}') == wrong
        problems = await sidecar.problems()
        assert list(problems) == (["agent_role"] if wrong else [])
        assert problems.get("agent_role", fault).startswith(fault)
    told, over = caplog.messages
    assert told.startswith(f"every proxied request is denied for the agent's role: {fault} ")
    assert "other" not in told
    assert over == "recovered: the agent may act in its role, and proxied requests are decided"


async def test_a_first_start_without_a_policy_set_is_logged_as_such(
    control: FakeControlApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    control.refuse_with = 503
    async with running_sidecar(tmp_path, control, synced=False) as running:
        running.clock.ahead = 6.0
        running.parts.standing_denials.look()
    lines = [each for each in caplog.messages if "`policy_set_stale`" in each]
    assert len(lines) == 1
    # Nothing says that 30 s, the limit, have passed.
    assert ": no policy set is confirmed yet since the start" in lines[0]


async def test_a_stale_set_and_a_freeze_are_logged_when_they_begin_and_end(
    sidecar: RunningSidecar,
    control: FakeControlApi,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = sidecar.parts

    async def publish(frozen_at: int | None) -> None:
        settings = TenantSettings(control.tenant_id, frozen_at=frozen_at)
        await sidecar.follows(control.publish({"tenant": tenant_document(settings)}))
        parts.standing_denials.look()

    assert (await sidecar.call("GET", "/health/ready", key=None)).json()["tenant"] == "active"
    await publish(FROZEN_AT)
    [frozen] = caplog.messages
    assert frozen.startswith("every request is denied with `tenant_frozen`: the tenant is frozen")
    # A freeze is the tenant's wish: the sidecar is ready, and says what it does.
    assert (await sidecar.call("GET", "/health/ready", key=None)).json()["tenant"] == "frozen"
    assert await sidecar.metric("sluice_tenant_frozen") == 1
    await parts.reporter.report()
    assert "frozen since 2026-01-01" in control.reports[-1]["refusing"]
    await publish(None)
    await parts.reporter.report()
    assert control.reports[-1]["refusing"] is None
    # While it starts, the log says nothing of a set that is not confirmed yet. The fleet's list
    # shows it, and not until the next regular report.
    monkeypatch.setattr("sidecar.telemetry.status.INTERVAL_SECONDS", 3600.0)
    lines = len(caplog.messages)
    parts.policies.freshness.expire("no answer yet")
    parts.standing_denials.look()
    reporter = asyncio.create_task(parts.reporter.run())
    await until_async("it reports why", lambda: control.reports[-1]["refusing"] is not None)
    parts.policies.freshness.confirm(parts.policies.monotonic())
    parts.standing_denials.look()
    await until_async("it reports the end", lambda: control.reports[-1]["refusing"] is None)
    reporter.cancel()
    assert len(caplog.messages) == lines
    parts.policies.freshness.expire("the key was refused")
    sidecar.clock.ahead = 10.0
    parts.standing_denials.look()
    stale, answered = caplog.messages[-1], await sidecar.evaluate()
    assert stale == "every request is denied with `policy_set_stale`: the key was refused"
    assert answered["policy_name"] == "policy_set_stale"
    await publish(None)
    assert [each for each in caplog.messages if each.startswith("recovered")] == [
        "recovered: the tenant is not frozen any more, and requests are decided",
        "recovered: the policy set is confirmed again, and requests are decided by it",
    ]


async def test_a_disk_that_accepts_no_records_is_logged_when_it_begins_and_ends(
    sidecar: RunningSidecar, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    sidecar.clock.ahead = 10.0
    disk.fails = True
    assert (await sidecar.call("POST", EVALUATE, orjson.dumps(ask()))).status == 503
    sidecar.parts.standing_denials.look()
    [line] = [each for each in caplog.messages if "every retrieval is denied" in each]
    assert line.startswith("every retrieval is denied with `audit_unavailable`, or is answered 503")
    assert await sidecar.metric('sluice_not_ready{reason="spool"}') == 1
    disk.fails = False

    async def ready() -> bool:
        return "spool" not in await sidecar.problems()

    await until_async("the disk takes records again", ready)
    sidecar.parts.standing_denials.look()
    back = "recovered: the spool takes records, and retrievals are decided"
    assert back in caplog.messages
