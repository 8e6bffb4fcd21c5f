"""The keys of the agent behind the proxy and of the sidecar are replaced while requests pass."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession

from policies.definitions.model import Key
from policies.ground.addresses import ListenAddress
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import key_document, key_name
from sidecar.proxy.assembly import Proxy
from sidecar.settings.model import RestRule, Source
from tests.support.fake_control_api import (
    EVALUATE_KEY,
    SIDECAR_KEY,
    FakeControlApi,
    fake_control_api,
)
from tests.support.scripted_source import answer, data_source
from tests.support.sidecar import RunningSidecar, running_sidecar
from tests.support.waiting import until_async

NEW_KEY = make_key(b"n" * 32)


@pytest.mark.deep(
    stands_in="tests/sidecar/test_standing_denials.py::test_an_invalid_key_of_an_agent_is_logged_and_replaced_from_the_file"
)
async def test_a_revoked_key_is_replaced_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_control_api() as control, data_source(answer()) as upstream:
        control.create_tenant()
        address = f"http://127.0.0.1:{upstream.port}"
        rule = RestRule("GET", "/{name}", "retrieve", "{name}")
        crm = Source("crm", "rest", address, ListenAddress("127.0.0.1", 0), "low", routes=(rule,))
        async with (
            running_sidecar(tmp_path, control, sources=(crm,)) as running,
            ClientSession() as session,
        ):
            parts = running.parts
            [proxy] = [each for each in parts.listeners if isinstance(each, Proxy)]
            assert parts.agent_key_file is not None
            loops = [parts.agent_key_file.run(), parts.standing_denials.run()]
            tasks = [asyncio.create_task(loop) for loop in loops]

            async def answered(status: int) -> bool:
                url = f"http://127.0.0.1:{proxy.port('crm')}/rates"
                async with session.get(url) as found:
                    return found.status == status

            async def told(line: str) -> None:
                await until_async(line, lambda: line in caplog.text)

            assert await answered(200)
            control.publish({key_name(key_digest(EVALUATE_KEY)): None})
            await until_async("it is denied", lambda: answered(403))
            await told("every proxied request is denied for the agent's key")
            # A sidecar that holds only what it uses has to fetch the new key's document.
            control.publish({key_name(key_digest(NEW_KEY)): key_document(Key("key_n", "evaluate"))})
            (tmp_path / "agent.key").write_text(NEW_KEY)
            await until_async("it is allowed", lambda: answered(200))
            await told("recovered: the agent's key is valid")
            # The new key's document is one that the sidecar follows.
            control.publish({key_name(key_digest(NEW_KEY)): None})
            await until_async("it is denied again", lambda: answered(403))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.deep(
    stands_in="tests/sidecar/test_standing_denials.py::test_a_key_of_another_agent_or_role_does_not_replace_a_matching_one"
)
async def test_the_sidecar_s_own_key_is_replaced_without_a_restart(
    sidecar: RunningSidecar,
    control: FakeControlApi,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts, file = sidecar.parts, tmp_path / "sidecar.key"
    assert parts.own_key_file is not None
    # A key that may not speak for this sidecar and its agent replaces none that may.
    name = key_name(key_digest(NEW_KEY))
    for unfit, said in (
        (Key("key_n", "evaluate"), "has the scope `evaluate`, not `sidecar`"),
        (Key("key_n", "sidecar", agent_ids=("agt_other",)), "may not speak for agent"),
        (Key("key_n", "sidecar", agent_ids=("*",), sidecar_ids=("x",)), "may not speak as sidecar"),
    ):
        await sidecar.follows(control.publish({name: key_document(unfit)}))
        file.write_text(NEW_KEY)
        await parts.own_key_file.follow()
        assert said in (parts.own_key_file.problem or "")
        assert await sidecar.problems() == {}
    # One that fits is used from the next call on.
    fitting = key_document(Key("key_n", "sidecar", agent_ids=("*",)))
    await sidecar.follows(control.publish({name: fitting}))
    await parts.own_key_file.follow()
    control.sidecar_key = NEW_KEY
    await parts.reporter.report()
    assert control.reports
    # Revoked: the refusal is told once, as the cause. The file brings the sidecar back.
    control.sidecar_key = SIDECAR_KEY
    control.publish({name: fitting})

    async def stale() -> bool:
        return "policy_set" in await sidecar.problems()

    await until_async("it is refused", stale)
    sidecar.clock.ahead = 10.0
    parts.standing_denials.look()
    [line] = [each for each in caplog.messages if "`policy_set_stale`" in each]
    assert line.count("the control API answered 403") == 1
    assert "within" not in line
    assert (await sidecar.problems())["policy_set"].count("answered 403") == 1
    file.write_text(SIDECAR_KEY)
    await parts.own_key_file.follow()

    async def ready() -> bool:
        return not await sidecar.problems()

    await until_async("it is ready", ready)
    assert NEW_KEY not in caplog.text
    assert SIDECAR_KEY not in caplog.text
