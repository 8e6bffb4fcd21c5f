"""Records what a version's sidecar and control API say to each other, for the next version's tests.

    python -m tests.compatibility.record SOURCE VERSION

`SOURCE` is a folder with that version's packages, such as `git archive` makes. Run it once for each
minor version; the files are never rewritten. The keys in them are of no other installation.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import sqlite3
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.compatibility.exchanges import KEYS, RECORDED, Exchange
from tests.compatibility.previous import of_version, prepare
from tests.support.stack import Stack

HEADERS = ("Content-Type", "Content-Encoding")


class Recorder(ThreadingHTTPServer):
    """Hands each request on to the control API, and keeps it with its answer."""

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.exchanges: list[Exchange] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Recorder

    def do_GET(self) -> None:
        self._hand_on()

    def do_POST(self) -> None:
        self._hand_on()

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: self.headers[name] for name in HEADERS if name in self.headers}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=60)
        key = {"X-API-Key": self.headers["X-API-Key"]}
        connection.request(self.command, self.path, body or None, headers | key)
        answer = connection.getresponse()
        text = answer.read()
        exchange = Exchange(self.command, self.path, headers, body, answer.status, json.loads(text))
        self.server.exchanges.append(exchange)
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        # A sidecar that stops does not wait for the answer to its long poll.
        with contextlib.suppress(OSError):
            self.end_headers()
            self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """No line for each request."""


def main(source: Path, version: str) -> None:
    destination = RECORDED / version
    destination.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        stack = Stack(Path(scratch))
        data = stack.directory / "data"
        # That version makes its own database, not today's.
        shutil.rmtree(data)
        for service in ("control", "sidecar"):
            of_version(stack, source, service=service)
        try:
            _prepare(stack, data, destination)
            _exchange(stack, destination)
        finally:
            stack.stop()


def _prepare(stack: Stack, data: Path, destination: Path) -> None:
    stack.start_control()
    prepare(stack)
    stack.control.stop()
    with sqlite3.connect(data / "sluice.db") as database:
        (destination / "database.sql").write_text("\n".join(database.iterdump()) + "\n")
    database.close()
    for folder, name in zip((data, stack.directory, stack.directory), KEYS, strict=True):
        (destination / name).write_text((folder / name).read_text())
    first = json.loads((data / "first-start.json").read_text())
    (destination / "admin.key").write_text(first["admin_key"])


def _exchange(stack: Stack, destination: Path) -> None:
    """One of each request that a sidecar makes."""
    stack.control.start()
    recorder = Recorder(stack.control.port)
    config = stack.directory / "sidecar.yaml"
    text = config.read_text()
    config.write_text(text.replace(f":{stack.control.port}", f":{recorder.server_port}"))
    stack.sidecar.start()
    stack.evaluate(session_id="s-1")
    stack.evaluate(source_id="payroll")
    _, last = stack.evaluate(query_text="mail ann@example.com")
    stack.wait_shipped(last["event_id"])
    stack.sidecar.stop()
    recorder.shutdown()
    lines = json.dumps([each.to_json() for each in recorder.exchanges], indent=1)
    (destination / "exchanges.json").write_text(lines + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
