"""`POST /quitquitquit` stops the sidecar, as SIGTERM does, for programs on the same host alone."""

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from policies.ground.addresses import ListenAddress
from sidecar.wait import __main__ as wait_for_ready
from sidecar.wait.__main__ import ask as ready_problem
from tests.support.fake_control_api import FakeControlApi
from tests.support.ports import free_port
from tests.support.sidecar import RunningSidecar, running_sidecar
from tests.support.sidecar_process import SidecarProcess, sidecar_process
from tests.support.stack import ROOT
from tests.support.waiting import until_async

PATH = "/quitquitquit"


@pytest.fixture
def sidecar_settings() -> dict[str, Any]:
    """Make its port for stopping the first; `ports[1]` is the API's."""
    return {"quit_listen": ListenAddress("127.0.0.1", 0)}


async def test_a_post_request_stops_the_sidecar(sidecar: RunningSidecar) -> None:
    answer = await sidecar.call("POST", PATH, key=None)
    assert (answer.status, answer.json()) == (200, {"status": "stopping"})
    assert sidecar.stop.is_set()


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_other_methods_are_refused_with_405(sidecar: RunningSidecar, method: str) -> None:
    answer = await sidecar.call(method, PATH, key=None)
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    assert not sidecar.stop.is_set()


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/quitquitquit/", "//quitquitquit"])
async def test_the_port_for_stopping_serves_no_other_path(
    sidecar: RunningSidecar, path: str
) -> None:
    assert (await sidecar.call("POST", path, key=None)).status == 404
    assert not sidecar.stop.is_set()


@pytest.mark.parametrize(
    "fields",
    [
        {"Host": "rebound.example"},
        {"Host": "rebound.example:8714"},
        {"Host": "127.0.0.1.example"},
        {"Host": "127.0.0.1@rebound.example"},
        {"Host": "10.0.0.9:8714"},
        {"Host": ""},
        {"Origin": "https://page.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ],
)
async def test_a_stop_that_a_browser_was_made_to_send_is_refused(
    sidecar: RunningSidecar, fields: dict[str, str]
) -> None:
    for _ in range(2):  # the second time, the head is in the cache
        assert (await sidecar.call("POST", PATH, b"{}", key=None, headers=fields)).status == 403
    assert not sidecar.stop.is_set()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8714", "127.0.0.1", "[::1]:8714"])
async def test_a_program_may_use_any_name_of_loopback(sidecar: RunningSidecar, host: str) -> None:
    assert (await sidecar.call("POST", PATH, key=None, headers={"Host": host})).status == 200


async def test_the_port_of_the_api_does_not_stop_the_sidecar(sidecar: RunningSidecar) -> None:
    sidecar.address = sidecar.ports[1].address
    assert (await sidecar.call("POST", PATH, key=None)).status == 404
    assert not sidecar.stop.is_set()


async def test_another_address_of_the_host_does_not_reach_the_port_for_stopping(
    sidecar: RunningSidecar,
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; the system chooses its own address
        except OSError:
            pytest.skip("this host has no address but loopback")
        own = probe.getsockname()[0]
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(own, sidecar.address.port)


async def test_stopping_by_a_request_is_off_by_default(
    control: FakeControlApi, tmp_path: Path
) -> None:
    async with running_sidecar(tmp_path, control) as made:
        assert len(made.ports) == 1
        assert (await made.call("POST", PATH, key=None)).status == 404


async def _post(url: str, **options: Any) -> int:
    async with ClientSession() as session, session.post(url, **options) as answer:
        return answer.status


def _stoppable() -> tuple[int, dict[str, Any]]:
    port, proxy, listen = free_port(), free_port(), free_port()
    source = {
        "alias": "self", "kind": "rest", "upstream": f"http://127.0.0.1:{port}", "writes": "allow",
        "listen": f"127.0.0.1:{listen}", "sensitivity": "low", "mode": "report",
    }  # fmt: skip
    proxied = {"forward_proxy": f"127.0.0.1:{proxy}", "sources": [source]}
    return port, {"quit_listen": f"127.0.0.1:{port}", **proxied}


@pytest.mark.deep(
    stands_in="tests/sidecar/test_serve.py::test_a_stop_finishes_open_requests_and_accepts_no_new_ones"
)
async def test_the_process_finishes_open_requests_and_exits_with_success(
    control: FakeControlApi, tmp_path: Path
) -> None:
    port, settings = _stoppable()
    control.hold_claims = asyncio.Event()
    async with sidecar_process(tmp_path, control, **settings) as made, ClientSession() as session:
        await made.start()
        await _finishes(made, control, port, session)
        assert len([each for each in control.records if each["kind"] == "decision"]) == 1


async def test_a_proxied_request_cannot_stop_the_sidecar_and_a_direct_one_can(
    control: FakeControlApi, tmp_path: Path
) -> None:
    """Not even with a source that leads to the port, and whose denials are forwarded."""
    port, settings = _stoppable()
    control.hold_claims = asyncio.Event()
    async with sidecar_process(tmp_path, control, **settings) as made, ClientSession() as session:
        await made.start()
        (source,) = settings["sources"]
        assert await _post(f"http://{source['listen']}{PATH}") >= 400
        proxy = f"http://{settings['forward_proxy']}"
        for host in ("127.0.0.1", "localhost", "0.0.0.0"):
            assert await _post(f"http://{host}:{port}{PATH}", proxy=proxy) >= 400, host
        assert await made.status("/health/ready") == 200
        await _finishes(made, control, port, session)


async def _finishes(
    made: SidecarProcess, control: FakeControlApi, port: int, session: ClientSession
) -> None:
    """It is stopped while it decides, answers and ends."""
    assert control.hold_claims is not None
    under_way = asyncio.create_task(made.evaluate(session, session_id="s-1"))
    await until_async("it asks", lambda: control.claims)
    assert await _post(f"http://127.0.0.1:{port}{PATH}") == 200
    await until_async("it stops", made.stopping)
    control.hold_claims.set()
    answer = await under_way
    assert await made.ended() == 0
    decided = [each["eid"] for each in control.records if each["kind"] == "decision"]
    assert decided[-1] == answer["event_id"]


async def test_the_wait_command_waits_until_the_sidecar_is_ready(
    sidecar: RunningSidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = [free_port(), free_port(), sidecar.ports[1].address.port]
    asked: list[str] = []

    def ask(_: int, *, https: bool) -> str:
        asked.append(ready_problem(ports[len(asked)], https=https))
        return asked[-1]

    monkeypatch.setattr(wait_for_ready, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(wait_for_ready, "ask", ask)
    # What does not listen yet is asked again.
    monkeypatch.setattr(sys, "argv", ["sluice wait", "--port", "0"])
    assert await asyncio.to_thread(wait_for_ready.main) == 0
    assert [bool(each) for each in asked] == [True, True, False]


@pytest.mark.deep(stands_in="test_the_wait_command_waits_until_the_sidecar_is_ready")
async def test_the_wait_command_ends_when_the_sidecar_is_ready(
    control: FakeControlApi, tmp_path: Path
) -> None:
    made = SidecarProcess(tmp_path, control)
    assert "refused" in ready_problem(made.port)
    waiting = await _wait(made.port, 60)
    try:
        await made.start(ready=False)
        assert await waiting.wait() == 0
        assert await made.status("/health/ready") == 200
    finally:
        assert made.process is not None
        made.process.kill()
        await made.process.wait()


async def test_a_wait_in_vain_reports_the_cause(control: FakeControlApi, tmp_path: Path) -> None:
    await control.stop()
    async with running_sidecar(tmp_path, control, synced=False) as made:
        waiting = await _wait(made.address.port, 0)
        _, told = await waiting.communicate()
    assert waiting.returncode == 1
    assert told.decode().startswith("not ready within 0 s: policy_set")


async def _wait(port: int, seconds: int) -> asyncio.subprocess.Process:
    arguments = ("-m", "sidecar.wait", "--port", str(port), "--seconds", str(seconds))
    return await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
