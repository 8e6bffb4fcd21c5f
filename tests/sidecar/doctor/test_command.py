"""`python -m sidecar.doctor`: its output and exit codes."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sidecar.doctor.__main__ import main
from tests.architecture.tree import ROOT
from tests.sidecar.doctor.recorded_host import KEYS, PASSWORD, SIDECAR, SOURCE, TEXT, write


def doctor(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    return subprocess.run(
        [sys.executable, "-m", "sidecar.doctor", *arguments],
        cwd=ROOT,
        env=clean | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def in_process(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of the command, run in this process: to start another one costs more than all
    that it does."""
    for name in os.environ:
        if name.startswith("SLUICE_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "argv", ["sluice doctor", *arguments])
    return main()


Captured = pytest.CaptureFixture[str]


@contextmanager
def sidecar_port() -> Iterator[int]:
    """A port on which this process listens as the sidecar would: not as root, even if it is."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(SIDECAR)  # a socket belongs to who creates it
    try:
        listening = socket.create_server(("127.0.0.1", 0))
    finally:
        os.seteuid(own)
    with closing(listening):
        yield listening.getsockname()[1]


def test_findings_are_printed_and_exit_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    file = write(tmp_path, f"{TEXT}listen: 0.0.0.0:9\n")
    assert in_process(monkeypatch, "--config", str(file), "--agent-uid", "4242") == 1
    told = capsys.readouterr().out
    assert "low: listeners: `listen` listens on `0.0.0.0:9`" in told
    assert "unknown: users: nothing listens on `0.0.0.0:9`" in told
    assert told.endswith("findings: 1 low, 1 unknown\n")


def test_findings_are_printed_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    file = write(tmp_path, f"{TEXT}listen: 0.0.0.0:9\n")
    assert in_process(monkeypatch, "--config", str(file), "--agent-uid", "4242", "--json") == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [(each["check"], each["severity"]) for each in findings] == [
        ("listeners", "low"),
        ("users", "unknown"),
    ]
    assert all(
        each.keys() == {"check", "severity", "seen", "why", "do"} and all(each.values())
        for each in findings
    )


def test_no_findings_are_reported_and_exit_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    # This process is the sidecar, and another user the agent, so there is nothing to find.
    with sidecar_port() as port:
        file = write(tmp_path, f"{TEXT}listen: 127.0.0.1:{port}\n")
        assert in_process(monkeypatch, "--config", str(file), "--agent-uid", "4242") == 0
    assert capsys.readouterr() == ("found nothing that can bypass this sidecar\n", "")


def test_a_source_that_is_down_is_reported_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    with sidecar_port() as port:
        file = write(tmp_path, f"{TEXT}{SOURCE}listen: 127.0.0.1:{port}\n")
        assert in_process(monkeypatch, "--config", str(file), "--agent-uid", "4242") == 1
    told = capsys.readouterr().out
    assert told.startswith("unknown: direct: source `kb`: ")
    assert told.endswith("findings: 1 unknown\n")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_no_secret_of_the_settings_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, options: tuple[str, ...]
) -> None:
    text = f"{TEXT}{SOURCE}redis: redis://me:{PASSWORD}@127.0.0.1/0\n"
    file = write(tmp_path, text)
    for name in (*KEYS, "sidecar.yaml"):
        (tmp_path / name).chmod(0o666)
    assert in_process(monkeypatch, "--config", str(file), *options) == 1
    told = "".join(capsys.readouterr())
    assert "can be written by anyone" in told
    assert not any(secret in told for secret in (PASSWORD, *KEYS.values()))


@pytest.mark.deep(stands_in="test_findings_are_printed_and_exit_with_1")
def test_findings_exit_with_1(tmp_path: Path) -> None:
    file = write(tmp_path, f"{TEXT}listen: 0.0.0.0:9\n")
    answer = doctor("--config", str(file), "--agent-uid", "4242")
    assert answer.returncode == 1, answer.stderr
    assert "low: listeners: `listen` listens on `0.0.0.0:9`" in answer.stdout
    assert "unknown: users: nothing listens on `0.0.0.0:9`" in answer.stdout
    assert answer.stdout.rstrip().endswith("findings: 1 low, 1 unknown")


@pytest.mark.skipif(os.geteuid() == 0, reason="as root, more is found")
def test_no_findings_without_root_exit_with_0(tmp_path: Path) -> None:
    # This process is the sidecar, and another user the agent, so there is nothing to find.
    with sidecar_port() as port:
        file = write(tmp_path, f"{TEXT}listen: 127.0.0.1:{port}\n")
        answer = doctor("--config", str(file), "--agent-uid", "4242")
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.deep(stands_in="test_no_findings_are_reported_and_exit_with_0")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user")
def test_no_findings_exit_with_0(tmp_path: Path) -> None:
    with sidecar_port() as port:
        file = write(tmp_path, f"{TEXT}listen: 127.0.0.1:{port}\n")
        answer = doctor("--config", str(file), "--agent-uid", "4242")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout == "found nothing that can bypass this sidecar\n"


@pytest.mark.deep(stands_in="test_findings_are_printed_as_json")
def test_findings_can_be_printed_as_json(tmp_path: Path) -> None:
    file = write(tmp_path, f"{TEXT}listen: 0.0.0.0:9\n")
    answer = doctor("--config", str(file), "--agent-uid", "4242", "--json")
    findings = json.loads(answer.stdout)["findings"]
    assert [each["check"] for each in findings] == ["listeners", "users"]
    assert all(
        each.keys() == {"check", "severity", "seen", "why", "do"} and all(each.values())
        for each in findings
    )


def test_the_environment_changes_the_settings_like_for_the_sidecar(tmp_path: Path) -> None:
    answer = doctor("--config", str(write(tmp_path)), SLUICE_SIDECAR_LISTEN="0.0.0.0:9")
    assert "`0.0.0.0:9`" in answer.stdout


@pytest.mark.parametrize(
    "arguments",
    [(), ("--config",), ("--config", "absent.yaml"), ("--agent-uid", "-1"), ("--agent-uid", "me"),
     ("--agent-uid", "4294967295"), ("--nothing",)],
)  # fmt: skip
def test_unusable_arguments_exit_with_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    named = ("--config", str(write(tmp_path))) if "--agent-uid" in arguments else ()
    answer = doctor(*named, *arguments)
    assert answer.returncode == 2
    assert answer.stdout == ""


def test_unusable_settings_exit_with_2_and_all_messages(tmp_path: Path) -> None:
    text = TEXT.replace("http://127.0.0.1:8700", "nowhere") + "nothing: 1\n"
    answer = doctor("--config", str(write(tmp_path, text)))
    assert answer.returncode == 2
    assert "control" in answer.stderr
    assert "nothing" in answer.stderr


@pytest.mark.deep(stands_in="test_no_secret_of_the_settings_is_printed")
def test_no_secret_is_printed(tmp_path: Path) -> None:
    text = f"{TEXT}{SOURCE}redis: redis://me:{PASSWORD}@127.0.0.1/0\n"
    file = write(tmp_path, text)
    for name in (*KEYS, "sidecar.yaml"):
        (tmp_path / name).chmod(0o666)
    for options in ((), ("--json",)):
        answer = doctor("--config", str(file), *options)
        assert answer.returncode == 1
        assert "can be written by anyone" in answer.stdout
        for secret in (PASSWORD, *KEYS.values()):
            assert secret not in answer.stdout + answer.stderr
