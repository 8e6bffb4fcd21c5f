"""Dispatches each request to the handler of its path, by the rules of `CONTRACT.md`: which paths
need a key, in which order faults are reported, and what an error looks like.

Knows no particular route and no decision.
"""

import itertools
import logging
from functools import partial

from policies.definitions.model import Key
from policies.ground.errors import (
    Forbidden,
    Malformed,
    MethodNotAllowed,
    SluiceError,
    Unauthorized,
    Unavailable,
)
from policies.ground.process.json_logging import about
from policies.sets.policy_set import NoPolicySet
from sidecar.api.request_head import ApiHead, parse_head, trusted_framing
from sidecar.api.route import (
    ApiPort,
    ApiReply,
    ApiRequest,
    StartAgain,
    describe_error,
)
from sidecar.http import request_body
from sidecar.http.port_names import ForeignRequest, PortNames
from sidecar.http.rendered_response import RenderedResponse, ResponseRenderer
from sidecar.http.request_body import BodyBudget, Lease, read_whole, take_whole
from sidecar.http.server.request import Answer, Deferred, HttpRequest
from sidecar.live_keys import LiveKeys, RefusedKeys, WrongScope
from sidecar.metrics.metrics import Metrics
from sidecar.platform import eager
from sidecar.platform.eager import Departed
from sidecar.policy_cache.policy_store import CacheDamaged
from sidecar.policy_cache.policy_view import DocumentFetcher, FetchFailed, MissingDocument

log = logging.getLogger(__name__)

_MAX_RESTARTS = 8
"""The number of times that a handler may ask to be called again (`StartAgain`) for one request."""


class Dispatcher:
    """Answers requests to `port` with the handlers in its table of exact paths. New request ids
    start with `prefix`."""

    def __init__(
        self,
        port: ApiPort,
        keys: LiveKeys,
        renderer: ResponseRenderer,
        metrics: Metrics,
        prefix: str,
        document_fetcher: DocumentFetcher,
        bodies: BodyBudget,
    ) -> None:
        self._bodies = bodies
        self._document_fetcher = document_fetcher
        self._routes, self._names = port
        self._keys = keys
        self._renderer = renderer
        self._responses = metrics.responses
        self._foreign = metrics.foreign_requests
        self._refused_keys = RefusedKeys(metrics.refused_keys, "operation", keys.monotonic)
        self._prefix = prefix
        self._numbers = itertools.count(1)

    async def serve(self, request: HttpRequest) -> Answer:
        """Answer any request, within the memory budget for bodies."""
        if request.fault or not (request.known or trusted_framing(request)):
            return self._render_unread(Malformed("the request is not valid HTTP/1.1"))
        if request.offers_upgrade:
            # RFC 9931: bytes after a CONNECT or an Upgrade may be an optimistic client's tunnelled
            # data, not a request. Neither is ever granted here.
            request.stop_reading()
        head: ApiHead = request.head if request.known else self._read_head(request)
        try:
            with self._bodies.lease() as lease:
                reply = await self._reply(request, head, lease)
        except SluiceError as error:
            return self._render_error(head, error)
        except ConnectionError:
            # Nothing was decided, and nothing is answered: no status is counted.
            request_id = self._with_id(head).request_id
            log.info("request %s: the client hung up in the middle of its body", request_id)
            raise
        except Departed as error:
            log.info("request %s: %s before it was answered", self._with_id(head).request_id, error)
            raise ConnectionResetError(str(error)) from error
        except Exception as error:  # noqa: BLE001  # `_render_failure` logs it
            return self._render_failure(head, error)
        complete = partial(self._complete, head, reply)
        return complete(None) if reply.durable is None else Deferred(reply.durable, complete)

    def _read_head(self, request: HttpRequest) -> ApiHead:
        head = parse_head(request, self._routes)
        if self._names is not None:
            foreign = self._find_foreign(request, self._names, keyless=not head.needs_key)
            head = head._replace(foreign=foreign)
        # Only decisions are frequent enough for their heads to be worth remembering. A request id
        # or a trace makes each head different, and a query could hold a credential.
        frequent = request.method == "POST" and not head.query and head.request_id is None
        # A remembered fault would gain a traceback each time it is raised, and with it keep the
        # requests in memory.
        faults = (head.fault, head.key_fault, head.foreign)
        refused = any(each is not None for each in faults)
        if frequent and not refused and not head.traceparent:
            request.remember(head)
        return head

    def _find_foreign(
        self, request: HttpRequest, names: PortNames, *, keyless: bool
    ) -> SluiceError | None:
        """Return the error for a request that is meant for another host or comes from a web page;
        None if it is meant for this port. `keyless` means that its path needs no key."""
        try:
            names.check_host(request.fields, request.local_host)
            if keyless:
                names.check_origin(request.fields)
        except ForeignRequest as error:
            self._foreign.add(error.cause)
            log.info("a request to the sidecar's own port was refused: %s", error.message)
            return error
        except Malformed as error:
            return error
        return None

    def failed(self, _request: HttpRequest) -> RenderedResponse:
        """Return the response to a request for which `serve` itself has failed."""
        return self._render_unread(SluiceError())

    async def _reply(self, request: HttpRequest, head: ApiHead, lease: Lease) -> ApiReply:
        body: bytes | None = None
        restarts = 0
        while True:
            try:
                # Refuse by the head alone where possible: the body of a caller without a valid key
                # is never read. Again after each wait: the key may have been revoked meanwhile.
                key = self._admit(head)
                if body is None:
                    body = take_whole(request.body, head.length, request_body.MAX_BODY, lease)
                if body is not None:
                    assert head.route is not None  # admitted
                    asked = ApiRequest(
                        key,
                        head.content_type,
                        head.query,
                        head.traceparent,
                        request.client_left,
                        request.watch_client,
                    )
                    return await head.route.handle(asked, body)
            except MissingDocument as missing:
                absent = missing
            except StartAgain as interrupted:
                restarts += 1
                if restarts > _MAX_RESTARTS:
                    raise Unavailable(
                        "the policy set changes faster than the request can be answered"
                    ) from interrupted
                continue
            else:
                if head.waits_for_continue:
                    # RFC 9110, section 10.1.1: the client waits for this before it sends the body.
                    request.send_continue()
                body = await read_whole(
                    request.body,
                    head.length,
                    request_body.MAX_BODY,
                    request_body.BODY_SECONDS,
                    lease,
                )
                continue
            await fetch_missing(self._document_fetcher, absent)

    def _complete(
        self, head: ApiHead, reply: ApiReply, failure: BaseException | None
    ) -> RenderedResponse:
        """Render the response once the decision's record is on disk, if there is a record.
        `failure` means that it did not get there: then the decision must not take effect."""
        if failure is None:
            return self._respond(head, reply)
        if isinstance(failure, SluiceError):
            return self._render_error(head, failure)
        return self._render_failure(head, failure)

    def _render_error(self, head: ApiHead, error: SluiceError) -> RenderedResponse:
        describe = describe_error if head.route is None else head.route.describe_error
        status, body, lines = describe(error)
        if isinstance(error, MethodNotAllowed) and head.route is not None:
            lines += f"Allow: {', '.join(head.route.methods)}\r\n".encode()
        return self._respond(head, ApiReply(body, extra_lines=lines, status=status))

    def _render_unread(self, error: SluiceError) -> RenderedResponse:
        """Render the response to a request whose head could not be read. The response repeats
        nothing from the request."""
        self._responses.add("none", str(error.status))
        return self._renderer.render(error.status, error.encoded(), self._make_id(), close=True)

    def _admit(self, head: ApiHead) -> Key | None:
        """Return the caller's key; None if the path needs no key. Raises a `SluiceError` if the
        request is not allowed."""
        # INVARIANT: key, path, method, scope, in the order of `CONTRACT.md`, Errors. A caller
        # without a valid key learns nothing about the paths, and a page of another site nothing at
        # all.
        if head.foreign is not None:
            raise head.foreign
        key = self._authenticate(head) if head.needs_key else None
        if head.fault is not None:
            raise head.fault
        assert head.route is not None  # without a route, there is a fault
        scopes = head.route.scopes
        if scopes is not None and (key is None or key.scope not in scopes):
            raise self._refused(head, WrongScope())
        if key is not None:
            self._refused_keys.taken(head.name)
        return key

    def _authenticate(self, head: ApiHead) -> Key:
        if head.key_fault is not None:
            raise head.key_fault
        try:
            return self._keys.of_caller(head.key_digest)
        except (NoPolicySet, CacheDamaged) as error:
            # Without a policy set no key can be recognised; a valid key must not get 403.
            raise Unavailable(f"the API key can't be checked: {error}") from error
        except (Unauthorized, Forbidden) as error:
            raise self._refused(head, error) from None

    def _refused(self, head: ApiHead, error: SluiceError) -> SluiceError:
        self._refused_keys.refused(head.name, head.name, error)
        return error

    def _respond(self, head: ApiHead, reply: ApiReply) -> RenderedResponse:
        status = reply.status
        self._responses.add(head.name, str(status))
        # The rest of a late body may still arrive, and must not be read as a request.
        close = status == 408
        return self._renderer.render(
            status,
            reply.body,
            head.request_id or self._make_id(),
            (reply.media, reply.cache),
            reply.extra_lines,
            close=close,
        )

    def _render_failure(self, head: ApiHead, failure: BaseException) -> RenderedResponse:
        """Render the response for an unexpected exception. The log gets the details; the caller
        gets the request id under which the log has them."""
        head = self._with_id(head)
        log.error("a request failed", exc_info=failure, extra=about(head.request_id))
        error = SluiceError(f"internal error in request `{head.request_id}`")
        return self._render_error(head, error)

    def _make_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"

    def _with_id(self, head: ApiHead) -> ApiHead:
        """Return `head` with a request id: the client's own, or a new one if it sent none."""
        return head if head.request_id else head._replace(request_id=self._make_id())


async def fetch_missing(fetcher: DocumentFetcher, missing: MissingDocument) -> None:
    """Fetch the document of the policy set that is needed to judge a caller's key. Raises
    `Unavailable`."""
    await eager.within_task()
    try:
        await fetcher.fetch([missing.name])
    except FetchFailed as error:
        raise Unavailable(f"the policy set can't be read: {error}") from error
