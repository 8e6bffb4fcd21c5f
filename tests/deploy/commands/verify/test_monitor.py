"""`sluice verify --url`: only what is new, against what was seen before."""

import hashlib
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from deploy.commands.verify.monitor import MonitorOptions, read_state
from deploy.commands.verify.monitor import monitor as watch
from deploy.commands.verify.source import pieces
from policies.ground.canonical import b64
from policies.ground.process.api_client import ControlApiClient
from policies.trail.proofs.signed_note import ED25519, VerifierKey
from policies.trail.verdict.outcome import Outcome
from tests.deploy.commands.verify.world import ROWS, Answer, export, note, rotated_keys, run
from tests.policies.trail.walk.world import tree_of
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


def test_each_run_verifies_only_new_entries(monitor: Monitor) -> None:
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


def test_an_altered_policy_document_is_reported(
    monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a service would show it that lies about its policies of then."""
    policy = {"allowed_sources": ["handbook"], "denied_sources": [], "max_sensitivity": "low"}
    monitor.api.admin("POST", "/v1/policies", {"name": "reads", "agent_role": "support", **policy})
    monitor.decide(1)
    stream = ControlApiClient.stream

    def altered(api: ControlApiClient, *given: Any) -> Any:
        with stream(api, *given) as body:
            lines = [_altered(line) for line in b"".join(pieces(body)).split(b"\n")]
        digest = hashlib.sha256(b"".join(each + b"\n" for each in lines[:-2])).hexdigest()
        lines[-2] = re.sub(rb'"sha256":"\w+"', b'"sha256":"%b"' % digest.encode(), lines[-2])
        return nullcontext(io.BytesIO(b"\n".join(lines)))

    monkeypatch.setattr(ControlApiClient, "stream", altered)
    answer = monitor.run()
    assert (answer.code, set(answer.reasons)) == (1, {"document_missing", "document_mismatch"})
    assert not monitor.state.exists()


def _altered(line: bytes) -> bytes:
    return line.replace(b"support", b"supporx") if line.startswith(b'{"policy":') else line


def test_a_rollback_is_reported(monitor: Monitor) -> None:
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


def test_a_fork_is_reported(monitor: Monitor) -> None:
    monitor.run()
    frontier = [b64(bytes(32)), *monitor.saved()["frontier"][1:]]
    monitor.change(frontier=frontier)
    answer = monitor.run()
    assert (answer.code, answer.reasons) == (1, ["root_mismatch"])
    assert "fork" in answer.json["findings"][0]["message"]


def test_a_new_origin_and_another_log_are_reported(monitor: Monitor) -> None:
    monitor.run()
    log = monitor.saved()["log"]
    monitor.change(origin=f"{log}#1")
    assert monitor.run().reasons == ["incarnation"]
    monitor.change(log="other")
    assert monitor.run().reasons == ["log_behind_checkpoint"]


def test_unusable_input_is_refused_and_changes_nothing(monitor: Monitor, capsys: Capture) -> None:
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
    assert "sluice verify: 403 Forbidden: " in answer.err
    assert "slc_wrong" not in answer.err
    gone = ["--url", "http://127.0.0.1:1", "--key-file", str(monitor.key)]
    answer = run(capsys, *gone, "--state", str(monitor.state))
    assert (answer.code, answer.out) == (2, "")
    assert not monitor.state.exists()


def test_a_state_that_cannot_be_replaced_is_not_changed(
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


class _Served:
    """A service that shows these bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @contextmanager
    def stream(self, *_: object) -> Iterator[io.BytesIO]:
        yield io.BytesIO(self._content)


def test_a_checkpoint_by_a_former_key_proves_nothing_in_later_runs_either(tmp_path: Path) -> None:
    successor, keys = rotated_keys()
    pinned = [VerifierKey("", ED25519, successor.public)]

    def seen(first: int, until: int, notes: dict[int, str]) -> Outcome:
        rows, tree = ROWS[first:until], tree_of(ROWS[:first])
        shown = export(rows, first=first, until=until, notes=notes, keys=keys, tree=tree)
        api = cast("ControlApiClient", _Served(shown))
        return watch(MonitorOptions(api, tmp_path / "state.json", pinned))

    assert seen(0, 6, {6: note(6, signer=successor)}).unproven_tail == 0
    # From here on, who has stolen the former key answers in the service's place.
    assert seen(6, 10, {10: note(10)}).unproven_tail == 4
    later = seen(10, 10, {})
    assert (later.covered, later.unproven_tail) == (6, 4), later
    later = seen(10, 14, {14: note(14)})
    assert (later.covered, later.unproven_tail) == (6, 8), later
    later = seen(14, 15, {15: note(15, signer=successor)})
    assert (later.covered, later.unproven_tail) == (15, 0), later


@pytest.mark.deep(stands_in="test_a_state_that_cannot_be_replaced_is_not_changed")
def test_a_run_that_is_killed_leaves_the_last_state(monitor: Monitor) -> None:
    monitor.run()
    before = monitor.state.read_bytes()
    monitor.decide(1)
    # The process dies after the new state was written beside the old one, before it replaces it.
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from deploy.commands.verify.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *monitor.arguments()],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert monitor.state.read_bytes() == before
    answer = monitor.run()
    assert (answer.code, answer.json["entries"]) == (0, 1)
