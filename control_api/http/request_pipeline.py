"""The door that every request passes, and where every error becomes an answer.

    request id > API key > route > scope > body > declaration > use case > answer

Authentication and scope are judged before the path's object and before the body is read (contract,
section 1). Knows the table it is given and no operation of it.
"""

import asyncio
import itertools
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Protocol
from urllib.parse import unquote

from aiohttp import web

from control_api.http.call import ApiCall
from control_api.http.reply import HttpReply, of_answer, of_error
from control_api.http.route import Route, Scope
from control_api.http.router import Compiled, Router
from control_api.json_logging import REQUEST_ID
from control_api.metrics.metrics import Instruments, RefusalReason
from control_api.revision_context import HEADER, WRITTEN
from policies.ground.clock import Clock
from policies.ground.errors import Forbidden, Malformed, SluiceError, TooLarge
from policies.ground.keys import KeysDiffer, presented_key

MAX_BODY = 1024 * 1024
BODY_SECONDS = 30.0
"""How long a body may take to arrive: a slow one must not hold a connection for ever."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}\Z")
_log = logging.getLogger("sluice.http")

# On every answer. `Server` shows no version; nothing of ours may be kept by a cache.
_EVERYWHERE = {
    "Server": "sluice",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


# What an error's status says in headers, beside what the error itself says.
_TELLING = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": 'ApiKey realm="sluice", Bearer realm="sluice"'},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
}


class Holder(Protocol):
    """Whoever presented a key."""

    @property
    def scope(self) -> str: ...


class Authenticate(Protocol):
    """Who presents this key? `Unauthorized` for none, `Forbidden` for one that is not valid."""

    async def __call__(self, presented: str | None) -> Holder: ...


class ClientDisconnected(Malformed):
    """the client hung up in the middle of its body"""


@dataclass(slots=True)
class _Visit:
    """One request on its way: what is known of it so far."""

    method: str
    target: str
    operation: str = "none"


class RequestPipeline:
    """Answers requests by the table `routes`; `service` is what the use cases get."""

    def __init__(
        self,
        routes: Iterable[Route],
        service: object,
        authenticate: Authenticate,
        instruments: Instruments,
        clock: Clock,
        run_id: str,
    ) -> None:
        self._router = Router(routes)
        self._service = service
        self._authenticate = authenticate
        self._instruments = instruments
        # The children, found without their parents' locks: operations and statuses are few.
        self._answered = cache(instruments.requests.labels)
        self._took = cache(instruments.request_seconds.labels)
        self._monotonic = clock.monotonic
        # A prefix of this run and a counter: unique without a system call per request.
        made = (f"{run_id}-{number:x}" for number in itertools.count(1))
        self.new_request_id: Callable[[], str] = made.__next__

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to `request`, whatever happens."""
        started = self._monotonic()
        given = request.headers.get("X-Request-ID")
        request_id = given if given and _REQUEST_ID.match(given) else self.new_request_id()
        REQUEST_ID.set(request_id)
        WRITTEN.set(None)
        visit = _Visit(request.method, request.raw_path)
        try:
            reply = await self._serve(request, visit)
        except ClientDisconnected as error:
            # Raised further, it would be a fault of ours to aiohttp: a traceback under another id.
            # Writing the answer fails quietly.
            _log.info("%s: %s", visit.operation, error.message)
            reply = of_error(error)
        except SluiceError as error:
            reply = self._refused(error)
        except Exception:  # noqa: BLE001  # the one place where a fault becomes a 500
            _log.exception("request failed: %s", visit.operation)
            self._instruments.crashes.inc()
            reply = of_error(SluiceError(f"internal error, request `{request_id}`"))
        self._count(visit.operation, reply.status, self._monotonic() - started)
        return rendered(reply, request_id)

    async def _serve(self, request: web.BaseRequest, visit: _Visit) -> HttpReply:
        path, _, query = visit.target.partition("?")
        if not path.startswith("/"):
            # The absolute form (RFC 9112, 3.2.2), as a proxy's client sends it.
            path, query = request.rel_url.raw_path, request.rel_url.raw_query_string
        compiled, found, caller = await self._admit(request, visit, path)
        body = await read_body(request) if compiled.read.carries_body else b""
        content_type = request.headers.get("Content-Type")
        asked = compiled.read(ApiCall(found, query, content_type, body, request.headers))
        answer = await compiled.route.use_case(self._service, caller, asked)
        reply = of_answer(answer, compiled.route.status, visit.target)
        if compiled.route.manages and (revision := WRITTEN.get()) is not None:
            reply.headers[HEADER] = str(revision)
        return reply

    async def _admit(
        self, request: web.BaseRequest, visit: _Visit, path: str
    ) -> tuple[Compiled, dict[str, str], Holder | None]:
        """The route, its path parameters and the caller, once the caller may go in."""
        compiled = self._router.exact(visit.method, path)
        found: dict[str, str] = {}
        guarded = compiled.route.scopes is not None if compiled else _guarded(path)
        caller: Holder | None = None
        if guarded:
            caller = await self._authenticate(self._presented(request))
        if compiled is None:
            compiled, found = self._router.find(visit.method, path)
        visit.operation = compiled.name
        scopes = compiled.route.scopes
        if scopes is not None and (caller is None or caller.scope not in scopes):
            self._instruments.refusals.labels(RefusalReason.scope).inc()
            raise _wrong_scope(caller, scopes)
        return compiled, found, caller

    def _presented(self, request: web.BaseRequest) -> str | None:
        """The key, by either header; `KeysDiffer` where they disagree."""
        headers = request.headers
        try:
            return presented_key(
                headers.getall("X-API-Key", ()), headers.getall("Authorization", ())
            )
        except KeysDiffer:
            self._instruments.refusals.labels(RefusalReason.differ).inc()
            raise

    def _refused(self, error: SluiceError) -> HttpReply:
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _log.error("request failed with %d: %s", error.status, error.message)
        return of_error(error, _TELLING.get(HTTPStatus(error.status), {}))

    def _count(self, operation: str, status: int, seconds: float) -> None:
        self._answered(operation, status).inc()
        self._took(operation).observe(seconds)


def _guarded(path: str) -> bool:
    """Whether the path lies under `/v1/`, known or not, however it is written."""
    return unquote(path.partition("/")[2].partition("/")[0]) == "v1"


def _wrong_scope(caller: Holder | None, scopes: frozenset[Scope]) -> Forbidden:
    held = "none" if caller is None else caller.scope
    return Forbidden(f"the key's scope is `{held}`; this needs {' or '.join(sorted(scopes))}")


async def read_body(request: web.BaseRequest) -> bytes:
    """The body; `TooLarge` over 1 MiB, decompressed, `Malformed` where it breaks off,
    `ClientDisconnected`
    where the client does."""
    if (request.content_length or 0) > MAX_BODY:
        raise TooLarge(f"the body has more than {MAX_BODY} bytes")
    if request.content.is_eof():
        return await _whole_body(request)
    await _invite(request)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _whole_body(request)
    except TimeoutError:
        raise Malformed(f"the body did not arrive within {BODY_SECONDS:.0f} s") from None


async def _whole_body(request: web.BaseRequest) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise TooLarge(f"the body has more than {MAX_BODY} bytes") from None
    except ConnectionError:
        raise ClientDisconnected from None
    except web.RequestPayloadError:
        raise Malformed("the body breaks off, or is not encoded as its header says") from None


async def _invite(request: web.BaseRequest) -> None:
    """A client that asks first (RFC 9110, 10.1.1) is told to go on, now that it may."""
    transport = request.transport
    asks = request.headers.get("Expect", "").lower() == "100-continue"
    if asks and transport is not None and request.version == (1, 1):
        transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def rendered(reply: HttpReply, request_id: str) -> web.Response:
    """The answer on the wire."""
    headers = {
        **_EVERYWHERE,
        "Content-Type": reply.content_type,
        "X-Request-ID": request_id,
        **reply.headers,
    }
    return web.Response(body=reply.body, status=reply.status, headers=headers)
