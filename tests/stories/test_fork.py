"""A whole sidecar is shown two versions of the log. Someone with the whole data directory, signing
key and checkpoint store included, goes back to a copy and lets the log grow from there: the
control API finds nothing wrong with it. A sidecar has seen what the log said since."""

from __future__ import annotations

import http.client
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deploy.commands.client.client import run
from policies.trail import checkpoint
from tests.support.stack import Stack, call
from tests.support.waiting import AWAY, until


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """The control API runs; the sidecar is not started."""
    stack = Stack(tmp_path)
    stack.control.environ["SLUICE_CHECKPOINT_SECONDS"] = "1"
    try:
        stack.start_control()
        stack.prepare()
        yield stack
    finally:
        stack.stop()


def copy(data: Path, to: Path) -> None:
    """Copy the data directory of a control API that runs. The database comes last: it may be ahead
    of its checkpoints."""
    shutil.copytree(data, to, ignore=shutil.ignore_patterns("sluice.db*"))
    with (
        closing(sqlite3.connect(data / "sluice.db")) as source,
        closing(sqlite3.connect(to / "sluice.db")) as target,
    ):
        source.backup(target)


def grow(stack: Stack, user: str, count: int, beyond: int) -> None:
    """Decide `count` times, and wait for a checkpoint of more than `beyond` entries."""
    for _ in range(count):
        body = stack.ask(user_id=user)
        path = "/v1/context/evaluate"
        assert call(stack.control.port, "POST", path, body, key=stack.admin_key)[0] == 200

    def signed() -> bool:
        newest: list[dict[str, Any]] = stack.admin("GET", "/v1/audit/checkpoints?limit=1")
        return bool(newest) and newest[0]["size"] > beyond

    until(f"a checkpoint of more than {beyond} entries", signed, despite=AWAY)


def figure(stack: Stack, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", stack.sidecar.port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def forked(stack: Stack) -> str | None:
    """What the fleet says of the sidecar."""
    rows: list[dict[str, Any]] = stack.admin("GET", "/v1/sidecars")
    return rows[0]["forked"] if rows else None


def test_a_sidecar_reports_a_log_that_was_rolled_back_and_grew_again(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    data, pinned = stack.directory / "data", stack.directory / "cache" / "pinned-checkpoint"
    copy(data, stack.directory / "copy")
    with closing(sqlite3.connect(stack.directory / "copy" / "sluice.db")) as copied:
        (before,) = copied.execute("SELECT size FROM log_heads").fetchone()
    grow(stack, "ann", 5, before)
    stack.sidecar.start()
    until("a checkpoint is pinned", pinned.exists, despite=AWAY)
    note = pinned.read_text()
    size = checkpoint.unverified(note).size
    assert size > before
    assert figure(stack, "sluice_log_forked") == 0
    until("the sidecar is listed", lambda: stack.admin("GET", "/v1/sidecars"), despite=AWAY)
    assert forked(stack) is None
    # It asks for a checkpoint once a minute, and at its start.
    stack.sidecar.stop()
    stack.control.stop()
    shutil.rmtree(data)
    (stack.directory / "copy").rename(data)
    stack.control.start()
    grow(stack, "bob", size, size)
    assert stack.verify()["valid"]
    stack.sidecar.start()
    until(
        "the sidecar sees the fork", lambda: figure(stack, "sluice_log_forked") == 1, despite=AWAY
    )
    until("the fleet shows it", lambda: forked(stack), despite=AWAY)
    said = forked(stack)
    assert said is not None
    assert f"it does not continue the {size} shown before" in said
    place = {"SLUICE_URL": f"http://127.0.0.1:{stack.control.port}"}
    assert run("fleet", [], place | {"SLUICE_API_KEY": stack.admin_key}) == 0
    assert said in capsys.readouterr().out
    assert said in stack.sidecar.log.read_text()
    # It keeps what it saw, as evidence, and goes on deciding.
    assert pinned.read_text() == note
    status, answer = stack.evaluate()
    assert (status, answer["decision"]) == (200, "ALLOW")
