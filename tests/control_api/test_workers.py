"""Several processes on one port: how they start, share what comes, die and drain."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from control_api import supervise
from control_api.metrics.peer_metrics import PeerMetrics
from control_api.settings import read
from policies.ground.process.secret_file import UnusableFile
from tests.support import migrated
from tests.support.control_api import asked
from tests.support.control_api_process import ControlApiProcess, call
from tests.support.log_lines import entries
from tests.support.postgres import serving
from tests.support.run_servers import SERVERS
from tests.support.waiting import until

WORKERS = 3
METRIC_OF_EACH = "sluice_policy_set_waiters"
Start = Callable[..., ControlApiProcess]


@pytest.fixture
def start(tmp_path: Path, migrated_url: str) -> Iterator[Start]:
    """A service of several processes on PostgreSQL."""
    made: list[ControlApiProcess] = []

    def start(**changes: Any) -> ControlApiProcess:
        made.append(ControlApiProcess(tmp_path, **{**_settings(migrated_url), **changes}))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.process.terminate()
            each.process.wait(30)
        each.output.close()


@pytest.fixture(scope="module")
def shared(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlApiProcess]:
    """One such service, which its tests leave serving. Its data directory's path is longer than a
    socket's may be: a scrape works nonetheless."""
    folder = tmp_path_factory.mktemp("shared") / ("d" * 60) / ("e" * 60)
    folder.mkdir(parents=True)
    with migrated.database(*pytestconfig.stash[SERVERS]) as url:
        service = ControlApiProcess(folder, **_settings(url))
        service.ready()
        yield service
        service.process.send_signal(signal.SIGTERM)
        assert service.ended() == 0, service.said()
        service.output.close()


def _settings(url: str) -> dict[str, str]:
    return {"SLUICE_DATABASE_URL": serving(url), "SLUICE_WORKERS": str(WORKERS)}


def workers(service: ControlApiProcess) -> dict[int, int]:
    """The pid of each worker."""
    found = {}
    children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text()
    for pid in map(int, children.split()):
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"worker" in arguments:
            found[json.loads(arguments[arguments.index(b"worker") + 1])["index"]] = pid
    return found


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def metrics(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.status == 200
    text = answer.read().decode()
    connection.close()
    return text


def by_worker(text: str, sample: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in text.splitlines():
        match = re.match(r'(\w+)\{.*worker="(\d+)".*\} (\S+)$', line)
        if match and match[1] == sample:
            found[match[2]] += int(float(match[3]))
    return found


SERVES = """
import ctypes, json, os, signal, sys, time
from pathlib import Path
given = json.loads(sys.argv[-1])
parent_dies = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(parent_dies))
with Path("starts").open("a") as file:
    file.write(f"{given['index']} {parent_dies.value}\\n")
os.write(given["ready"], b"\\n")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
"""
WAITS = "while True: time.sleep(60)"
"""With `SERVES`, a program in the place of a worker. Who supervises it is real."""


class Supervised:
    """A supervisor in this process, of two workers that run `program`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
        self.folder = folder
        self.clock_rate = 1
        """How much faster its clock goes than ours: to it, all takes longer."""
        monkeypatch.chdir(folder)
        monkeypatch.setattr(supervise, "this_program", lambda: [sys.executable, "-Sc", program])
        monkeypatch.setattr(supervise, "FIRST_PAUSE", 0.001)
        environ = {
            "SLUICE_DATABASE_URL": "postgresql+asyncpg://sluice@127.0.0.1:1/sluice",
            "SLUICE_DATA_DIR": str(folder / "data"),
            "SLUICE_CONTROL_LISTEN": "127.0.0.1:0",
            "SLUICE_WORKERS": "2",
        }
        self.settings = read(environ)

    def run(self, announced: Callable[[], None] = lambda: None) -> int:
        before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            supervisor = supervise.Supervisor(
                self.settings, lambda: self.clock_rate * time.monotonic()
            )
            return supervisor.run(lambda *_: announced())
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def starts(self) -> Counter[str]:
        """How often each worker was started, and by which signal it learns of our death."""
        return Counter((self.folder / "starts").read_text().splitlines())


@contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """Ends a supervisor of this process that would run on."""
    late = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))
    late.start()
    try:
        yield
    finally:
        late.cancel()


def test_a_worker_that_can_not_start_ends_the_service_with_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = SERVES.replace("os.write", "sys.exit(3); os.write")
    supervised = Supervised(tmp_path, monkeypatch, code)
    assert supervised.run(lambda: pytest.fail("it announces what does not serve")) == 3
    assert supervised.starts() == {"0 15": 1}


def test_a_worker_that_dies_is_started_again_and_gives_up_after_five_early_deaths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dies = "while given['index'] and not Path('go').exists(): time.sleep(0.01)"
    dies += "\nif given['index']: os.kill(os.getpid(), signal.SIGKILL)"
    supervised = Supervised(tmp_path, monkeypatch, f"{SERVES}\n{dies}\n{WAITS}")
    five = pytest.raises(supervise.WorkersFailing, match="worker 1 ended 5 times in a row")
    with ended_after(20), five:
        supervised.run((tmp_path / "go").touch)
    assert supervised.starts() == {"0 15": 1, "1 15": 5}
    assert caplog.text.count("worker 1 ended by SIGKILL") == 5
    asyncio.run(share_metrics_after_one_another(tmp_path / "data"))


async def share_metrics_after_one_another(data: Path) -> None:
    """The first is killed: it leaves its socket behind."""
    made = [PeerMetrics(data, 1, 2, CollectorRegistry(), lambda: None) for _ in range(2)]
    for each in made:
        await each.open()
    for each in made:
        each.close()


def test_a_worker_that_can_not_start_again_fails_early_however_long_each_start_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if_it_may = "if Path('go').exists(): sys.exit('it has no key')"
    code = SERVES.replace("os.write", f"{if_it_may}\nos.write")
    dies = "while given['index'] and not Path('go').exists(): time.sleep(0.01)"
    dies += "\nif given['index']: sys.exit(1)"
    supervised = Supervised(tmp_path, monkeypatch, f"{code}\n{dies}\n{WAITS}")
    supervised.clock_rate = 100
    told = "worker 1 ended 5 times .* its last log lines above say why"
    with ended_after(20), pytest.raises(supervise.WorkersFailing, match=told):
        supervised.run((tmp_path / "go").touch)
    assert capfd.readouterr().err.count("it has no key") >= 4
    # The first may have served for long enough, by that clock.
    assert supervised.starts()["1 15"] in (5, 6)


def test_a_signal_ends_each_worker_and_no_second_supervisor_shares_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised = Supervised(tmp_path, monkeypatch, f"{SERVES}\n{WAITS}")

    def announced() -> None:
        shared = pytest.raises(UnusableFile, match="another control API with workers")
        with ended_after(20), shared:  # one that does share it would run on
            supervised.run()
        os.kill(os.getpid(), signal.SIGTERM)

    assert supervised.run(announced) == 0

    def unhandled(*_: object) -> None:
        raise AssertionError("nothing handles the signal")

    before = signal.signal(signal.SIGINT, unhandled)
    try:
        assert supervised.run(lambda: os.kill(os.getpid(), signal.SIGINT)) == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert supervised.starts() == {"0 15": 2, "1 15": 2}
    assert (tmp_path / "data" / "workers").stat().st_mode & 0o777 == 0o700


@pytest.mark.deep(stands_in="test_only_one_of_several_workers_logs_the_start")
def test_a_first_start_makes_its_keys_once_and_every_worker_serves(start: Start) -> None:
    service = start()
    port, key = service.ready(), service.first_keys()["admin_key"]
    assert sorted(workers(service)) == [0, 1, 2]
    made = "the keys are in"
    assert service.said().count(made) == 1
    assert service.said().count("listens on") == 1
    assert service.said().index(made) < service.said().index("listens on")
    assert key not in service.said()
    for _ in range(30):
        assert call(port, key, "POST", "/v1/context/evaluate", asked())[0] == 200
    assert sorted(by_worker(metrics(port), "sluice_decisions_total")) == ["0", "1", "2"]
    assert call(port, key, "GET", "/v1/audit/verify")[1]["total"] >= 30
    service.process.send_signal(signal.SIGTERM)
    assert service.ended() == 0, service.said()
    again = start()
    assert call(again.ready(), key, "GET", "/v1/audit/verify")[1]["valid"]
    assert key not in again.said()


def test_only_one_of_several_workers_logs_the_start(shared: ControlApiProcess) -> None:
    port, key = shared.ready(), shared.first_keys()["admin_key"]
    until("every worker is shown", lambda: len(by_worker(metrics(port), METRIC_OF_EACH)) == WORKERS)
    said, made = shared.said(), "the keys are in"
    assert said.count(made) == said.count("listens on") == 1
    assert said.index(made) < said.index("listens on")
    assert key not in said
    for _ in range(9):  # every worker knows it
        assert call(port, key, "GET", "/v1/keys")[0] == 200


def test_connections_are_spread_over_the_workers(shared: ControlApiProcess) -> None:
    port = shared.ready()
    before = by_worker(metrics(port), "sluice_requests_total")
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(96)]
    for each in held:
        each.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    for each in held:
        assert each.recv(4096).startswith(b"HTTP/1.1 200")
    text = metrics(port)
    spread = by_worker(text, "sluice_requests_total") - before
    heads = [line for line in text.splitlines() if line.startswith(("# HELP", "# TYPE"))]
    assert len(heads) == len(set(heads))
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert all('worker="' in line for line in samples)
    assert len(samples) == len({line.rpartition(" ")[0] for line in samples})
    for each in held:
        each.close()
    # Of 96 by the toss of a three-sided coin, fewer than 10 for one is once in a billion starts.
    assert sum(spread.values()) >= 96
    assert len(spread) == WORKERS
    assert min(spread.values()) >= 10


@pytest.mark.deep(stands_in="test_connections_are_spread_over_the_workers")
def test_one_scrape_covers_all_workers_and_has_each_family_once(start: Start) -> None:
    service = start(SLUICE_METRICS_LISTEN="127.0.0.1:0")
    service.ready()
    until("it says where the metrics are", lambda: "metrics on" in service.said())
    port = int(service.said().partition("metrics on http://127.0.0.1:")[2].split("/")[0])
    text = metrics(port)
    heads = [line for line in text.splitlines() if line.startswith(("# HELP", "# TYPE"))]
    assert len(heads) == len(set(heads))
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert samples
    assert all('worker="' in line for line in samples)
    assert len(samples) == len({line.rpartition(" ")[0] for line in samples})
    resident = by_worker(text, METRIC_OF_EACH)
    assert sorted(resident) == ["0", "1", "2"]
    folder = service.directory / "data" / "workers"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_worker_that_does_not_answer_is_left_out_and_counted(shared: ControlApiProcess) -> None:
    port, pids = shared.ready(), workers(shared)
    os.kill(pids[1], signal.SIGSTOP)
    try:

        def left_out() -> bool:
            try:
                text = metrics(port)
            except (OSError, http.client.HTTPException):
                return False  # it was given to the one that is stopped
            return sorted(by_worker(text, METRIC_OF_EACH)) == ["0", "2"] and (
                sum(by_worker(text, "sluice_workers_unanswered_total").values()) >= 1
            )

        until("the dead worker is left out", left_out)
    finally:
        os.kill(pids[1], signal.SIGCONT)
    until("every worker is shown", lambda: len(by_worker(metrics(port), METRIC_OF_EACH)) == WORKERS)


@pytest.mark.deep(
    stands_in="test_a_worker_that_dies_is_started_again_and_gives_up_after_five_early_deaths"
)
@pytest.mark.parametrize("index", [0, 2])
def test_a_worker_that_dies_is_restarted_and_no_client_is_refused(
    shared: ControlApiProcess, index: int
) -> None:
    port, key = shared.ready(), shared.first_keys()["admin_key"]
    before = workers(shared)
    os.kill(before[index], signal.SIGKILL)
    # Connections that come meanwhile wait for the one that follows.
    for _ in range(40):
        assert call(port, key, "POST", "/v1/context/evaluate", asked())[0] == 200
    until("every worker is there", lambda: sorted(workers(shared)) == [0, 1, 2])
    after = workers(shared)
    assert after[index] != before[index]
    assert {i: pid for i, pid in after.items() if i != index} == {
        i: pid for i, pid in before.items() if i != index
    }
    assert f"worker {index} ended by SIGKILL" in shared.said()
    # Each line of the supervisor and of every worker is one.
    assert entries(shared.said())
    until("every worker is shown", lambda: len(by_worker(metrics(port), METRIC_OF_EACH)) == WORKERS)


BUSY = """
import sys
from control_api.__main__ import main
from control_api import supervise
Supervisor = supervise.Supervisor
supervise.Supervisor = lambda settings, clock: Supervisor(settings, lambda: 100 * clock())
sys.exit(main([]))
"""
"""To this supervisor a start that takes 0.5 s takes 50 s, as it does on a busy machine."""


@pytest.mark.deep(
    stands_in="test_a_worker_that_can_not_start_again_fails_early_however_long_each_start_takes"
)
def test_a_worker_that_keeps_dying_ends_the_service_with_its_last_log_lines(
    start: Start,
) -> None:
    """However long each start takes."""
    service = start(program=("-c", BUSY))
    service.ready()
    pids = workers(service)
    # From now on no worker can start.
    (service.directory / "data" / "log.key").write_text("nonsense")
    os.kill(pids[1], signal.SIGKILL)
    assert service.ended() == 1
    said = service.said()
    assert said.count("holds no signing key") >= 4
    assert "worker 1 ended 5 times in a row" in said
    assert "Traceback" not in said
    assert all(gone(pid) for pid in pids.values())


@pytest.mark.deep(stands_in="test_a_worker_that_can_not_start_ends_the_service_with_its_code")
def test_a_fault_that_stops_the_first_worker_ends_the_service(start: Start) -> None:
    first = start(SLUICE_WORKERS="1")
    first.ready()
    first.process.terminate()
    assert first.ended() == 0
    (first.directory / "data" / "log.key").write_text("nonsense")
    service = start()
    assert service.ended() == 1
    assert service.said().count("holds no signing key") == 1


@pytest.mark.deep(
    stands_in="test_a_signal_ends_each_worker_and_no_second_supervisor_shares_the_directory"
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_all_workers_and_no_connection_is_lost(start: Start, number: int) -> None:
    """New connections all the time: each is answered, or refused before it stood."""
    service = start()
    port, key = service.ready(), service.first_keys()["admin_key"]
    answered: list[str] = []
    broken: list[str] = []

    def client() -> None:
        while True:
            try:
                status, body = call(port, key, "POST", "/v1/context/evaluate", asked())
            except ConnectionRefusedError:
                return
            except (OSError, http.client.HTTPException, ValueError) as error:
                broken.append(repr(error))
                return
            if status == 200:
                answered.append(body["event_id"])
            else:
                broken.append(str(body))

    threads = [threading.Thread(target=client) for _ in range(16)]
    for thread in threads:
        thread.start()
    until("requests are answered", lambda: len(answered) > 200)
    service.process.send_signal(number)
    assert service.ended() == 0, service.said()
    for thread in threads:
        thread.join()
    # Between the last look at what waits and the closing of the port lie microseconds, more on a
    # busy machine: who connects then is reset, and no response is cut off.
    assert all(each.startswith("ConnectionResetError") for each in broken), broken
    again = start(SLUICE_WORKERS="1")
    report = call(again.ready(), key, "GET", "/v1/audit/verify")[1]
    assert report["valid"]
    assert report["events"] >= len(answered)


@pytest.mark.deep(
    stands_in="test_a_signal_ends_each_worker_and_no_second_supervisor_shares_the_directory"
)
def test_no_worker_outlives_a_supervisor_that_is_killed(start: Start) -> None:
    service = start()
    port, pids = service.ready(), workers(service)
    service.process.kill()
    until("all workers have ended", lambda: all(gone(pid) for pid in pids.values()))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    # What it left behind is in nobody's way.
    again = start()
    assert sorted(workers(again)) == [0, 1, 2] if again.ready() else False


def test_a_port_that_another_service_shares_is_taken(
    shared: ControlApiProcess, start: Start
) -> None:
    second = start(SLUICE_CONTROL_LISTEN=f"127.0.0.1:{shared.ready()}")
    assert second.ended() == 1
    assert "SLUICE_CONTROL_LISTEN" in second.said()


@pytest.mark.deep(
    stands_in="test_a_signal_ends_each_worker_and_no_second_supervisor_shares_the_directory"
)
def test_two_supervisors_do_not_share_a_data_directory(
    shared: ControlApiProcess, start: Start
) -> None:
    second = start(SLUICE_DATA_DIR=str(shared.directory / "data"))
    assert second.ended() == 1
    assert "another control API with workers" in second.said()


def test_a_scrape_works_below_a_path_too_long_for_a_socket(shared: ControlApiProcess) -> None:
    assert len(str(shared.directory)) > 108
    assert len(by_worker(metrics(shared.ready()), METRIC_OF_EACH)) == WORKERS


@pytest.mark.deep(
    stands_in="tests/control_api/console/test_replicas.py::test_sessions_of_a_key_end_with_it_at_every_replica"
)
def test_a_change_by_one_worker_is_in_force_in_all(shared: ControlApiProcess) -> None:
    port, admin = shared.ready(), shared.first_keys()["admin_key"]
    made = call(port, admin, "POST", "/v1/keys", {"name": "agents", "scope": "evaluate"})[1]
    until(
        "every worker accepts the key",
        lambda: all(_status(port, made["key"]) == 200 for _ in range(20)),
    )
    call(port, admin, "DELETE", f"/v1/keys/{made['key_id']}")
    until(
        "every worker refuses the key",
        lambda: all(_status(port, made["key"]) == 403 for _ in range(20)),
    )
    assert {_status(port, made["key"]) for _ in range(30)} == {403}


def _status(port: int, key: Any) -> int:
    return call(port, key, "POST", "/v1/context/evaluate", asked())[0]
