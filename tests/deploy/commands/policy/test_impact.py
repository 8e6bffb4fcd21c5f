"""`sluice policy impact` against a running service."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.commands.policy import diff
from deploy.commands.policy.__main__ import main
from policies.ground.process.api_client import ControlApiClient
from tests.support.control_api import ControlApi

NEW = """\
policies:
  - name: support-reads
    agent_role: support
    allowed_sources: [handbook, payroll]
    denied_sources: []
    max_sensitivity: high
"""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    """A service that recorded three decisions an hour ago, and three now."""
    api = ControlApi(tmp_path_factory.mktemp("impact_command"))
    api.time.ahead = -3600  # from the start: a log's times never run backwards
    api.start()
    for _ in range(2):
        for source in ("handbook", "payroll", "contracts"):
            api.evaluate(source_id=source)
        api.time.ahead = 0
    yield api
    api.stop()


@pytest.fixture
def arguments(api: ControlApi, tmp_path: Path) -> list[str]:
    new = tmp_path / "default" / "new" / "support.yaml"
    new.parent.mkdir(parents=True)
    new.write_text(NEW)
    key = tmp_path / "key"
    key.write_text(api.admin_key)
    key.chmod(0o600)
    return ["impact", str(new), "--url", f"http://127.0.0.1:{api.port}", "--key-file", str(key)]


def test_changed_decisions_are_listed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--since", "30m"]) == 0
    told = capsys.readouterr()
    assert "+ `support` may newly read `payroll`: 1 from 20" in told.out
    assert "- `support` may no longer read `contracts`: 1 from 20" in told.out
    assert "    before by `support-reads`, after by `support-reads`\n" in told.out
    assert (
        "3 decisions: 1 unchanged (0 by another policy), 1 newly denied, 1 newly allowed"
        in told.err
    )
    assert "proven by the signed checkpoint of" in told.err
    assert "\r" not in told.err  # it is no terminal


@pytest.mark.deep(stands_in="test_changed_decisions_are_listed")
def test_only_decisions_since_the_given_time_are_read(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--since", "30m", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["read"], found["newly_denied"], found["newly_allowed"]) == (3, 1, 1)
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["read"] == 6


def test_an_interrupt_cancels_the_run(
    api: ControlApi,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def interrupted(remote: object, run: str, monotonic: object) -> None:
        asked.append(run)
        raise KeyboardInterrupt

    monkeypatch.setattr(diff, "_followed", interrupted)
    assert main(arguments) == 1
    assert capsys.readouterr().err == "sluice policy: cancelled\n"
    assert api.admin("GET", asked[0])["state"] == "cancelled"


def test_a_run_that_someone_else_cancels_is_a_failure(
    api: ControlApi,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = ControlApiClient.request

    def cancelled(remote: ControlApiClient, method: str, path: str, **rest: Any) -> object:
        if method == "GET":
            api.admin("DELETE", path)
        return request(remote, method, path, **rest)

    monkeypatch.setattr(ControlApiClient, "request", cancelled)
    assert main([*arguments, "--json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["state"] in ("cancelled", "done")
    assert "the run is cancelled" in told.err


@pytest.mark.parametrize("since", ["", "7", "d", "7y", "1e3d", "9999999d", "٣d"])
def test_a_text_that_is_not_a_time_is_refused(
    arguments: list[str], since: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--since", since]) == 2
    assert f"--since: `{since}` is not a time; expected how long ago" in capsys.readouterr().err


def test_unreadable_policies_and_a_key_without_the_right_exit_with_2(
    api: ControlApi, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["impact", str(tmp_path / "gone.yaml"), *arguments[2:]]) == 2
    assert "does not exist" in capsys.readouterr().err
    Path(arguments[-1]).write_text(api.new_key("read"))
    assert main(arguments) == 2
    assert "sluice policy: 403 Forbidden: " in capsys.readouterr().err


def test_a_terminal_shows_the_progress_of_the_run() -> None:
    out = io.StringIO()
    bar = diff.Bar(out, 100.0)
    bar.show({"progress": 0.25, "entries": 5000}, 102.0)
    bar.show({"progress": 1.0, "entries": 20_000}, 104.0)
    bar.remove()
    first, second, cleared = out.getvalue().split("\r")[1:]
    assert first == f"[{'#' * 6}{'.' * 18}] 25%, 5,000 entries, 2,500 entries/s\x1b[K"
    assert second.startswith(f"[{'#' * 24}] 100%, 20,000 entries, 5,000 entries/s")
    assert cleared == "\x1b[K"
