"""A receiver of exports as a process of its own, which can be killed: OTLP over HTTP by the
official protobufs, or syslog in the strict form of RFC 5424 in RFC 5425's frames.

    python -m … otlp|syslog PORT FOLDER [CERTIFICATE KEY]

Each decision it takes is a line of `FOLDER/taken`, on the disk before it acknowledges:
`<tenant> <seq> <event id>`. The file `FOLDER/mode` says what goes wrong next.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import select
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

MESSAGE = re.compile(
    # RFC 5424, section 6. The data of ours is one element.
    rb"<(?:110|108)>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}Z [!-~]{1,255} sluice - decision "
    rb'\[sluice@32473 event_id="(?P<eid>[^"\]\\]+)" seq="(?P<seq>\d+)" hash="[0-9a-f]{64}"\]'
    rb" (?P<text>.*)\Z",
    re.DOTALL,
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Folder:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._taken = (path / "taken").open("ab")
        self._lock = threading.Lock()

    @property
    def mode(self) -> str:
        try:
            return (self._path / "mode").read_text()
        except FileNotFoundError:
            return ""

    def take(self, rows: Iterable[str]) -> None:
        with self._lock:
            self._taken.write("".join(f"{row}\n" for row in rows).encode())
            self._taken.flush()
            os.fsync(self._taken.fileno())

    def note(self, what: str) -> None:
        with self._lock, (self._path / "notes").open("a") as file:
            file.write(what + "\n")


class OtlpServer(ThreadingHTTPServer):
    daemon_threads = True
    folder: Folder

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # the sender was killed
            super().handle_error(request, client_address)


class OtlpHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OtlpServer

    def do_POST(self) -> None:
        folder, mode = self.server.folder, self.server.folder.mode
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionResetError("the sender was killed")
        folder.note(
            f"{self.path} {self.headers['Content-Type']} {self.headers['Content-Encoding']}"
            f" {self.headers['Authorization']}"
        )
        if mode == "hang":
            time.sleep(3600)
        if mode == "die_before":
            die()
        if mode.isdigit():
            return self.answer(int(mode), b"{}", {"Retry-After": "1"})
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        # Strict: what the official messages don't have raises, and is answered 400.
        request = json_format.Parse(body, ExportLogsServiceRequest())
        records = list(_records(request))
        if mode == "bad_data" and any(each["source"] == "payroll" for each in records):
            return self.answer(400, b"{}", {})
        if mode == "slow":
            time.sleep(0.5)
        folder.take(f"{each['tenant']} {each['seq']} {each['eid']}" for each in records)
        if mode == "die_after":
            die()
        partial: dict[str, Any] = {}
        if mode == "partial":
            partial = {"partialSuccess": {"rejectedLogRecords": "2", "errorMessage": "too old"}}
        return self.answer(200, json.dumps(partial).encode(), {})

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass  # not on the tests' output


def _records(request: ExportLogsServiceRequest) -> Iterator[dict[str, str]]:
    for resource in request.resource_logs:
        names = {each.key: each.value.string_value for each in resource.resource.attributes}
        assert names["service.name"] == "sluice"
        for scope in resource.scope_logs:
            for record in scope.log_records:
                assert record.event_name == "sluice.decision"
                assert record.time_unix_nano
                found = {each.key: each.value for each in record.attributes}
                yield {
                    "tenant": found["sluice.tenant_id"].string_value,
                    "seq": str(found["sluice.seq"].int_value),
                    "eid": found["sluice.event_id"].string_value,
                    "source": found["gen_ai.data_source.id"].string_value,
                }


def serve_syslog(listening: socket.socket, folder: Folder, tls: ssl.SSLContext | None) -> None:
    while True:
        connection, _ = listening.accept()
        folder.note("connected")
        thread = threading.Thread(target=receive, args=(connection, folder, tls), daemon=True)
        thread.start()


def receive(connection: socket.socket, folder: Folder, tls: ssl.SSLContext | None) -> None:
    mode = folder.mode
    if mode == "hang":
        time.sleep(3600)
    if tls is not None:
        connection = tls.wrap_socket(connection, server_side=True)
    left = b""
    if mode == "die_before":
        select.select([connection], [], [])
        die()  # what has arrived is unread
    while True:
        if mode == "slow":
            time.sleep(0.05)
        data = connection.recv(2048 if mode in {"slow", "die_within"} else 65_536)
        if not data:
            break
        rows, left = _messages(left + data)
        folder.take(rows)
        if mode == "die_within":
            die()
    if left:
        folder.note("half a frame: the sender was killed")
    if mode == "die_after":
        die()
    if isinstance(connection, ssl.SSLSocket):
        try:
            connection = connection.unwrap()
        except OSError:
            folder.note("no close_notify")
    connection.close()


def _messages(data: bytes) -> tuple[list[str], bytes]:
    """The rows of the whole frames in `data`, and what is left of it."""
    rows: list[str] = []
    while True:
        length, space, rest = data.partition(b" ")
        assert re.fullmatch(rb"[1-9]\d{0,6}|", length), length
        if not space or len(rest) < int(length):
            return rows, data
        message, data = rest[: int(length)], rest[int(length) :]
        found = MESSAGE.match(message)
        assert found is not None, message
        text = json.loads(found["text"])
        assert text["event"]["id"] == found["eid"].decode()
        rows.append(f"{text['organization']['id']} {found['seq'].decode()} {found['eid'].decode()}")


def main(kind: str, port: str, folder: str, *pair: str) -> None:
    tls = None
    if pair:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*pair)
    if kind == "otlp":
        with OtlpServer(("127.0.0.1", int(port)), OtlpHandler) as server:
            server.folder = Folder(Path(folder))
            if tls is not None:
                server.socket = tls.wrap_socket(server.socket, server_side=True)
            (Path(folder) / "ready").touch()
            server.serve_forever()
    with socket.create_server(("127.0.0.1", int(port))) as listening:
        (Path(folder) / "ready").touch()
        serve_syslog(listening, Folder(Path(folder)), tls)


if __name__ == "__main__":
    main(*sys.argv[1:])
