"""Today's sidecar at a control API of the previous minor version: it gets the recorded answers, and
decides by them."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from policies.ground.canonical import unb64
from sidecar.control.client import ControlClient
from sidecar.control.log_client import LogClient
from sidecar.spool import RecordBatch
from tests.compatibility.exchanges import RECORDED, Exchange, read
from tests.compatibility.previous import of_version
from tests.support.ports import free_port
from tests.support.stack import Stack
from tests.support.waiting import until

EVENTS = "POST /v1/sidecars/events"
VERSIONS = sorted(path.name for path in RECORDED.iterdir())


class Recording(ThreadingHTTPServer):
    """Answers as the recorded control API did; a long poll without news takes its time."""

    def __init__(self, exchanges: list[Exchange]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = {each.route: each for each in exchanges}
        self.asked: list[tuple[str, bytes]] = []
        self.closing = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Recording

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _answer(self, body: bytes) -> None:
        route = f"{self.command} {self.path.partition('?')[0]}"
        self.server.asked.append((route, body))
        found = self.server.answers.get(route)
        status, answer = (404, {"code": 404}) if found is None else (found.status, found.answer)
        if found is not None and "since=0" not in self.path and "/policy-set" in route:
            self.server.closing.wait(5)
            answer = answer | {"reset": False, "documents": []}
        if "expires_at" in answer:  # the recorded session has ended since
            answer = answer | {"expires_at": "2099-01-01T00:00:00.000000Z"}
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        # A sidecar that stops does not wait for the answer to its long poll.
        with contextlib.suppress(OSError):
            self.end_headers()
            self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """No line for each request."""


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def control(version: str) -> Iterator[Recording]:
    server = Recording(read(version))
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()


def test_a_sidecar_decides_by_what_an_old_control_api_sends(
    control: Recording, version: str, tmp_path: Path
) -> None:
    stack = Stack(tmp_path)
    stack.control.port = control.server_port
    stack.sidecar_key, stack.agent_key = (
        (RECORDED / version / f"{name}.key").read_text() for name in ("sidecar", "agent")
    )
    stack.agent_id = "agt_story"
    stack.sidecar.port = free_port()
    stack.write_config()
    of_version(stack, service="sidecar")
    stack.sidecar.start()
    try:
        status, allowed = stack.evaluate()
        assert (status, allowed["decision"]) == (200, "ALLOW")
        _, denied = stack.evaluate(source_id="payroll")
        assert denied["decision"] == "DENY"
        # Its answer to a claim is understood.
        status, of_session = stack.evaluate(session_id="s-1")
        assert (status, of_session["decision"]) == (200, "ALLOW")
        until("its records are sent", lambda: EVENTS in dict(control.asked))
    finally:
        stack.sidecar.stop()
    # The old control API refuses fields that it does not know, except in a report.
    for route, body in control.asked:
        if body and not route.endswith("/report"):
            assert set(json.loads(body)) <= set(json.loads(control.answers[route].body)), route
    routes = {route for route, _ in control.asked}
    # A new route would be unknown to the old control API.
    assert routes <= set(control.answers), routes
    assert "POST /v1/sidecars/sessions/claim" in routes
    # Nothing vouches for these records, so they stay in the spool for the next start.
    assert any((tmp_path / "spool").rglob("*"))


async def test_a_receipt_of_an_old_control_api_is_trusted(control: Recording, version: str) -> None:
    exchanges = {each.route: each for each in read(version)}
    events = exchanges[EVENTS]
    sent = json.loads(events.body)
    log_key = unb64(exchanges["GET /v1/sidecars/policy-set"].answer["log_key"])
    last = events.answer["n"]
    batch = RecordBatch(
        sent["source"],
        sent["instance"],
        [json.dumps(each).encode() for each in sent["records"]],
        0,
        last,
        unb64(events.answer["hash"]),
    )
    key = (RECORDED / version / "sidecar.key").read_text()

    async def learn_key() -> str | None:
        raise AssertionError("the key is known")

    async with ControlClient(f"http://127.0.0.1:{control.server_port}", key) as client:
        log = LogClient(client, lambda: "default", lambda: (log_key,), learn_key)
        receipt = await log.append(batch)
    assert (receipt.n, receipt.hash) == (last, batch.hash)
    # It sends what the old one read: the same fields, besides those that it may add.
    _, body = control.asked[-1]
    assert set(sent) <= set(json.loads(body))
