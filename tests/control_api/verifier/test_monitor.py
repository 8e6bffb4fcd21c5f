"""`sluice verify --url`: only what is new, against what was seen before."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from control_api.verifier.remote.state import read_state
from policies.ground.canonical import b64
from tests.control_api.verifier.world import Answer, run
from tests.support.control_api import ControlApi

Capture = pytest.CaptureFixture[str]
CALL = {
    "agent_role": "support", "user_id": "ann", "source_id": "handbook", "sensitivity_level": "low",
}  # fmt: skip


class Monitor:
    """The command as cron would run it."""

    def __init__(self, api: ControlApi, folder: Path, capsys: Capture) -> None:
        self.api, self.state, self._capsys = api, folder / "state.json", capsys
        self.key = folder / "key"
        self.key.write_text(api.admin_key)
        self.key.chmod(0o600)

    def arguments(self) -> list[str]:
        url = f"http://127.0.0.1:{self.api.port}"
        return ["--url", url, "--key-file", str(self.key), "--state", str(self.state)]

    def run(self) -> Answer:
        return run(self._capsys, *self.arguments(), "--json")

    def saved(self) -> Any:
        return orjson.loads(self.state.read_bytes())

    def change(self, **members: Any) -> None:
        self.state.write_bytes(orjson.dumps(self.saved() | members))

    def decide(self, count: int) -> None:
        for _ in range(count):
            assert self.api.call("POST", "/v1/context/evaluate", CALL).status == 200


@pytest.fixture
def monitor(api: ControlApi, tmp_path: Path, capsys: Capture) -> Monitor:
    made = Monitor(api, tmp_path, capsys)
    made.decide(3)
    return made


def test_each_run_verifies_what_is_new(monitor: Monitor) -> None:
    first = monitor.run()
    assert (first.code, first.json["valid"]) == (0, True), first.out
    size = monitor.saved()["size"]
    assert first.json["entries"] == size
    assert oct(monitor.state.stat().st_mode & 0o777) == "0o600"
    monitor.decide(2)
    second = monitor.run()
    assert (second.code, second.json["entries"]) == (0, 2), second.out
    assert monitor.saved()["size"] == size + 2
    third = monitor.run()
    assert (third.code, third.json["entries"]) == (0, 0), third.out


def test_a_rollback_is_told(monitor: Monitor) -> None:
    monitor.run()
    state = read_state(monitor.state)
    assert state is not None
    state.tree.append(bytes(32))
    monitor.change(size=state.tree.size, frontier=[b64(each) for each in state.tree.hashes])
    before = monitor.state.read_bytes()
    answer = monitor.run()
    assert (answer.code, answer.reasons) == (1, ["log_behind_checkpoint"])
    assert "rolled back" in answer.json["findings"][0]["message"]
    assert monitor.state.read_bytes() == before


def test_a_fork_is_told(monitor: Monitor) -> None:
    monitor.run()
    frontier = [b64(bytes(32)), *monitor.saved()["frontier"][1:]]
    monitor.change(frontier=frontier)
    answer = monitor.run()
    assert (answer.code, answer.reasons) == (1, ["root_mismatch"])
    assert "fork" in answer.json["findings"][0]["message"]


def test_a_new_origin_and_another_log_are_told(monitor: Monitor) -> None:
    monitor.run()
    log = monitor.saved()["log"]
    monitor.change(origin=f"{log}#1")
    assert monitor.run().reasons == ["incarnation"]
    monitor.change(log="other")
    assert monitor.run().reasons == ["log_behind_checkpoint"]


def test_what_is_unusable_is_told_and_changes_nothing(monitor: Monitor, capsys: Capture) -> None:
    monitor.run()
    monitor.state.write_text("{}")
    answer = monitor.run()
    assert answer.code == 2
    assert monitor.state.read_text() == "{}"
    monitor.key.chmod(0o644)
    assert "chmod 600" in monitor.run().err
    monitor.key.chmod(0o600)
    monitor.key.write_text("slc_wrong")
    monitor.state.unlink()
    answer = monitor.run()
    assert answer.code == 2
    assert "the service answered 403" in answer.err
    assert "slc_wrong" not in answer.err
    gone = ["--url", "http://127.0.0.1:1", "--key-file", str(monitor.key)]
    answer = run(capsys, *gone, "--state", str(monitor.state))
    assert (answer.code, answer.out) == (2, "")
    assert not monitor.state.exists()


def test_a_state_that_can_not_be_replaced_stays_as_it_was(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monitor.run()
    before = monitor.state.read_bytes()
    monitor.decide(1)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        assert monitor.run().code == 2
    assert monitor.state.read_bytes() == before
    answer = monitor.run()
    assert (answer.code, answer.json["entries"]) == (0, 1)


@pytest.mark.deep(stands_in="test_a_state_that_can_not_be_replaced_stays_as_it_was")
def test_a_run_that_is_killed_leaves_the_last_state(monitor: Monitor) -> None:
    monitor.run()
    before = monitor.state.read_bytes()
    monitor.decide(1)
    # The process dies after the new state was written beside the old one, before it replaces it.
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from control_api.verifier.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *monitor.arguments()],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert monitor.state.read_bytes() == before
    answer = monitor.run()
    assert (answer.code, answer.json["entries"]) == (0, 1)
