"""A pod with a sidecar: the real process, its settings in the environment, its token in a file, and
a data source behind it."""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.clusters import pod_token
from tests.support.ports import free_port
from tests.support.stack import Service, call

SETTINGS = "SLUICE_SIDECAR_SETTINGS"


class DataSource(BaseHTTPRequestHandler):
    """Answers every GET."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b'{"read": true}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def data_source() -> Iterator[int]:
    """Serve a data source; yield its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), DataSource)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


class Pod:
    """`files` is the source `rest://files/…`, whose documents the role `support` may read."""

    def __init__(self, directory: Path, control: int, source: int, **settings: Any) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.token_file = directory / "token"
        self.files = free_port()
        listed = [
            {
                "alias": "files",
                "kind": "rest",
                "upstream": f"http://127.0.0.1:{source}",
                "listen": f"127.0.0.1:{self.files}",
                "sensitivity": "low",
            }
        ]
        port = free_port()
        text = json.dumps(
            {
                "id": "loans-0",
                "control": f"http://127.0.0.1:{control}",
                "enrol": {"token_file": str(self.token_file)},
                "listen": f"127.0.0.1:{port}",
                "cache": str(directory / "cache"),
                "spool": {"dir": str(directory / "spool")},
                "sources": listed,
                **settings,
            }
        )
        command = [sys.executable, "-m", "sidecar", "--config-env", SETTINGS]
        log = directory / "sidecar.log"
        self.sidecar = Service("sidecar", command, {SETTINGS: text}, log, port)
        self.write_token()

    def write_token(self, text: str | None = None) -> None:
        """Replace the token, as the kubelet does."""
        new = self.token_file.with_suffix(".new")
        new.write_text(pod_token() if text is None else text)
        new.rename(self.token_file)

    def read(self) -> tuple[int, str]:
        """Read a document: the status, and the name under which it was denied."""
        connection = http.client.HTTPConnection("127.0.0.1", self.files, timeout=20)
        try:
            connection.request("GET", "/handbook")
            answer = connection.getresponse()
            body = json.loads(answer.read())
            denied = body.get("decision", {}).get("policy_name", "")
            return answer.status, denied
        finally:
            connection.close()

    def ready(self) -> tuple[int, Any]:
        return call(self.sidecar.port, "GET", "/health/ready", timeout=5)

    def metric(self, name: str) -> float:
        connection = http.client.HTTPConnection("127.0.0.1", self.sidecar.port, timeout=5)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        [value] = [line.split()[-1] for line in text.splitlines() if line.startswith(name + " ")]
        return float(value)


@contextmanager
def running_pod(directory: Path, control: int, **settings: Any) -> Iterator[Pod]:
    """Start a pod, which need not be ready."""
    with data_source() as source:
        pod = Pod(directory, control, source, **settings)
        pod.sidecar.start(ready=False)
        try:
            yield pod
        finally:
            pod.sidecar.stop()
