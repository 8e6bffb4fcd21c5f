"""How a sidecar's process begins and ends: its exit codes, its signals and its complaints."""

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from policies.ground.keys import make_key
from sidecar.spool import Spool
from sidecar.spool.errors import SpoolLocked
from tests.sidecar.in_process import run_main
from tests.sidecar.spool.running_spool import CLOCK, settings
from tests.support.ports import free_port


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "sidecar.key").write_text(make_key(b"k" * 32))
    path = tmp_path / "sidecar.yaml"
    path.write_text("control: http://127.0.0.1:8700\nkey_file: sidecar.key\n")
    return path


def test_a_missing_argument_or_file_exits_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_main(monkeypatch)
    assert ended.value.code == 2
    assert run_main(monkeypatch, "--config", str(tmp_path / "none.yaml")) == 2
    assert "none.yaml" in caplog.text


def test_faults_of_the_log_settings_are_reported_with_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = {"SLUICE_LOG_LEVEL": "loud", "SLUICE_LOG_FORMAT": "prose"}
    assert run_main(monkeypatch, "--config", str(tmp_path / "none.yaml"), **told) == 2
    level, form, missing = caplog.messages
    assert level == "SLUICE_LOG_LEVEL: `loud` is not one of debug, info, warning, error"
    assert form == "SLUICE_LOG_FORMAT: `prose` is not one of json, text"
    assert "none.yaml" in missing


@pytest.mark.parametrize(
    "failure",
    [
        SpoolLocked("held"),
        OSError(98, "taken"),
        ExceptionGroup("", [SpoolLocked("held")]),
    ],
    ids=["a lock", "a port", "in a group"],
)
def test_a_failure_that_an_operator_can_repair_exits_with_1_and_one_line(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
) -> None:
    async def fails(*_: Any) -> None:
        raise failure

    monkeypatch.setattr("sidecar.__main__.serve", fails)
    assert run_main(monkeypatch, "--config", str(file)) == 1
    [record] = [each for each in caplog.records if each.levelname == "CRITICAL"]
    assert record.getMessage().startswith("the sidecar ends: ")
    assert record.exc_info is None


@pytest.mark.parametrize("what", ["the spool", "the port"])
def test_a_resource_held_by_another_sidecar_exits_with_1_and_one_line(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    def serves(*_: Any) -> None:
        raise OSError("it serves")

    monkeypatch.setattr("sidecar.__main__.notify_ready", serves)
    spool, other = file.parent / "spool", file.parent / "other"
    with socket.create_server(("127.0.0.1", 0)) as taken, asyncio.Runner() as runner:
        held = settings(spool if what == "the spool" else other)
        first = runner.run(Spool.open(held, "sidecar-1", CLOCK, os.urandom))
        port = taken.getsockname()[1] if what == "the port" else free_port()
        with file.open("a") as more:
            more.write(f"listen: 127.0.0.1:{port}\nspool:\n  dir: {spool}\n")
        assert run_main(monkeypatch, "--config", str(file)) == 1
        runner.run(first.close(1))
    [record] = [each for each in caplog.records if each.levelname == "CRITICAL"]
    told = {"the spool": "held by another process", "the port": "address already in use"}[what]
    assert told in record.getMessage()
    assert record.exc_info is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_the_sidecar_and_the_second_would_kill_it(
    file: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    handlers: list[Any] = []

    async def served(_s: Any, _c: Any, _r: Any, stop: asyncio.Event, announce: Any) -> None:
        announce()
        handlers.append(signal.getsignal(number))
        os.kill(os.getpid(), number)
        await stop.wait()
        handlers.append(signal.getsignal(number))

    monkeypatch.setattr("sidecar.__main__.serve", served)
    assert run_main(monkeypatch, "--config", str(file)) == 0
    default = signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler
    assert handlers[0] != default
    assert handlers[1] == default
