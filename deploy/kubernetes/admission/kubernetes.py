"""Calls the API server with the service account's token, and sends Kubernetes Events, which tell a
pod's owner whether the sidecar was added.

The token and the certificate authorities are files that the kubelet replaces, so both are read for
each call: the webhook makes a few calls a minute. Nothing is retried here; the callers are loops.

With the Event, `kubectl describe` of a ReplicaSet or Job shows why its pods have a sidecar, or have
none. A review never waits for an Event. Events wait in a bounded queue, are sent one after another
at a limited rate, and are dropped and counted when the queue is full. An owner that creates five
hundred pods gets one Event, not five hundred.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import re
import ssl
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
import orjson

from deploy.kubernetes.admission.metrics import EventOutcome, WebhookMetrics
from policies.ground.clock import Clock
from policies.ground.process.tls_files import cluster_context

CALL_SECONDS = 10.0
MAX_ANSWER = 4 * 1024 * 1024
JSON_PATCH = "application/json-patch+json"
JSON = "application/json"
Object = dict[str, Any]


class ApiFault(Exception):
    """the API server did not do what was asked"""


class Unreachable(ApiFault):
    """the API server does not answer, or answers that it can't serve now"""


class Denied(ApiFault):
    """the API server does not know the service account, or it lacks the right"""


class Conflict(ApiFault):
    """the object was changed, created or deleted in the meantime"""


class Rejected(ApiFault):
    """the API server does not accept the request"""


class KubernetesApi:
    """A client for the API server at `url`, authenticated by the service account's token."""

    def __init__(self, url: str, account: Path) -> None:
        self._url = url
        self._account = account
        self._session: aiohttp.ClientSession | None = None
        self._authorities = b""
        self._tls: ssl.SSLContext | None = None
        self.skew_of: Callable[[str], None] = lambda _: None
        """A function that is called with the header `Date` of every response, to compare the
        clocks."""

    async def __aenter__(self) -> KubernetesApi:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=CALL_SECONDS),
            # An HTTP proxy of the environment is for other traffic: the token stays in the cluster.
            trust_env=False,
            connector=aiohttp.TCPConnector(limit=8, keepalive_timeout=60),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str) -> Object | None:
        """Return the object at `path`, or None if it does not exist. Raises `ApiFault`."""
        return await self._call("GET", path, None, absent_ok=True)

    async def create(self, path: str, value: Object) -> Object:
        """Create an object in the list at `path`, and return it as stored. Raises `Conflict` if it
        exists already."""
        return await self._call("POST", path, value) or {}

    async def replace(self, path: str, value: Object) -> Object:
        """Replace the object at `path`, and return it as stored. Raises `Conflict` if the
        `resourceVersion` in `value` is not the current one."""
        return await self._call("PUT", path, value) or {}

    async def patch(self, path: str, patch: list[Object]) -> Object:
        """Apply a JSON Patch to the object at `path`, and return the result. Raises `Conflict` if a
        `test` operation of the patch fails."""
        return await self._call("PATCH", path, patch, content_type=JSON_PATCH) or {}

    async def _call(
        self,
        method: str,
        path: str,
        value: object,
        *,
        content_type: str = JSON,
        absent_ok: bool = False,
    ) -> Object | None:
        assert self._session is not None
        headers = {"Authorization": f"Bearer {self._token()}", "Accept": JSON}
        body = None if value is None else orjson.dumps(value)
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            async with self._session.request(
                method,
                self._url + path,
                data=body,
                headers=headers,
                ssl=self._context(),
                allow_redirects=False,
            ) as answer:
                self.skew_of(answer.headers.get("Date", ""))
                raw = await _bounded(answer)
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"{method} {path}: {str(error) or type(error).__name__}") from error
        if status == 404 and absent_ok:
            return None
        if 200 <= status < 300:
            return _parsed(raw, path)
        raise _fault(status, f"{method} {path}: {status}: {_message(raw)}")

    def _token(self) -> str:
        try:
            return (self._account / "token").read_text(encoding="ascii").strip()
        except (OSError, UnicodeError) as error:
            raise Denied(f"`{self._account / 'token'}` can't be read: {error}") from error

    def _context(self) -> ssl.SSLContext:
        path = self._account / "ca.crt"
        try:
            found = path.read_bytes()
            if self._tls is None or found != self._authorities:
                self._tls = cluster_context(cadata=found.decode("ascii"))
                self._authorities = found
        except (OSError, UnicodeError, ssl.SSLError) as error:
            raise Denied(f"`{path}` can't be used: {error}") from error
        return self._tls


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    raw = bytearray()
    async for piece in answer.content.iter_any():
        raw += piece
        if len(raw) > MAX_ANSWER:
            raise Unreachable(f"the answer is over the limit of {MAX_ANSWER} bytes")
    return bytes(raw)


def _parsed(raw: bytes, path: str) -> Object:
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"the answer to {path} is not JSON") from error
    if not isinstance(found, dict):
        raise Unreachable(f"the answer to {path} is not a JSON object")
    return found


def _message(raw: bytes) -> str:
    """Return the message of a `Status` object, which is the body of every refusal by an API
    server."""
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return "no JSON"
    return str(found.get("message", ""))[:512] if isinstance(found, dict) else ""


def _fault(status: int, message: str) -> ApiFault:
    match status:
        case 401 | 403:
            return Denied(message)
        case 404 | 409 | 412:
            return Conflict(message)
        case 429:
            return Unreachable(message)
        case 422:
            # A failed `test` of a JSON Patch. The same status has other causes, which repeat and
            # so show in the log.
            return Conflict(message)
    return Unreachable(message) if status >= 500 else Rejected(message)


MAX_QUEUED = 256
MAX_REMEMBERED = 4096
REPEAT_SECONDS = 600.0
PAUSE_SECONDS = 0.1
"""The seconds between two Events, so that at most ten are sent in a second: the API server has
other work to do."""
MAX_NOTE = 1000
# RFC 1123: the name becomes a part of a path. Who sends reviews is not known for certain.
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_log = logging.getLogger("sluice.webhook")


class EventReason(StrEnum):
    """The reason of a Kubernetes Event, as `kubectl get events` shows it."""

    injected = "Injected"
    skipped = "InjectionSkipped"


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event to be sent: a message about the object `owner`. `owner` holds the fields
    of a reference to that object, as `involvedObject` does."""

    namespace: str
    owner: tuple[tuple[str, str], ...]
    reason: EventReason
    note: str


class Events:
    """A bounded queue of Kubernetes Events, and the loop that sends them."""

    def __init__(
        self,
        api: KubernetesApi,
        component: str,
        metrics: WebhookMetrics,
        clock: Clock,
        entropy: Callable[[int], bytes],
    ) -> None:
        self._api = api
        self._component = component
        self._count = metrics.events.labels
        self._clock = clock
        self._entropy = entropy
        self._queue: asyncio.Queue[Event] = asyncio.Queue(MAX_QUEUED)
        self._sent: OrderedDict[Event, float] = OrderedDict()
        """The monotonic time at which each Event was queued last, the latest one at the end, so
        that repeated Events can be left out."""

    def put(self, event: Event) -> None:
        """Queue an Event. It is only counted, not sent, if its namespace has no valid name, if the
        same Event was queued shortly before, or if the queue is full. Returns at once."""
        if not _NAMESPACE.match(event.namespace):
            self._count(EventOutcome.failed).inc()
            return
        now = self._clock.monotonic()
        if now - self._sent.get(event, float("-inf")) < REPEAT_SECONDS:
            self._count(EventOutcome.repeated).inc()
            return
        if self._queue.full():
            self._count(EventOutcome.dropped).inc()
            return
        self._queue.put_nowait(event)
        self._sent[event] = now
        self._sent.move_to_end(event)
        if len(self._sent) > MAX_REMEMBERED:
            self._sent.popitem(last=False)

    async def run(self) -> None:
        """Send the queued Events, forever. An Event that can't be sent is not tried again."""
        while True:
            event = await self._queue.get()
            try:
                await self._send(event)
            except ApiFault as error:
                # Also when the namespace is gone, or is being deleted.
                self._count(EventOutcome.failed).inc()
                _log.debug("an Event was not sent: %s", error)
            else:
                self._count(EventOutcome.sent).inc()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _send(self, event: Event) -> None:
        # `core/v1` instead of `events.k8s.io/v1`: it takes an owner without a name, and is what
        # kubectl shows in either case.
        name = f"{dict(event.owner).get('name') or 'pod'}"[:200]
        moment = dt.datetime.fromtimestamp(self._clock.now() / 1_000_000, dt.UTC)
        seconds = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        value: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{name}.{self._entropy(8).hex()}",
                "namespace": event.namespace,
            },
            "involvedObject": {**dict(event.owner), "namespace": event.namespace},
            "reason": event.reason.value,
            "message": event.note[:MAX_NOTE],
            "type": "Normal" if event.reason is EventReason.injected else "Warning",
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": seconds,
            "lastTimestamp": seconds,
            "count": 1,
        }
        await self._api.create(f"/api/v1/namespaces/{event.namespace}/events", value)
