"""Defines the pipeline that every request to the API passes.

    request id > API key > route > scope > body > parse > operation > response

The key and its scope are checked before the object that the path names is looked up and before the
body is read (`CONTRACT.md`, Errors). The pipeline works from the table of routes and knows no
single operation.
"""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from http import HTTPStatus
from typing import Protocol
from urllib.parse import unquote

from aiohttp import web

from control_api.current_request import REVISION_HEADER, WRITTEN_REVISION
from control_api.edge.answers import HttpReply, render_error, render_result
from control_api.edge.request_shell import LargeBodies, RequestInfo, RequestShell, read_body
from control_api.edge.route import MAX_BODY, ApiCall, Route
from control_api.edge.router import Bundles, CompiledRoute, Router
from control_api.metrics.labels import RefusalReason
from control_api.metrics.metrics import Instruments
from policies.ground.errors import Forbidden, SluiceError
from policies.ground.keys import KeysDiffer, presented_key

_UNCOUNTED = nullcontext()

# Headers that follow from an error's status. The error itself may add others.
# RFC 9110, sections 11.6.1 and 10.2.3.
_STATUS_HEADERS = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": 'ApiKey realm="sluice", Bearer realm="sluice"'},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
}


class KeyHolder(Protocol):
    @property
    def scope(self) -> str: ...


class Authenticate(Protocol):
    """A function that identifies the caller by the presented API key. It raises `Unauthorized` if
    there is no key, and `Forbidden` if the key is invalid."""

    async def __call__(self, presented: str | None) -> KeyHolder: ...


class LogStanding(Protocol):
    """A function that makes the response headers which say how far the caller's log has been
    verified."""

    async def __call__(self, caller: KeyHolder) -> Mapping[str, str]: ...


class RequestPipeline:
    """Serves the routes. `bundles` holds the objects that operations work with, and `standing`
    makes the extra headers of the responses that depend on the log."""

    def __init__(
        self,
        routes: Iterable[Route],
        bundles: Bundles,
        authenticate: Authenticate,
        instruments: Instruments,
        shell: RequestShell,
        standing: LogStanding,
    ) -> None:
        self._standing = standing
        routes = tuple(routes)
        self._router = Router(routes)
        # Once at start: an operation whose bundle is missing ends the start.
        self._bundles = {route.operation: bundles.of(route.operation) for route in routes}
        self._large_bodies = LargeBodies()
        self._authenticate = authenticate
        self._instruments = instruments
        self._shell = shell
        self.response = shell.response
        self.new_request_id = shell.new_request_id

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self._shell.answer(request, self._serve, _refused)

    async def _serve(self, request: web.BaseRequest, info: RequestInfo) -> HttpReply:
        path, _, query = info.target.partition("?")
        if not path.startswith("/"):
            # The absolute form (RFC 9112, section 3.2.2), as clients of a proxy send it.
            path, query = request.rel_url.raw_path, request.rel_url.raw_query_string
        compiled, found, caller = await self._admit(request, info, path)
        most = compiled.route.max_body
        # A large body is in memory until its request is answered, so these are few at a time.
        large = most > MAX_BODY
        with (
            self._large_bodies.counted(getattr(caller, "tenant_id", None)) if large else _UNCOUNTED
        ):
            body = await read_body(request, most) if compiled.parse.has_body else b""
            content_type = request.headers.get("Content-Type")
            parsed = compiled.parse(ApiCall(found, query, content_type, body, request.headers))
            operation = compiled.route.operation
            result = await operation(self._bundles[operation], caller, parsed)
        reply = render_result(result, compiled.route.status, info.target)
        if compiled.route.returns_revision and (revision := WRITTEN_REVISION.get()) is not None:
            reply.headers[REVISION_HEADER] = str(revision)
        if compiled.route.of_log and caller is not None:
            reply.headers.update(await self._standing(caller))
        return reply

    async def _admit(
        self, request: web.BaseRequest, info: RequestInfo, path: str
    ) -> tuple[CompiledRoute, dict[str, str], KeyHolder | None]:
        """Find the route and its path parameters, authenticate the caller, and check that the
        caller's scope allows the route. The caller is None if the route needs no key."""
        # The common case first: one look-up, without decoding the path.
        compiled = self._router.exact(info.method, path)
        found: dict[str, str] = {}
        # INVARIANT: under /v1/ the key is checked before we say whether a path exists.
        guarded = compiled.route.scopes is not None if compiled else _guarded(path)
        caller: KeyHolder | None = None
        if guarded:
            caller = await self._authenticate(self._presented(request))
            info.key_checked = True
        if compiled is None:
            compiled, found = self._router.find(info.method, path)
        info.operation = compiled.name
        scopes = compiled.route.scopes
        if scopes is not None and (caller is None or caller.scope not in scopes):
            self._instruments.http.refusals.labels(RefusalReason.scope).inc()
            held, needed = caller.scope if caller else "none", " or ".join(sorted(scopes))
            raise Forbidden(f"the key's scope is `{held}`; this needs {needed}")
        return compiled, found, caller

    def _presented(self, request: web.BaseRequest) -> str | None:
        """Read the API key from `X-API-Key` or `Authorization`. Raise `KeysDiffer` if both are
        given and disagree."""
        headers = request.headers
        try:
            return presented_key(
                headers.getall("X-API-Key", ()), headers.getall("Authorization", ())
            )
        except KeysDiffer:
            self._instruments.http.refusals.labels(RefusalReason.differ).inc()
            raise


def _refused(error: SluiceError, _request: web.BaseRequest) -> HttpReply:
    return render_error(error, _STATUS_HEADERS.get(HTTPStatus(error.status), {}))


def _guarded(path: str) -> bool:
    """Return whether the path is under `/v1/`, where a key is required even if the path does not
    exist."""
    # Decode it, as the router does: `/%761/…` must not reveal more than `/v1/…`.
    return unquote(path.partition("/")[2].partition("/")[0]) == "v1"
