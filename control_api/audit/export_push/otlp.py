"""Sends decisions as OTLP logs over HTTP (JSON). A response is the acknowledgement.

https://opentelemetry.io/docs/specs/otlp/#otlphttp

By the specification, 429, 502, 503 and 504 are retried, a partial success is not, and everything
else would be dropped. But a log of decisions must not have gaps because a key has expired. So a
decision is dropped only if the target calls it bad data (400, 413) when it is sent alone, and
accepts others beside it. Any other response is retried until it changes.
"""

import gzip
from asyncio import to_thread
from http import HTTPStatus
from itertools import groupby
from typing import Any

import orjson
from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)

from control_api.audit.export_push.sender import AuditEvent, TargetAway, TargetTls
from control_api.log.formats import otel_log_record, otel_resource
from control_api.security.export_targets import ExportTarget
from policies import __version__

CONNECT_SECONDS = 5.0
MAX_ANSWER = 65_536
LONGEST_WAIT = 300.0
"""The most seconds that a `Retry-After` header may ask for."""
REFUSALS = 16
"""If this many decisions are refused one by one and none is accepted, the fault is taken to be the
target's, not the decisions'."""
_BAD_DATA = {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
_SCOPE = {"name": "sluice", "version": __version__}


class OtlpSender:
    """Sends decisions to one OTLP collector, one request at a time over one connection."""

    def __init__(self, target: ExportTarget) -> None:
        self._target = target
        scheme = "https" if target.tls else "http"
        host = f"[{target.host}]" if ":" in target.host else target.host
        self._url = f"{scheme}://{host}:{target.port}{target.path}"
        self._tls = TargetTls(target) if target.tls else None
        self._session: ClientSession | None = None

    @staticmethod
    def encode(event: AuditEvent, tenant_id: str) -> bytes:
        """Return the sidecar's id as JSON, a line break, and the `LogRecord`. Consecutive records
        of one sidecar are sent under one resource."""
        record = orjson.dumps(otel_log_record(event, tenant_id))
        return orjson.dumps(event["sidecar_id"]) + b"\n" + record

    async def send(self, encoded: list[bytes]) -> int:
        refused = _Refusals()
        rejected = await self._send(encoded, refused)
        if refused.only:
            raise TargetAway(f"it answers {refused.status} to everything")
        return rejected

    async def settle(self) -> None:
        """Do nothing: `send` returns only after the target has answered for everything."""

    async def abandon(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _send(self, encoded: list[bytes], refused: "_Refusals") -> int:
        status, rejected = await self._post(encoded)
        if status not in _BAD_DATA:
            refused.taken = True
            return rejected
        if len(encoded) > 1:
            middle = len(encoded) // 2
            first = await self._send(encoded[:middle], refused)
            return first + await self._send(encoded[middle:], refused)
        refused.add(status)
        return 1

    async def _post(self, encoded: list[bytes]) -> tuple[int, int]:
        """Send a request. Return the response's status, and how many records it rejected as a
        partial success. Raise `TargetAway` unless the response says that the records were accepted
        or are bad data."""
        body = await to_thread(_body, encoded, self._target.gzip)
        headers = {"Content-Type": "application/json", "User-Agent": f"sluice/{__version__}"}
        if self._target.gzip:
            headers["Content-Encoding"] = "gzip"
        try:
            # Read each time: what issues the token in it may have replaced it.
            headers |= await to_thread(self._target.headers)
        except ValueError as error:
            raise TargetAway(str(error)) from error
        tls = True if self._tls is None else await self._tls.context()
        # The operator chose this address, private or not, so it needs no entry in
        # SLUICE_WEBHOOK_ALLOW. No redirect and no proxy from the environment: both lead elsewhere.
        try:
            async with self._open().post(
                self._url, data=body, headers=headers, ssl=tls, allow_redirects=False
            ) as answer:
                raw = await _read(answer)
        except (ClientError, OSError) as error:
            raise TargetAway(_reason(error)) from error
        if answer.status == HTTPStatus.OK:
            return answer.status, min(_rejected(raw), len(encoded))
        if answer.status in _BAD_DATA:
            return answer.status, 0
        raise TargetAway(f"it answered {answer.status}", _retry_after(answer))

    def _open(self) -> ClientSession:
        if self._session is None:
            self._session = ClientSession(
                connector=TCPConnector(limit=1),
                cookie_jar=DummyCookieJar(),
                trust_env=False,
                # The turn has a deadline of its own.
                timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            )
        return self._session


class _Refusals:
    """Counts the decisions of one batch that the target refused as bad data."""

    def __init__(self) -> None:
        self.taken = False
        self.status = 0
        self._count = 0

    @property
    def only(self) -> bool:
        return bool(self._count) and not self.taken

    def add(self, status: int) -> None:
        self.status = status
        self._count += 1
        if self.only and self._count >= REFUSALS:
            raise TargetAway(f"it answers {status} to everything")


def _body(encoded: list[bytes], compress: bool) -> bytes:
    """Return an `ExportLogsServiceRequest` with these records as JSON, compressed with gzip if
    `compress` is set."""
    pairs = (each.split(b"\n", 1) for each in encoded)
    groups = [
        {
            "resource": otel_resource(orjson.loads(sidecar)),
            "scopeLogs": [
                {"scope": _SCOPE, "logRecords": [orjson.Fragment(record) for _, record in records]}
            ],
        }
        for sidecar, records in groupby(pairs, key=lambda pair: pair[0])
    ]
    body = orjson.dumps({"resourceLogs": groups})
    return gzip.compress(body, compresslevel=4, mtime=0) if compress else body


async def _read(answer: ClientResponse) -> bytes:
    raw = b""
    while len(raw) <= MAX_ANSWER and (piece := await answer.content.read(MAX_ANSWER)):
        raw += piece
    return raw


def _rejected(raw: bytes) -> int:
    """Return how many records were rejected, if the response is a partial success."""
    try:
        partial: Any = orjson.loads(raw or b"{}").get("partialSuccess") or {}
        return max(0, int(partial.get("rejectedLogRecords") or 0))
    except (ValueError, TypeError, AttributeError):
        return 0  # the status says that they were taken


def _retry_after(answer: ClientResponse) -> float:
    # As a date it is not taken: the clocks may differ.
    text = answer.headers.get("Retry-After", "")
    return min(float(text), LONGEST_WAIT) if text.isascii() and text.isdigit() else 0.0


def _reason(error: BaseException) -> str:
    """Describe the failure without the URL, whose path may be a secret."""
    number = getattr(error, "os_error", error)
    words = getattr(number, "strerror", None) or type(error).__name__
    return f"it can't be reached: {words}"
