"""The service as a process: how it starts, what prevents a start, and how it stops."""

from __future__ import annotations

import http.client
import json
import os
import pty
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.control_api.centre import POLICIES, Centre, asked, running, within
from tests.postgres import serving, unbound

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0
"""Seconds that a busy machine may take to start or stop a service."""


class Process:
    """`python -m control_api`, and what it says. `program` is what Python runs instead."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        program: Sequence[str] = ("-m", "control_api"),
        output: Any = None,
        **environ: str,
    ) -> None:
        self.directory = directory
        policy_file = directory / "policies" / "default" / "demo" / "support.yaml"
        if not policy_file.exists():
            policy_file.parent.mkdir(parents=True)
            policy_file.write_text(POLICIES)
        kept = {name: value for name, value in os.environ.items() if "SLUICE" not in name}
        self.output = output or (directory / "output").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=ROOT,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **kept,
                "SLUICE_DATA_DIR": str(directory / "data"),
                "SLUICE_POLICY_DIR": str(directory / "policies"),
                "SLUICE_CONTROL_LISTEN": "127.0.0.1:0",
                **environ,
            },
        )

    def said(self) -> str:
        return (self.directory / "output").read_text()

    def ready(self) -> int:
        """The port, once it says where it listens."""
        mark = "listens on http://127.0.0.1:"

        def listening() -> bool:
            assert self.process.poll() is None, self.said()
            return mark in self.said()

        within(PATIENCE, listening, "it listens")
        return int(self.said().partition(mark)[2].split('"')[0])

    def ended(self, seconds: float = PATIENCE) -> int:
        return self.process.wait(seconds)

    def first_keys(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.directory / "data" / "first-start.json").read_text()
        )
        return found


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Any]:
    made: list[Process] = []

    def start(*arguments: str, **environ: str) -> Process:
        made.append(Process(tmp_path, *arguments, **environ))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
        each.output.close()


def call(port: int, key: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"X-API-Key": key, "Content-Type": "application/json"}
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_a_first_start_keeps_its_keys_in_a_private_file_and_out_of_a_log(process: Any) -> None:
    first = process()
    port = first.ready()
    keys = first.first_keys()
    path = first.directory / "data" / "first-start.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (first.directory / "data").stat().st_mode & 0o077 == 0
    assert (first.directory / "data" / "log.key").stat().st_mode & 0o777 == 0o600
    assert list(keys) == ["tenant_id", "admin_key", "superadmin_key"]
    assert keys["tenant_id"] == "default"
    # Standard output is no terminal here, as in a container: it says only where the keys are.
    assert "slc_" not in first.said()
    assert first.said().count(f"the keys are in {path}") == 1
    assert call(port, keys["admin_key"], "GET", "/v1/keys")[0] == 200
    assert "superadmin" in call(port, keys["superadmin_key"], "GET", "/v1/keys")[1]["message"]
    first.process.send_signal(signal.SIGTERM)
    assert first.ended() == 0
    again = process()
    assert call(again.ready(), keys["admin_key"], "GET", "/v1/keys")[0] == 200
    assert "the keys are in" not in again.said()
    assert again.first_keys() == keys


def test_a_first_start_on_a_terminal_shows_its_keys(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    output = open(theirs, "w")  # noqa: SIM115  # the child's, closed below
    service = Process(tmp_path, output=output)
    output.close()
    said = b""
    try:
        while b"listens on" not in said:
            said += os.read(ours, 4096)
        keys = service.first_keys()
        assert keys["admin_key"].encode() in said
        assert keys["superadmin_key"].encode() in said
    finally:
        service.process.kill()
        service.process.wait()
        os.close(ours)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_what_is_under_way_and_exits_0(process: Any, number: int) -> None:
    """Clients that never stop asking: each gets whole answers until the connection is closed."""
    service = process()
    port = service.ready()
    key, answered, broken = service.first_keys()["admin_key"], [], []

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        headers = {"X-API-Key": key, "Content-Type": "application/json"}
        while True:
            try:
                connection.request("POST", "/v1/context/evaluate", json.dumps(asked()), headers)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException):
                return
            if answer.status == 200:
                answered.append(json.loads(body)["event_id"])
            else:
                broken.append((answer.status, body))

    threads = [threading.Thread(target=client) for _ in range(16)]
    for thread in threads:
        thread.start()
    within(10, lambda: len(answered) > 100)
    service.process.send_signal(number)
    assert service.ended() == 0, service.said()
    for thread in threads:
        thread.join()
    assert not broken
    with sqlite3.connect(service.directory / "data" / "sluice.db") as database:
        recorded = {row[0] for row in database.execute("SELECT eid FROM log_entries")}
    assert set(answered) <= recorded


def test_a_taken_port_is_named_with_its_setting_and_exits_1(process: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        for setting in ("SLUICE_CONTROL_LISTEN", "SLUICE_METRICS_LISTEN"):
            service = process(**{setting: address})
            assert service.ended() == 1
            assert setting in service.said()
            assert address in service.said()
            assert "Traceback" not in service.said()


def test_all_unusable_settings_are_reported_at_once_and_exit_2(process: Any) -> None:
    secret = "too-short-a-secret"
    service = process(
        SLUICE_CONTROL_LISTEN="nowhere",
        SLUICE_SUPERADMIN_KEY=secret,
        SLUICE_REQUIRE_AGENT_ID="yes",
        SLUICE_SESION_TTL_MINUTES="5",
        SLUICE_DATABASE_URL="mysql://user:hunter2@host/db",
    )
    assert service.ended() == 2
    said = service.said()
    assert len(said.splitlines()) == 5
    assert "SLUICE_SESION_TTL_MINUTES: there is no such setting: did you mean" in said
    assert secret not in said
    assert "hunter2" not in said
    assert not (service.directory / "data").exists()


def test_an_unknown_argument_exits_2(process: Any) -> None:
    service = process("serve", "please")
    assert service.ended() == 2
    assert "usage" in service.said()


def test_migrate_brings_the_schema_to_head_and_exits_0(process: Any, postgres_url: str) -> None:
    refused = process(SLUICE_DATABASE_URL=postgres_url)
    assert refused.ended() == 1
    assert "sluice migrate" in refused.said()
    assert "Traceback" not in refused.said()
    service = serving(postgres_url)
    for _ in range(2):
        urls = {"SLUICE_MIGRATE_DATABASE_URL": postgres_url, "SLUICE_DATABASE_URL": service}
        assert process("migrate", **urls).ended() == 0
    refused = process(SLUICE_DATABASE_URL=unbound(postgres_url))
    assert refused.ended() == 1
    assert "NOBYPASSRLS" in refused.said()
    assert "Traceback" not in refused.said()
    started = process(SLUICE_DATABASE_URL=service)
    key = started.ready() and started.first_keys()["admin_key"]
    assert call(started.ready(), key, "GET", "/v1/audit/verify")[1]["valid"] is True


def test_a_store_that_can_t_be_used_exits_1_without_a_traceback(process: Any) -> None:
    service = process()
    service.ready()
    service.process.kill()
    service.ended()
    with sqlite3.connect(service.directory / "data" / "sluice.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    again = process()
    assert again.ended() == 1
    assert "newer" in again.said()
    assert "Traceback" not in again.said()


def test_a_secret_that_others_can_read_is_refused(process: Any) -> None:
    service = process()
    service.ready()
    service.process.send_signal(signal.SIGTERM)
    service.ended()
    path = service.directory / "data" / "log.key"
    path.chmod(0o644)
    again = process()
    assert again.ended() == 1
    assert "chmod 600" in again.said()
    path.chmod(0o600)
    path.write_text("nonsense")
    assert process().ended() == 1
    assert path.read_text() == "nonsense"


def test_a_log_that_was_changed_stops_the_start(process: Any) -> None:
    service = process()
    service.ready()
    service.process.send_signal(signal.SIGTERM)
    service.ended()
    with sqlite3.connect(service.directory / "data" / "sluice.db") as database:
        database.execute("DELETE FROM log_entries WHERE seq = (SELECT max(seq) FROM log_entries)")
    again = process()
    assert again.ended() == 1


def test_a_loop_that_dies_ends_the_process_with_1(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from control_api.caches.tenant_cache import TenantCache\n"
        "async def follow(self):\n"
        "    await asyncio.sleep(0.5)\n"
        "    raise RuntimeError('the loop died')\n"
        "TenantCache.follow = follow\n"
        "from control_api.__main__ import main\n"
        "sys.exit(main([]))\n"
    )
    policies = tmp_path / "policies"
    policies.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={
            **os.environ,
            "SLUICE_DATA_DIR": str(tmp_path / "data"),
            "SLUICE_POLICY_DIR": str(policies),
            "SLUICE_CONTROL_LISTEN": "127.0.0.1:0",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "the loop died" in done.stderr


def test_metrics_can_have_a_port_of_their_own(tmp_path: Path) -> None:
    with running(tmp_path, SLUICE_METRICS_LISTEN="127.0.0.1:0") as centre:
        assert centre.started is not None
        assert centre.started.metrics_listen is not None
        own = centre.started.metrics_listen.port
        assert centre.call("GET", "/metrics").status == 404
        assert "/metrics" not in centre.admin("GET", "/openapi.json")["paths"]
        centre.evaluate()
        text = centre.call("GET", "/metrics", key=None, port=own).raw.decode()
        assert 'sluice_decisions_total{check="none",decision="ALLOW"} 1.0' in text
        assert centre.call("GET", "/v1/keys", key=None, port=own).status == 401
        assert centre.call("GET", "/health", key=None, port=own).status == 404


def test_no_label_of_a_metric_holds_a_caller_s_text(fresh: Centre) -> None:
    fresh.approved("agt_metrics")
    fresh.evaluate(user_id="u-secret", source_id="s-secret", agent_id="agt_metrics")
    fresh.call("GET", "/v1/agents/agt_metrics")
    fresh.call("GET", "/v1/path-secret")
    text = fresh.call("GET", "/metrics", key=None).raw.decode()
    for name in ("secret", "agt_metrics", "default"):
        assert name not in text
    assert 'operation="get_agent",status="200"' in text


def test_log_lines_are_json_with_the_request_s_id_and_nothing_that_a_caller_sent(
    process: Any,
) -> None:
    service = process(SLUICE_LOG_LEVEL="debug")
    port, key = service.ready(), service.first_keys()["admin_key"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"X-API-Key": key, "Content-Type": "application/json", "X-Request-ID": "find-me"}
    body = asked(user_id="u-private", query="q-private", source_id="s-private")
    connection.request("POST", "/v1/context/evaluate", json.dumps(body), headers)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    service.process.send_signal(signal.SIGTERM)
    assert service.ended() == 0
    lines = [json.loads(line) for line in service.said().splitlines() if line.startswith("{")]
    (decided,) = [line for line in lines if line["logger"] == "sluice.decision"]
    assert decided["request_id"] == "find-me"
    assert answer["event_id"] in decided["message"]
    logged = json.dumps(lines)
    assert "private" not in logged
    assert key not in logged


def test_a_client_that_hangs_up_undoes_nothing(fresh: Centre) -> None:
    body = json.dumps(asked()).encode()
    head = (
        f"POST /v1/context/evaluate HTTP/1.1\r\nHost: x\r\nX-API-Key: {fresh.admin_key}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    before = fresh.verified()["events"]
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", fresh.port)) as connection:
            connection.sendall(head + body)
            time.sleep(0.002)
    within(5, lambda: fresh.verified()["events"] > before)
    fresh.verified()
