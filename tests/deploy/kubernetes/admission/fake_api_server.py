"""An API server for what a real one can't be made to do on demand: conflicts, 5xx, answers that
never come, a token that is not accepted any more, a clock that differs. Real TLS over a real port;
objects are kept as JSON, with a `resourceVersion` that each write checks."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support.certificates import authority

TOKEN = "first-token"
SECRET = "/api/v1/namespaces/sluice-system/secrets/sluice-webhook-tls"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/sluice-system/leases/sluice-webhook"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/sluice-webhook"
EVENTS = "/api/v1/namespaces/shop/events"
Fault = Callable[[str, str], int | None]
HANG = 0


def configuration(**client: Any) -> dict[str, Any]:
    """A webhook configuration with two entries of ours, and one of somebody else."""
    ours = {"service": {"name": "sluice-webhook", "namespace": "sluice-system"}, **client}
    entries = [
        ("enabled.inject.sluice", ours),
        ("other.example.com", {"service": {"name": "other", "namespace": "x"}, "caBundle": "b3Ro"}),
        ("optional.inject.sluice", ours),
    ]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "sluice-webhook"},
        "webhooks": [{"name": n, "clientConfig": copy.deepcopy(c)} for n, c in entries],
    }


class FakeApiServer:
    """Objects by path. `fault(method, path)` may return a status instead of serving, or `HANG`."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self.tokens = {TOKEN}
        self.fault: Fault = lambda _method, _path: None
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        self.after: Callable[[str, str], None] = lambda _method, _path: None
        """Called when a request was served; a fault that it sets takes the answer's place."""
        self.now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
        self.url = ""
        self.account = Path()
        self._version = 0

    def put(self, path: str, value: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        stored = copy.deepcopy(value)
        stored.setdefault("metadata", {})["resourceVersion"] = str(self._version)
        self.objects[path] = stored
        return stored

    def writes(self) -> list[tuple[str, str]]:
        """The calls that changed something other than the Lease."""
        return [call for call in self.calls if call[0] != "GET" and "/leases" not in call[1]]

    def events(self, namespace: str = "shop") -> list[dict[str, Any]]:
        prefix = f"/api/v1/namespaces/{namespace}/events/"
        return [value for path, value in self.objects.items() if path.startswith(prefix)]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        method, path = request.method, request.path
        self.calls.append((method, path))
        if request.headers.get("Authorization") not in {f"Bearer {each}" for each in self.tokens}:
            return self._status(401, "Unauthorized")
        body = await request.json() if request.can_read_body else None
        self.before(method, path)
        if (fault := await self._fault(method, path)) is not None:
            return fault
        answer = self._serve(method, path, body)
        self.after(method, path)
        return await self._fault(method, path) or answer

    async def _fault(self, method: str, path: str) -> web.StreamResponse | None:
        status = self.fault(method, path)
        if status == HANG:
            await asyncio.Event().wait()
        return None if status is None else self._status(status, "a fault of the test's")

    def _serve(self, method: str, path: str, body: Any) -> web.StreamResponse:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return self._status(409, "already exists")
            return self._json(201, self.put(path, body))
        found = self.objects.get(path)
        if found is None:
            return self._status(404, "not found")
        if method == "PUT":
            if body["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
                return self._status(409, "the object has been modified")
            return self._json(200, self.put(path, body))
        if method == "PATCH":
            return self._patch(path, found, body)
        return self._json(200, found)

    def _patch(
        self, path: str, found: dict[str, Any], patch: list[dict[str, Any]]
    ) -> web.StreamResponse:
        changed = copy.deepcopy(found)
        for step in patch:
            *parents, last = step["path"].lstrip("/").split("/")
            target: Any = changed
            for part in parents:
                target = target[int(part)] if isinstance(target, list) else target[part]
            if step["op"] == "test":
                if target.get(last) != step["value"]:
                    return self._status(422, "the test operation failed")
            else:
                assert step["op"] == "add"
                target[last] = step["value"]
        return self._json(200, self.put(path, changed))

    def _status(self, code: int, message: str) -> web.Response:
        return self._json(code, {"kind": "Status", "code": code, "message": message})

    def _json(self, status: int, value: object) -> web.Response:
        date = format_datetime(self.now(), usegmt=True)
        return web.json_response(value, status=status, headers={"Date": date})


@asynccontextmanager
async def fake_api_server(folder: Path) -> AsyncIterator[FakeApiServer]:
    """A running server, and the folder of a service account that it knows."""
    made = FakeApiServer()
    pair = authority().issue("127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)
    runner = web.ServerRunner(web.Server(made.answer), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    made.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    made.account = folder / "account"
    made.account.mkdir()
    (made.account / "token").write_text(TOKEN)
    (made.account / "ca.crt").write_bytes(authority().path.read_bytes())
    try:
        yield made
    finally:
        await runner.cleanup()
