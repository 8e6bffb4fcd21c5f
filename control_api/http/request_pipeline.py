"""The pipeline that every request passes, and the one place where an error becomes a response.

    request id > API key > route > scope > body > parse > use case > response

The key and its scope are checked before the path's object is looked up and before the body is read
(contract, section 1). Knows the table of routes, and no operation in it.
"""

import itertools
import logging
import re
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Protocol
from urllib.parse import unquote

from aiohttp import web

from control_api.http.call import ApiCall
from control_api.http.reply import HttpReply, render_error, render_result
from control_api.http.reply_encoder import ReplyEncoder, to_stream
from control_api.http.request_body import ClientDisconnected, LargeBodies, read_body
from control_api.http.route import MAX_BODY, Route, Scope
from control_api.http.router import CompiledRoute, Router
from control_api.http.stream.sending import send
from control_api.json_logging import REQUEST_ID
from control_api.metrics.labels import RefusalReason
from control_api.metrics.metrics import Instruments
from control_api.revision_context import HEADER, WRITTEN
from control_api.trace_headers import TRACEPARENT
from policies.ground.clock import Clock
from policies.ground.errors import Forbidden, SluiceError
from policies.ground.keys import KeysDiffer, presented_key

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}\Z")
_log = logging.getLogger("sluice.http")
_UNCOUNTED = nullcontext()

# Headers that follow from an error's status. The error itself may add others.
# RFC 9110, sections 11.6.1 and 10.2.3.
_STATUS_HEADERS = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": 'ApiKey realm="sluice", Bearer realm="sluice"'},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
}


class KeyHolder(Protocol):
    """The caller that presented a key."""

    @property
    def scope(self) -> str: ...


class Authenticate(Protocol):
    """Identifies the caller. Raises `Unauthorized` without a key, `Forbidden` if it is invalid."""

    async def __call__(self, presented: str | None) -> KeyHolder: ...


@dataclass(slots=True)
class _RequestInfo:
    """What is known about a request so far; `operation` is `none` until a route is found."""

    method: str
    target: str
    operation: str = "none"


class RequestPipeline:
    """Serves the routes. `app` is passed to the use cases."""

    def __init__(
        self,
        routes: Iterable[Route],
        app: object,
        authenticate: Authenticate,
        instruments: Instruments,
        clock: Clock,
        run_id: str,
    ) -> None:
        self._router = Router(routes)
        self._app = app
        self._large_bodies = LargeBodies()
        self._authenticate = authenticate
        self._instruments = instruments
        # Cache the labelled children, so that a request does not take the parent metric's lock.
        # Operations and statuses are few.
        self._requests = cache(instruments.http.requests.labels)
        self._seconds = cache(instruments.http.seconds.labels)
        self._monotonic = clock.monotonic
        self.response = ReplyEncoder(clock.now).response
        # A prefix of this run and a counter: unique without a system call per request.
        ids = (f"{run_id}-{number:x}" for number in itertools.count(1))
        self.new_request_id: Callable[[], str] = ids.__next__

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The response to `request`, whatever happens."""
        started = self._monotonic()
        given = request.headers.get("X-Request-ID")
        request_id = given if given and _REQUEST_ID.match(given) else self.new_request_id()
        REQUEST_ID.set(request_id)
        # A connection's requests share one context: forget what the previous one wrote.
        WRITTEN.set(None)
        TRACEPARENT.set(request.headers.getall("traceparent", ()))
        info = _RequestInfo(request.method, request.raw_path)
        try:
            reply = await self._serve(request, info)
        except ClientDisconnected as error:
            # If this reached aiohttp, it would log a server error with another request id.
            # Writing the response to the closed connection fails quietly.
            _log.info("%s: %s", info.operation, error.message)
            reply = render_error(error)
        except SluiceError as error:
            reply = self._refused(error)
        except Exception:  # noqa: BLE001  # the only place where a bug becomes a 500
            _log.exception("request failed: %s", info.operation)
            self._instruments.http.crashes.inc()
            reply = render_error(SluiceError(f"internal error, request `{request_id}`"))
        self._requests(info.operation, reply.status).inc()
        self._seconds(info.operation).observe(self._monotonic() - started)
        if reply.pieces is not None:
            return await send(request, to_stream(reply, request_id), reply.pieces)
        return self.response(reply, request_id)

    async def _serve(self, request: web.BaseRequest, info: _RequestInfo) -> HttpReply:
        path, _, query = info.target.partition("?")
        if not path.startswith("/"):
            # The absolute form (RFC 9112, section 3.2.2), as clients of a proxy send it.
            path, query = request.rel_url.raw_path, request.rel_url.raw_query_string
        compiled, found, caller = await self._admit(request, info, path)
        most = compiled.route.max_body
        # A large body is in memory until its request is answered, so these are few at a time.
        large = most > MAX_BODY
        with self._large_bodies.one(getattr(caller, "tenant_id", None)) if large else _UNCOUNTED:
            body = await read_body(request, most) if compiled.parse.has_body else b""
            content_type = request.headers.get("Content-Type")
            parsed = compiled.parse(ApiCall(found, query, content_type, body, request.headers))
            result = await compiled.route.use_case(self._app, caller, parsed)
        reply = render_result(result, compiled.route.status, info.target)
        if compiled.route.returns_revision and (revision := WRITTEN.get()) is not None:
            reply.headers[HEADER] = str(revision)
        return reply

    async def _admit(
        self, request: web.BaseRequest, info: _RequestInfo, path: str
    ) -> tuple[CompiledRoute, dict[str, str], KeyHolder | None]:
        """The route, its path parameters and the caller, if the caller may use the route."""
        # The common case first: one look-up, without decoding the path.
        compiled = self._router.exact(info.method, path)
        found: dict[str, str] = {}
        # INVARIANT: under /v1/ the key is checked before we say whether a path exists.
        guarded = compiled.route.scopes is not None if compiled else _guarded(path)
        caller: KeyHolder | None = None
        if guarded:
            caller = await self._authenticate(self._presented(request))
        if compiled is None:
            compiled, found = self._router.find(info.method, path)
        info.operation = compiled.name
        scopes = compiled.route.scopes
        if scopes is not None and (caller is None or caller.scope not in scopes):
            self._instruments.http.refusals.labels(RefusalReason.scope).inc()
            raise _wrong_scope(caller, scopes)
        return compiled, found, caller

    def _presented(self, request: web.BaseRequest) -> str | None:
        """The key from either header. Raises `KeysDiffer` if both are given and disagree."""
        headers = request.headers
        try:
            return presented_key(
                headers.getall("X-API-Key", ()), headers.getall("Authorization", ())
            )
        except KeysDiffer:
            self._instruments.http.refusals.labels(RefusalReason.differ).inc()
            raise

    def _refused(self, error: SluiceError) -> HttpReply:
        # The caller's own mistakes are not logged: anyone could fill the log with them.
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _log.error("request failed with %d: %s", error.status, error.message)
        return render_error(error, _STATUS_HEADERS.get(HTTPStatus(error.status), {}))


def _guarded(path: str) -> bool:
    """Whether the path is under `/v1/`, whether or not it exists."""
    # Decode it, as the router does: `/%761/…` must not reveal more than `/v1/…`.
    return unquote(path.partition("/")[2].partition("/")[0]) == "v1"


def _wrong_scope(caller: KeyHolder | None, scopes: frozenset[Scope]) -> Forbidden:
    held = "none" if caller is None else caller.scope
    return Forbidden(f"the key's scope is `{held}`; this needs {' or '.join(sorted(scopes))}")
