"""The control API as tests meet it: the real server on a free port of loopback, a real database,
and a clock that can be moved. Requests go over real connections."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from control_api.serve import Started, serve
from control_api.settings import Settings, read
from policies.ground.clock import Clock
from tests.support import migrated
from tests.support.waiting import PATIENCE

SUPERADMIN = "superadmin-" + "x" * 32
POLICIES = """\
policies:
  - name: support-reads
    agent_role: support
    allowed_sources: [handbook, contracts, "rest://files/*"]
    denied_sources: [payroll]
    max_sensitivity: high
    denied_tasks: [marketing]
"""
POLICY = {
    "name": "support-reads",
    "agent_role": "support",
    "allowed_sources": ["handbook", "contracts", "rest://files/*"],
    "denied_sources": ["payroll"],
    "max_sensitivity": "high",
    "denied_tasks": ["marketing"],
}
"""The policy of `POLICIES`, as a request creates it."""


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class MovableClock:
    """The real time, and the seconds that tests add to it."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> int:
        return time.time_ns() // 1000 + int(self.ahead * 1e6)

    def clock(self) -> Clock:
        return Clock(self.now, time.monotonic)


class ControlApi:
    """One running control API, in a thread of its own."""

    tenant_id = "default"

    def __init__(
        self,
        directory: Path,
        *,
        policies: str | None = POLICIES,
        database_url: str | None = None,
        **environ: str,
    ) -> None:
        self.directory = directory
        self.policy_file = directory / "policies" / "default" / "demo" / "support.yaml"
        self.policy_file.parent.mkdir(parents=True, exist_ok=True)
        if policies is not None:
            self.policy_file.write_text(policies)
        self.environ = {
            "SLUICE_DATA_DIR": str(directory / "data"),
            "SLUICE_POLICY_DIR": str(directory / "policies"),
            "SLUICE_CONTROL_LISTEN": "127.0.0.1:0",
            "SLUICE_SUPERADMIN_KEY": SUPERADMIN,
            **({"SLUICE_DATABASE_URL": database_url} if database_url else {}),
            **environ,
        }
        if not database_url and not (directory / "data").exists():
            migrated.sqlite(directory / "data" / "sluice.db")
        self.time = MovableClock()
        self.started: Started | None = None
        self.failure: BaseException | None = None

    @property
    def settings(self) -> Settings:
        return read(self.environ)

    def start(self) -> ControlApi:
        ready = threading.Event()
        self.failure = None

        def tell(started: Started) -> None:
            self.started = started
            ready.set()

        async def live() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await serve(self.settings, self.time.clock(), os.urandom, tell, self._stop)

        def run() -> None:
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(live())
            except BaseException as error:  # noqa: BLE001  # raised where it is asked for
                self.failure = error
            finally:
                ready.set()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert ready.wait(PATIENCE), "the control API did not start"
        if self.failure is not None:
            raise self.failure
        assert self.started is not None
        self.port = self.started.listen.port
        first = json.loads((self.directory / "data" / "first-start.json").read_text())
        self.admin_key: str = first["admin_key"]
        self.console = self._console_origin()
        return self

    def _console_origin(self) -> str:
        """Return the address at which a browser finds the console."""
        if given := self.environ.get("SLUICE_CONSOLE_URL"):
            return given.rstrip("/")
        name = self.directory / "data" / "console-host"
        host = name.read_text().strip() if name.exists() else "127.0.0.1"
        return f"http://{host}:{self.port}"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive(), "the control API did not stop"
        if self.failure is not None:
            raise self.failure

    def restart(self) -> None:
        self.stop()
        self.start()

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = "",
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
        timeout: float = 30,
        port: int | None = None,
    ) -> Answer:
        """Send one request; with the key that may do it unless another, or None, is given."""
        sent = {"Content-Type": "application/json"} if body is not None or raw is not None else {}
        if key is not None:
            sent["X-API-Key"] = key or (SUPERADMIN if _of_all(path) else self.admin_key)
        sent |= headers or {}
        data = raw if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=timeout)
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """Return the body of a request that must succeed."""
        answer = self.call(method, path, body)
        assert answer.status < 300, (answer.status, answer.raw)
        return answer.body

    def new_key(self, scope: str = "evaluate", **fields: Any) -> str:
        if scope == "sidecar":
            fields.setdefault("agent_ids", ["*"])
        made = self.admin("POST", "/v1/keys", {"name": f"a {scope} key", "scope": scope, **fields})
        key: str = made["key"]
        return key

    def approved(self, agent_id: str, role: str = "support", **fields: Any) -> str:
        """Return an agent that may evaluate."""
        self.admin("POST", "/v1/agents", {"agent_id": agent_id, "agent_role": role, **fields})
        for status in ("pending_approval", "approved"):
            self.admin("PATCH", f"/v1/agents/{agent_id}/status", {"status": status})
        return agent_id

    def evaluate(self, key: str = "", **changed: Any) -> Any:
        answer = self.call("POST", "/v1/context/evaluate", asked(**changed), key=key)
        assert answer.status == 200, answer.raw
        return answer.body

    def verified(self) -> Any:
        """Return the report on the log, which must hold."""
        report = self.admin("GET", "/v1/audit/verify")
        assert report["valid"], report
        return report

    def events(self, query: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.admin("GET", f"/v1/audit/events{query}")
        return found

    def pages(self, path: str) -> Iterator[Any]:
        """Yield every page of a list, by its `Link`."""
        while path:
            answer = self.call("GET", path)
            assert answer.status == 200, answer.raw
            yield answer.body
            link = answer.headers.get("Link", "")
            assert not link or link.endswith('; rel="next"')
            path = link[1 : link.index(">")] if link else ""


def _of_all(path: str) -> bool:
    """Return whether the path belongs to those that only the superadmin's key opens."""
    return path.startswith("/v1/admin/")


def asked(**changed: Any) -> dict[str, Any]:
    """Return an evaluation that is allowed unless it is changed."""
    body = {
        "agent_role": "support",
        "user_id": "ann",
        "source_id": "handbook",
        "sensitivity_level": "low",
        **changed,
    }
    return {name: value for name, value in body.items() if value is not None}


@contextmanager
def running_control_api(directory: Path, **settings: Any) -> Iterator[ControlApi]:
    api = ControlApi(directory, **settings).start()
    try:
        yield api
    finally:
        api.stop()
