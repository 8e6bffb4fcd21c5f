"""`kill -9` of the control API in the middle of an export: what arrived is recognised as cut off,
and the same command continues it to a file that verifies."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.commands.client import export as command
from deploy.commands.verify.check import CheckOptions, verify_file
from policies.trail.verdict.outcome import Outcome
from tests.deploy.commands.client.conftest import Operator
from tests.support.control_api import asked
from tests.support.control_api_process import ControlApiProcess, call, process

__all__ = ["process"]  # a fixture

EVENTS, QUERY = 160, "x" * 60_000
"""About 10 MB: more than what the buffers of a connection hold, so the server is still sending."""


def verified(path: Path) -> Outcome:
    return verify_file(lambda: path.open("rb"), path.name, CheckOptions(), again=True)


@contextmanager
def killing(port: int, after: int, kill: Callable[[], None]) -> Iterator[str]:
    """An address that leads to the control API. It passes on so many bytes of the first response,
    kills the service, and closes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listener.accept()
        with client, socket.create_connection(("127.0.0.1", port)) as server:
            server.sendall(client.recv(65536))
            left = after
            while left and (piece := server.recv(min(65536, left))):
                client.sendall(piece)
                left -= len(piece)
            kill()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread.join(60)
    listener.close()


def test_an_export_continues_after_the_service_was_killed(
    process: Callable[..., ControlApiProcess],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "PAUSES", (0.0,))
    service = process()
    port = service.ready()
    key = service.first_keys()["admin_key"]
    for number in range(EVENTS):
        body = asked(query=f"{number} {QUERY}")
        assert call(port, key, "POST", "/v1/context/evaluate", body)[0] == 200
    target, part = tmp_path / "log.ndjson", tmp_path / "log.ndjson.part"

    def kill() -> None:
        assert service.process.poll() is None
        os.kill(service.process.pid, signal.SIGKILL)
        service.ended()

    def export(url: str) -> Any:
        first = tmp_path / "data" / "first-start.json"
        return Operator(url, first, capsys.readouterr)("export", "-o", str(target))

    with killing(port, 3_000_000, kill) as url:
        said = export(url)
    assert said.code == 1
    assert "the same command continues" in said.err
    cut, kept = verified(part), part.read_bytes()
    assert [str(each.reason) for each in cut.findings] == ["file_truncated"]
    assert 20 < cut.entries < EVENTS
    # The process died in the middle of a file; the log has all that it answered.
    said = export(f"http://127.0.0.1:{process().ready()}")
    assert said.code == 0, said.err
    assert target.read_bytes().startswith(kept[: kept.rindex(b'\n{"entry":')])
    whole = verified(target)
    assert (whole.valid, whole.decisions) == (True, EVENTS), whole.findings
    assert not part.exists()
