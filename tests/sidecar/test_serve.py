"""A sidecar as a process: how it starts, refuses to start, stops, dies and comes back."""

import asyncio
import contextlib
import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, ClientSession

from policies.ground.addresses import ListenAddress
from sidecar.policy_cache.full_replica import PollLoop
from sidecar.serve import LoopStopped, serve
from tests.runner import tiers
from tests.support import waiting
from tests.support.fake_control_api import (
    EVALUATE_KEY,
    FakeControlApi,
    fake_control_api,
)
from tests.support.ports import free_port
from tests.support.properties import chance
from tests.support.sidecar import FakeClock, running_sidecar, settings
from tests.support.sidecar_process import SidecarProcess, sidecar_process
from tests.support.stack import ROOT
from tests.support.waiting import until_async


@tiers.sampled("number", "feed")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_signal_ships_the_remaining_records_and_exits_with_0(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with fake_control_api() as control, sidecar_process(tmp_path, control) as sidecar:
        control.create_tenant()
        await sidecar.start()
        async with ClientSession() as session:
            asked = [sidecar.evaluate(session) for _ in range(100)]
            answers = await asyncio.gather(*asked)
        sidecar.tell(number)
        assert await sidecar.ended() == 0
        logged = decided_in(control)
        assert sorted(logged) == sorted(answer["event_id"] for answer in answers)
        assert EVALUATE_KEY not in await sidecar.log()


def decided_in(control: FakeControlApi) -> list[str]:
    """The event ids of the decisions. A sidecar that decides nothing for half a second records a
    heartbeat too."""
    return [record["eid"] for record in control.records if record["kind"] == "decision"]


async def test_a_stop_finishes_open_requests_and_accepts_no_new_ones(tmp_path: Path) -> None:
    async with fake_control_api() as control, sidecar_process(tmp_path, control) as sidecar:
        control.create_tenant()
        control.hold_claims = asyncio.Event()
        await sidecar.start()
        async with ClientSession() as session:
            under_way = asyncio.create_task(sidecar.evaluate(session, session_id="s-1"))
            await until_async("it asks", lambda: control.claims)
            sidecar.tell(signal.SIGTERM)
            await until_async("it stops", sidecar.stopping)
            control.hold_claims.set()
            answer = await under_way
        assert await sidecar.ended() == 0
        assert decided_in(control) == [answer["event_id"]]


@pytest.mark.deep(
    stands_in="tests/sidecar/test_lifetime.py::test_records_that_cannot_ship_at_a_stop_stay_in_the_spool_without_failure"
)
async def test_a_stop_without_the_control_api_keeps_the_records_for_the_next_start(
    tmp_path: Path,
) -> None:
    async with fake_control_api() as control, sidecar_process(tmp_path, control) as sidecar:
        control.create_tenant()
        await sidecar.start()
        await control.stop()
        async with ClientSession() as session:
            answers = [await sidecar.evaluate(session) for _ in range(20)]
            sidecar.tell(signal.SIGTERM)
            assert await sidecar.ended(10) == 0
            assert not control.records
            # The policy set is on disk and still young: it decides before the control API is back.
            await sidecar.start()
            answers.append(await sidecar.evaluate(session))
        await control.start()
        await until_async("they ship", lambda: len(decided_in(control)) == 21)
        logged = decided_in(control)
        assert logged == [answer["event_id"] for answer in answers]
        sidecar.tell(signal.SIGTERM)
        assert await sidecar.ended() == 0


@pytest.mark.deep(
    stands_in="tests/sidecar/test_recorder.py::test_no_answer_leaves_before_its_record_is_on_disk"
)
async def test_killed_at_any_moment_every_answered_decision_is_logged_once(
    tmp_path: Path,
) -> None:
    answered: list[str] = []

    async def client(sidecar: SidecarProcess) -> None:
        try:
            async with ClientSession() as session:
                while True:
                    answered.append((await sidecar.evaluate(session))["event_id"])
        except (ClientConnectionError, OSError):
            return

    async with fake_control_api() as control, sidecar_process(tmp_path, control) as sidecar:
        control.create_tenant()
        draw = chance("kills of a sidecar")
        for _ in range(5):
            await sidecar.start()
            clients = [asyncio.create_task(client(sidecar)) for _ in range(16)]
            enough = len(answered) + draw.randrange(1, 200)
            await until_async("so many are answered", lambda e=enough: len(answered) >= e)  # type: ignore[misc]
            sidecar.tell(signal.SIGKILL)
            await sidecar.ended()
            await asyncio.gather(*clients)
        await sidecar.start()
        sidecar.tell(signal.SIGTERM)
        assert await sidecar.ended() == 0
        logged = decided_in(control)
        assert len(logged) == len(set(logged))
        assert answered
        assert set(answered) <= set(logged)


async def drains(sidecar: SidecarProcess) -> bool:
    return await sidecar.status("/health") != 200


@pytest.mark.deep(
    stands_in="tests/sidecar/test_main.py::test_the_first_signal_stops_the_sidecar_and_the_second_would_kill_it"
)
async def test_a_second_signal_ends_the_sidecar_at_once(tmp_path: Path) -> None:
    async with (
        fake_control_api() as control,
        sidecar_process(tmp_path, control, drain_seconds=60) as sidecar,
    ):
        control.create_tenant()
        control.hold_claims = asyncio.Event()
        await sidecar.start()
        async with ClientSession() as session:
            under_way = asyncio.create_task(sidecar.evaluate(session, session_id="s-1"))
            await until_async("it asks", lambda: control.claims)
            sidecar.tell(signal.SIGTERM)
            await waiting.until_async("it takes the first to heart", partial(drains, sidecar))
            sidecar.tell(signal.SIGTERM)
            assert await sidecar.ended(2) == -signal.SIGTERM
            # On a busy machine the claim's two seconds may have passed before the second signal.
            with contextlib.suppress(ClientConnectionError):
                await under_way


async def test_unusable_settings_exit_with_2_and_every_message(tmp_path: Path) -> None:
    async with (
        fake_control_api() as control,
        sidecar_process(tmp_path, control, listn="x", staleness_seconds="soon") as sidecar,
    ):
        await sidecar.start(ready=False)
        assert await sidecar.ended() == 2
        told = (await sidecar.log()).splitlines()
        assert len(told) == 2
        assert any("listn: unknown key; did you mean `listen`?" in line for line in told)
        assert any("staleness_seconds" in line for line in told)
        assert not (tmp_path / "spool").exists()


@pytest.mark.deep(
    stands_in="tests/sidecar/test_main.py::test_a_missing_argument_or_file_exits_with_2"
)
async def test_a_missing_file_or_argument_exits_with_2(tmp_path: Path) -> None:
    for arguments in ([], ["--config", str(tmp_path / "none.yaml")]):
        made = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sidecar",
            *arguments,
            cwd=ROOT,
            stderr=asyncio.subprocess.PIPE,
        )
        _, told = await made.communicate()
        assert made.returncode == 2, told


@pytest.mark.deep(
    stands_in="tests/sidecar/test_main.py::test_a_resource_held_by_another_sidecar_exits_with_1_and_one_line"
)
async def test_a_taken_port_exits_with_1_and_one_line(tmp_path: Path) -> None:
    async with fake_control_api() as control, sidecar_process(tmp_path, control) as sidecar:
        sidecar.config["listen"] = f"127.0.0.1:{control.port}"
        await sidecar.start(ready=False)
        assert await sidecar.ended() == 1
        told = await sidecar.log()
        assert "address already in use" in told
        assert "Traceback" not in told


@pytest.mark.deep(
    stands_in="tests/sidecar/test_main.py::test_a_resource_held_by_another_sidecar_exits_with_1_and_one_line"
)
async def test_a_spool_that_another_sidecar_holds_exits_with_1_and_one_line(tmp_path: Path) -> None:
    async with fake_control_api() as control, sidecar_process(tmp_path, control) as first:
        control.create_tenant()
        await first.start()
        async with sidecar_process(tmp_path, control) as second:
            await second.start(ready=False)
            assert await second.ended() == 1
            told = await second.log()
            assert "held by another process" in told
            assert "Traceback" not in told
        assert await first.status("/health/ready") == 200


@pytest.mark.deep(
    stands_in="tests/sidecar/test_main.py::test_faults_of_the_log_settings_are_reported_with_those_of_the_file"
)
async def test_an_unknown_log_level_exits_with_2(tmp_path: Path) -> None:
    made = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sidecar",
        "--config",
        str(tmp_path / "none.yaml"),
        cwd=ROOT,
        env={**os.environ, "SLUICE_LOG_LEVEL": "loud"},
        stderr=asyncio.subprocess.PIPE,
    )
    _, told = await made.communicate()
    assert made.returncode == 2
    assert b"SLUICE_LOG_LEVEL: `loud` is not one of debug, info, warning, error" in told
    assert b"none.yaml" in told


@pytest.mark.parametrize("fault", [ZeroDivisionError("so ordered"), None])
async def test_a_loop_that_dies_or_ends_stops_the_sidecar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception | None
) -> None:
    async def run(_: PollLoop) -> None:
        await asyncio.sleep(0.1)
        if fault is not None:
            raise fault

    monkeypatch.setattr(PollLoop, "run", run)
    async with fake_control_api() as control:
        port = free_port()
        told = settings(tmp_path, control, listen=ListenAddress("127.0.0.1", port))
        with pytest.raises(BaseExceptionGroup) as died:
            async with asyncio.timeout(20):
                await serve(told, FakeClock().clock, os.urandom, asyncio.Event(), lambda: None)
        assert died.group_contains(ZeroDivisionError if fault else LoopStopped)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_readiness_shows_a_stop_before_the_ports_close(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control) as running:
            running.parts.readiness.draining = True
            assert "stop" in (await running.problems())["process"]
            assert (await running.evaluate())["decision"] == "ALLOW"


async def test_an_idle_sidecar_stops_quickly(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        told = settings(tmp_path, control, listen=ListenAddress("127.0.0.1", free_port()))
        stop = asyncio.Event()
        announced = asyncio.Event()
        serving = asyncio.create_task(
            serve(told, FakeClock().clock, os.urandom, stop, announced.set)
        )
        await announced.wait()
        await until_async("it follows", lambda: control.polls)
        stop.set()
        async with asyncio.timeout(20):  # sooner than its long poll ends
            await serving
