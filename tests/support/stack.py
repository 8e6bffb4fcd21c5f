"""The real services as processes on loopback, for stories and benchmarks: started, stopped, killed.

Knows the commands, the files of a first start and the HTTP API; imports neither service.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support import fork_server, migrated, waiting
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]

POLICIES = """\
policies:
  - name: support-reads
    agent_role: support
    allowed_sources: [handbook, contracts, rest://files/*]
    denied_sources: [payroll]
    max_sensitivity: high
"""


def listens(port: int) -> bool:
    """Return whether a process listens there."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def call(
    port: int,
    method: str,
    path: str,
    body: object = None,
    *,
    key: str | None = None,
    headers: dict[str, str] | None = None,
    timeout: float = 30,
) -> tuple[int, Any]:
    """Return the status and decoded body of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    sent = {"Content-Type": "application/json"} if body is not None else {}
    sent.update({"X-API-Key": key} if key is not None else {})
    try:
        raw = None if body is None else json.dumps(body).encode()
        connection.request(method, path, raw, {**sent, **(headers or {})})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


@dataclass
class Service:
    """One process that can be restarted. Its output goes to a file."""

    name: str
    command: list[str]
    environ: dict[str, str]
    log: Path
    port: int
    cores: set[int] | None = None
    process: fork_server.Started | None = None
    tree: Path = ROOT
    """The folder whose packages it runs."""

    def start(self, *, ready: bool = True) -> None:
        cores = self.cores
        with self.log.open("ab") as log:
            self.process = fork_server.start(
                self.command,
                log,
                {**os.environ, **self.environ},
                self.tree,
                # Before it starts: threads and children keep what their maker had.
                (lambda: os.sched_setaffinity(0, cores)) if cores else None,
            )
        if ready:
            self.wait_ready()

    def wait_ready(self) -> None:
        def up() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended:\n{self.tail()}")
            return call(self.port, "GET", "/health/ready", timeout=2)[0] == 200

        try:
            waiting.until(f"{self.name} is ready", up, despite=waiting.AWAY)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.tail()}") from None

    def tail(self, size: int = 4000) -> str:
        return self.log.read_text(errors="replace")[-size:]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = 20) -> int:
        """Send SIGTERM. Returns the exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} did not stop:\n{self.tail()}") from None

    def resident(self) -> int:
        """Return the resident memory in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")


@dataclass
class Stack:
    """A control API, its sidecar, and the keys to both."""

    directory: Path
    policies: str = POLICIES
    role: str = "support"
    staleness: float = 30
    mode: str = "durable"
    database_url: str | None = None
    redis_url: str | None = None
    sources: list[dict[str, Any]] = field(default_factory=list)
    doors: list[dict[str, Any]] = field(default_factory=list)
    control_cores: set[int] | None = None
    sidecar_cores: set[int] | None = None
    tree: Path = ROOT

    def __post_init__(self) -> None:
        self.policy_file = self.directory / "policies" / "default" / "demo" / "support.yaml"
        self.policy_file.parent.mkdir(parents=True)
        self.policy_file.write_text(self.policies)
        own = {"PYTHONPATH": str(self.tree)} if self.tree != ROOT else {}
        environ = {
            **own,
            "SLUICE_DATA_DIR": str(self.directory / "data"),
            "SLUICE_POLICY_DIR": str(self.directory / "policies"),
        }
        if self.database_url:
            environ["SLUICE_DATABASE_URL"] = self.database_url
        else:
            migrated.sqlite(self.directory / "data" / "sluice.db")
        if self.redis_url:
            environ["SLUICE_REDIS_URL"] = self.redis_url
        port = free_port()
        environ["SLUICE_CONTROL_LISTEN"] = f"127.0.0.1:{port}"
        log = self.directory / "control.log"
        command = [sys.executable, "-m", "control_api"]
        self.control = Service("control API", command, environ, log, port, self.control_cores)
        self.control.tree = self.tree
        config = self.directory / "sidecar.yaml"
        command = [sys.executable, "-m", "sidecar", "--config", str(config)]
        log = self.directory / "sidecar.log"
        self.sidecar = Service("sidecar", command, own, log, free_port(), self.sidecar_cores)
        self.sidecar.tree = self.tree

    def start_control(self) -> None:
        self.control.start()
        first = json.loads((self.directory / "data" / "first-start.json").read_text())
        self.admin_key: str = first["admin_key"]

    def prepare(self) -> None:
        """Create keys, an approved agent, and the sidecar's configuration."""
        self.sidecar_key = self.new_key("sidecar", "sidecar")
        self.agent_key = self.new_key("agent", "evaluate")
        self.agent_id = "agt_story"
        self.admin("POST", "/v1/agents", {"agent_id": self.agent_id, "agent_role": self.role})
        for status in ("pending_approval", "approved"):
            self.admin("PATCH", f"/v1/agents/{self.agent_id}/status", {"status": status})
        self.write_config()

    def write_config(self) -> None:
        for name, key in (("sidecar.key", self.sidecar_key), ("agent.key", self.agent_key)):
            path = self.directory / name
            path.write_text(key)
            path.chmod(0o600)
        config = {
            "id": "sidecar-1",
            "control": f"http://127.0.0.1:{self.control.port}",
            "key_file": "sidecar.key",
            "listen": f"127.0.0.1:{self.sidecar.port}",
            "staleness_seconds": self.staleness,
            "spool": {"dir": "spool", "mode": self.mode},
            "agent": {"id": self.agent_id, "role": self.role, "key_file": "agent.key"},
            "sources": self.sources,
        }
        if self.doors:  # a sidecar of an older version knows none
            config["doors"] = self.doors
        if self.redis_url:
            config["redis"] = self.redis_url
        (self.directory / "sidecar.yaml").write_text(yaml.safe_dump(config))

    def start(self) -> "Stack":
        self.start_control()
        self.prepare()
        self.sidecar.start()
        return self

    def stop(self) -> None:
        try:
            self.sidecar.stop()
        finally:
            self.control.stop()

    def new_key(self, name: str, scope: str) -> str:
        body: dict[str, Any] = {"name": name, "scope": scope}
        if scope == "sidecar":
            body["agent_ids"] = ["*"]
        key: str = self.admin("POST", "/v1/keys", body)["key"]
        return key

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """Return the response to a request with the admin key, which must succeed."""
        status, answer = call(self.control.port, method, path, body, key=self.admin_key)
        assert status < 300, (status, answer)
        return answer

    def ask(self, **changed: Any) -> dict[str, Any]:
        """Return the body of an evaluation that is allowed, with changes."""
        body = {
            "agent_role": self.role,
            "agent_id": self.agent_id,
            "user_id": "ann",
            "source_id": "handbook",
            "sensitivity_level": "low",
        }
        return {name: value for name, value in {**body, **changed}.items() if value is not None}

    def evaluate(self, **changed: Any) -> tuple[int, Any]:
        """Evaluate through the sidecar."""
        return call(
            self.sidecar.port,
            "POST",
            "/v1/context/evaluate",
            self.ask(**changed),
            key=self.agent_key,
        )

    def verify(self) -> dict[str, Any]:
        report: dict[str, Any] = self.admin("GET", "/v1/audit/verify")
        return report

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield every audit event, newest first, following `Link`."""
        path = "/v1/audit/events?limit=1000"
        while path:
            connection = http.client.HTTPConnection("127.0.0.1", self.control.port, timeout=30)
            connection.request("GET", path, headers={"X-API-Key": self.admin_key})
            answer = connection.getresponse()
            page = json.loads(answer.read())
            assert answer.status == 200, page
            link = answer.getheader("Link") or ""
            connection.close()
            yield from page
            path = link[link.index("<") + 1 : link.index(">")] if 'rel="next"' in link else ""

    def wait_shipped(self, event_id: str) -> None:
        def there() -> bool:
            status, _ = call(
                self.control.port, "GET", f"/v1/audit/lineage/{event_id}", key=self.admin_key
            )
            return status == 200

        waiting.until(f"event {event_id} is in the log", there, despite=waiting.AWAY)


@contextmanager
def running_stack(directory: Path, **settings: Any) -> Iterator[Stack]:
    """Start a stack, which is stopped at the end in any case."""
    stack = Stack(directory, **settings)
    try:
        yield stack.start()
    finally:
        stack.stop()
