"""The system under test: four sidecars, two control API replicas, PostgreSQL and Redis as
processes, and the links between them. Knows how they are started; knows no fault.

INVARIANT: whatever waits for a process does so in a thread, because the links run in the event
loop.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.chaos.link import Link
from tests.chaos.servers import Postgres
from tests.support import postgres
from tests.support.ports import free_port
from tests.support.redis import Redis
from tests.support.stack import Service, call

SIDECARS, REPLICAS = 4, 2
LIMIT = 10.0
"""The sidecars' staleness limit, in seconds."""
ROLES = ("moving", "steady")
SOURCES = ("alpha", "beta")


@dataclass
class Process:
    """A service, and the file that sets its clock's and disk's faults."""

    service: Service
    orders: Path

    def order(self, *, clock: float = 0.0, disk: str = "") -> None:
        part = self.orders.with_suffix(".new")
        part.write_text(json.dumps({"clock": clock, "disk": disk}))
        part.replace(self.orders)

    def signal(self, number: signal.Signals) -> None:
        """Start it again after SIGKILL."""
        if number is signal.SIGKILL:
            self.service.kill()
        else:
            self.service.signal(number)

    def start(self) -> None:
        """Doesn't wait: it is ready once what it depends on is."""
        self.service.start(ready=False)


class System:
    """The processes by kind, the links by `from>to`, and the keys to all of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.postgres = Postgres(folder / "postgres", free_port())
        (folder / "redis").mkdir()
        self.redis = Redis(folder / "redis")
        self.links: dict[str, Link] = {}
        # Where the control API looks for PostgreSQL too; nothing listens until a standby serves.
        self.spare = Link([])
        self.controls: list[Process] = []
        self.sidecars: list[Process] = []
        self.admin_key = ""
        self.agents = [f"agt_{number}" for number in range(SIDECARS)]
        self.keys: list[str] = []

    async def start(self) -> None:
        await asyncio.to_thread(self.postgres.make)
        await asyncio.to_thread(self.redis.start)
        self.links["control>postgres"] = await Link([self.postgres.port]).start()
        self.spare.port = free_port()
        self.links["control>redis"] = await Link([self.redis.port]).start()
        self.links["sidecar>redis"] = await Link([self.redis.port]).start()
        ports = [free_port() for _ in range(REPLICAS)]
        self.links["sidecar>control"] = await Link(ports).start()
        self._write_policies()
        await asyncio.to_thread(self._migrate)
        for number, port in enumerate(ports):
            await asyncio.to_thread(self._start_control, number, port)
        await asyncio.to_thread(self._prepare)
        for number in range(SIDECARS):
            self.sidecars.append(await asyncio.to_thread(self._sidecar, number))
        await self._all(self.sidecars)

    async def stop(self) -> None:
        for process in (*self.sidecars, *self.controls):
            if process.service.process is not None and process.service.process.poll() is None:
                process.service.signal(signal.SIGCONT)
                process.service.kill()
        for link in self.links.values():
            await link.close()
        self.redis.stop()
        self.postgres.stop()

    async def _all(self, processes: list[Process]) -> None:
        await asyncio.gather(*(asyncio.to_thread(each.service.start) for each in processes))

    def admin(self, method: str, path: str, body: object = None, timeout: float = 10) -> Any:
        """Status and body from a replica that responds."""
        last: Exception | None = None
        for process in self.controls:
            try:
                return call(
                    process.service.port, method, path, body, key=self.admin_key, timeout=timeout
                )
            except OSError as error:
                last = error
        raise ConnectionError(f"no replica answers: {last}")

    def depth(self) -> int:
        """Records that no replica has acknowledged yet."""
        found = 0
        for process in self.sidecars:
            text = _text(process.service.port, "/metrics")
            for line in text.splitlines():
                if line.startswith("sluice_spool_records "):
                    found += int(float(line.split()[1]))
        return found

    def _write_policies(self) -> None:
        folder = self.folder / "policies" / "default" / "chaos"
        folder.mkdir(parents=True)
        policies = [
            {
                "name": role,
                "agent_role": role,
                "allowed_sources": list(SOURCES),
                "denied_sources": [],
                "max_sensitivity": "high",
            }
            for role in ROLES
        ]
        (folder / "roles.yaml").write_text(yaml.safe_dump({"policies": policies}))

    def _environ(self, number: int, port: int) -> dict[str, str]:
        return {
            "SLUICE_DATA_DIR": str(self.folder / f"control-{number}"),
            "SLUICE_POLICY_DIR": str(self.folder / "policies"),
            "SLUICE_DATABASE_URL": self.postgres.url(
                postgres.SERVICE, self.links["control>postgres"].port, self.spare.port
            ),
            "SLUICE_REDIS_URL": f"redis://127.0.0.1:{self.links['control>redis'].port}/0",
            "SLUICE_CONTROL_LISTEN": f"127.0.0.1:{port}",
            "SLUICE_CHECKPOINT_STORE": f"file://{self.folder / 'checkpoints'}",
        }

    def _migrate(self) -> None:
        environ = {
            **self._environ(0, 1),
            "SLUICE_MIGRATE_DATABASE_URL": self.postgres.url(postgres.OWNER, self.postgres.port),
        }
        command = [sys.executable, "-m", "control_api", "migrate"]
        subprocess.run(command, env=os.environ | environ, check=True, capture_output=True)

    def accept_loss(self) -> None:
        """Let the log be signed again although it lacks entries that were signed, as an operator
        does who has restored a database."""
        command = [sys.executable, "-m", "control_api", "accept-incarnation"]
        command += ["--log", "default", "--reason", "an older copy was put back"]
        environ = os.environ | self._environ(0, 1)
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        # Nothing is to be accepted if no checkpoint was signed in the lost time.
        agrees = "agrees with its checkpoints" in done.stdout + done.stderr
        assert done.returncode == 0 or agrees, done.stdout + done.stderr

    def _start_control(self, number: int, port: int) -> None:
        data = self.folder / f"control-{number}"
        data.mkdir(mode=0o700)
        if number:
            # Replicas sign with one key.
            shutil.copy(self.folder / "control-0" / "log.key", data / "log.key")
        process = self._process(f"control-{number}", "control_api", [], port)
        process.service.environ.update(self._environ(number, port))
        process.service.start()
        self.controls.append(process)

    def _prepare(self) -> None:
        first = json.loads((self.folder / "control-0" / "first-start.json").read_text())
        self.admin_key = first["admin_key"]
        for agent in self.agents:
            body = {"agent_id": agent, "agent_role": "steady", "permitted_roles": list(ROLES)}
            self.must("POST", "/v1/agents", body)
            for status in ("pending_approval", "approved"):
                self.must("PATCH", f"/v1/agents/{agent}/status", {"status": status})
        self.keys = [self.new_key("evaluate")["key"] for _ in range(SIDECARS)]

    def new_key(self, scope: str) -> dict[str, Any]:
        body: dict[str, Any] = {"name": scope, "scope": scope}
        if scope == "sidecar":
            body["agent_ids"] = ["*"]
        return dict(self.must("POST", "/v1/keys", body))

    def must(self, method: str, path: str, body: object = None) -> Any:
        status, answer = self.admin(method, path, body)
        assert status < 300, (status, answer)
        return answer

    def _sidecar(self, number: int) -> Process:
        folder = self.folder / f"sidecar-{number}"
        folder.mkdir()
        key = folder / "sidecar.key"
        key.write_text(self.new_key("sidecar")["key"])
        key.chmod(0o600)
        port = free_port()
        config = {
            "id": f"sidecar-{number}",
            "control": f"http://127.0.0.1:{self.links['sidecar>control'].port}",
            "redis": f"redis://127.0.0.1:{self.links['sidecar>redis'].port}/0",
            "key_file": "sidecar.key",
            "listen": f"127.0.0.1:{port}",
            "staleness_seconds": LIMIT,
            "spool": {"dir": "spool"},
        }
        (folder / "sidecar.yaml").write_text(yaml.safe_dump(config))
        arguments = ["--config", str(folder / "sidecar.yaml")]
        return self._process(f"sidecar-{number}", "sidecar", arguments, port)

    def _process(self, name: str, module: str, arguments: list[str], port: int) -> Process:
        orders = self.folder / f"{name}.orders"
        command = [sys.executable, "-m", "tests.chaos.faulty", str(orders), module, *arguments]
        process = Process(Service(name, command, {}, self.folder / f"{name}.log", port), orders)
        process.order()
        return process


def _text(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


@asynccontextmanager
async def running_system(folder: Path) -> AsyncIterator[System]:
    system = System(folder)
    try:
        await system.start()
        yield system
    finally:
        await system.stop()
