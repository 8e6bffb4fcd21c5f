"""`sluice events --follow`: each event once, in order, also across failures of the control API."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.commands.client.client import Client
from deploy.commands.client.events import EventFollower
from deploy.commands.client.output import Output
from policies.ground.process.api_client import ControlApiClient, RequestRefused
from tests.deploy.commands.client.conftest import Operator, environ_of, evaluate
from tests.support.stack import Stack
from tests.support.waiting import AWAY, until


@contextmanager
def following(operator: Operator, out: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "deploy.command", "events", "--follow", "--json", *words]
    with out.open("wb") as file, out.with_suffix(".err").open("wb") as err:
        process = subprocess.Popen(command, env=environ_of(operator), stdout=file, stderr=err)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def seen(out: Path) -> list[str]:
    """Users of the events that were printed, in order."""
    whole = out.read_text().rpartition("\n")[0]
    return [json.loads(line)["user_id"] for line in whole.splitlines()]


@pytest.mark.deep(stands_in="test_many_new_events_are_read_in_pages_while_the_log_grows")
def test_nothing_is_skipped_or_repeated_across_a_restart(
    operator: Operator, stack: Stack, tmp_path: Path
) -> None:
    out = tmp_path / "followed"
    ask = {"source_id": "payroll", "session_id": "followed"}
    evaluate(stack, user_id="f-0", **ask)
    evaluate(stack, user_id="f-1", **ask)
    words = ("--session", "followed", "--decision", "DENY", "--limit", "1")
    with following(operator, out, *words) as process:
        until("the newest is printed", lambda: seen(out) == ["f-1"])
        evaluate(stack, user_id="f-2", **ask)
        evaluate(stack, user_id="not followed", source_id="handbook")
        until("a new one is printed", lambda: seen(out) == ["f-1", "f-2"])
        stack.control.stop()
        errors = out.with_suffix(".err")
        until("it says so", lambda: "trying again" in errors.read_text(), despite=AWAY)
        stack.control.start()
        for number in range(3, 8):
            evaluate(stack, user_id=f"f-{number}", **ask)
        expected = [f"f-{number}" for number in range(1, 8)]
        until("all are printed", lambda: len(seen(out)) >= len(expected))
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert seen(out) == expected
    told = errors.read_text().splitlines()
    assert len(told) == 2
    assert told[1] == "sluice: the control API responds again"


def test_a_revoked_key_ends_the_following(operator: Operator, stack: Stack, tmp_path: Path) -> None:
    made = stack.admin("POST", "/v1/keys", {"name": "follower", "scope": "read"})
    path = tmp_path / "read.key"
    path.write_text(made["key"])
    path.chmod(0o600)
    out = tmp_path / "followed"
    evaluate(stack)
    with following(operator, out, "--key-file", str(path)) as process:
        until("it follows", lambda: bool(seen(out)))
        stack.admin("DELETE", f"/v1/keys/{made['key_id']}")
        assert process.wait(60) == 1
    assert "403" in out.with_suffix(".err").read_text()


@pytest.mark.parametrize("most", [None, 5, 6, 20])
def test_many_new_events_are_read_in_pages_while_the_log_grows(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, most: int | None
) -> None:
    """With pages of two, a new event before each request, and some failing requests."""
    monkeypatch.setattr("deploy.commands.client.events.PAGE", 2)
    session = f"walk-{most}"
    made = 7
    for number in range(made):
        evaluate(stack, user_id=str(number), session_id=session)

    class Growing(ControlApiClient):
        asked = 0

        def request(self, *given: Any, **more: Any) -> Any:
            nonlocal made
            Growing.asked += 1
            if made < 20:
                evaluate(stack, user_id=str(made), session_id=session)
                made += 1
            answer = super().request(*given, **more)
            if Growing.asked in (2, 5, 13, 14, 21):
                raise RequestRefused("GET /v1/audit/events", answer)
            return answer

    api = Growing(f"http://127.0.0.1:{stack.control.port}", stack.admin_key)
    client = Client(api, Output(as_json=True, environ={}))
    trail = EventFollower(client, "/v1/audit/events", {"session_id": session}, most)
    users: list[int] = []
    end = time.monotonic() + 120
    while (not users or users[-1] < 19) and time.monotonic() < end:
        try:
            for page in trail.new():
                users += [int(event["user_id"]) for event in page]
        except RequestRefused:
            continue
    assert users == list(range(users[0], 20))
    if most is None:
        assert users[0] == 0
