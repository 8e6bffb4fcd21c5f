"""Dispatches a request to the handler of its path, by the rules of section 1 of the contract: which
paths need a key, in which order faults are reported, and what an error looks like.

Knows no particular route and no decision. Never blocks on a reply: `connection` awaits it.
"""

import itertools
import logging
from collections.abc import Awaitable, Mapping

from aiohttp.http import RawRequestMessage

from policies.definitions.model import Key
from policies.ground.errors import (
    Forbidden,
    Malformed,
    MethodNotAllowed,
    SluiceError,
    Unauthorized,
    Unavailable,
)
from policies.sets.policy_set import NoPolicySet
from sidecar.api.request_head import ApiHead, parse_head
from sidecar.api.route import ApiReply, ApiRequest, ApiRoute
from sidecar.http.body_budget import BodyBudgetExceeded
from sidecar.http.response_head import JSON, Deferred, Outcome, RenderedResponse, ResponseRenderer
from sidecar.live_keys import LiveKeys
from sidecar.metrics.metrics import Metrics
from sidecar.platform.json_logging import about
from sidecar.policy_cache.document_fetcher import DocumentFetcher, FetchFailed, MissingDocument
from sidecar.policy_cache.policy_store import CacheDamaged

log = logging.getLogger(__name__)


class Dispatcher:
    """Answers requests by a table of exact paths. The request ids that it makes start with
    `prefix`."""

    def __init__(
        self,
        routes: Mapping[str, ApiRoute],
        keys: LiveKeys,
        renderer: ResponseRenderer,
        metrics: Metrics,
        prefix: str,
        document_fetcher: DocumentFetcher,
    ) -> None:
        self._document_fetcher = document_fetcher
        self._routes = routes
        self._keys = keys
        self._renderer = renderer
        self._responses = metrics.responses
        self._prefix = prefix
        self._numbers = itertools.count(1)

    def parse_head(self, message: RawRequestMessage) -> ApiHead:
        """Parse the message's head. Raises nothing: `answer` reports faults."""
        return parse_head(message, self._routes)

    def refuse_early(self, head: ApiHead) -> RenderedResponse | None:
        """The refusal of a request that its head alone decides; None if its body must be read."""
        try:
            self._admit(head)
        except MissingDocument:
            # So a body may be read for a key that turns out to be invalid; its size is limited.
            return None  # the key's document must be fetched first: `answer` does that
        except SluiceError as error:
            return self.render_error(head, error)
        return None

    def answer(self, head: ApiHead, body: bytes) -> Outcome:
        """Answer any request. Raises nothing."""
        try:
            # Check the key each time, even for a cached head: it may have been revoked since.
            key = self._admit(head)
            assert head.route is not None  # admitted
            request = ApiRequest(key, head.content_type, head.query, head.traceparent)
            reply = head.route.handle(request, body)
            if isinstance(reply, ApiReply):
                return self._render(head, reply)
            return self._render_awaited(head, reply)
        except MissingDocument as missing:
            return self._fetch_and_answer(head, body, missing.name)
        except SluiceError as error:
            return self.render_error(head, error)
        except Exception as error:  # noqa: BLE001  # `_render_failure` logs it
            return self._render_failure(head, error)

    async def _fetch_and_answer(
        self, head: ApiHead, body: bytes, document: str
    ) -> RenderedResponse | Deferred:
        """Fetch the missing document, then answer."""
        try:
            await self._document_fetcher.fetch([document])
        except FetchFailed as error:
            return self.render_error(head, Unavailable(f"the policy set can't be read: {error}"))
        outcome = self.answer(head, body)
        return outcome if isinstance(outcome, RenderedResponse | Deferred) else await outcome

    def complete(self, deferred: Deferred) -> RenderedResponse:
        """The response to send now that `deferred.durable` is done."""
        # If the record did not reach the disk, its decision must not take effect.
        failure = deferred.durable.exception()
        if failure is None:
            return self._respond(deferred.head, 200, deferred.body, lines=deferred.extra_lines)
        if isinstance(failure, SluiceError):
            return self.render_error(deferred.head, failure)
        return self._render_failure(deferred.head, failure)

    def render_error(self, head: ApiHead, error: SluiceError) -> RenderedResponse:
        """The response for `error`."""
        lines = b""
        if isinstance(error, MethodNotAllowed) and head.route is not None:
            lines = f"Allow: {', '.join(head.route.methods)}\r\n".encode()
        if isinstance(error, BodyBudgetExceeded):
            lines = b"Retry-After: %d\r\n" % error.retry_after
        return self._respond(head, error.status, error.encoded(), lines=lines)

    def render_unparsable(self) -> RenderedResponse:
        """The response to bytes that the parser rejected. It doesn't echo them."""
        self._responses.add("none", "400")
        body = Malformed("the request is not valid HTTP/1.1").encoded()
        return self._renderer.render(400, body, self._make_id(), close=True)

    def on_client_closed(self, head: ApiHead) -> None:
        """The client hung up before its body was complete: nothing was decided."""
        # Counts no status: nothing was answered.
        request_id = self._with_id(head).request_id
        log.info("request %s: the client hung up in the middle of its body", request_id)

    def _admit(self, head: ApiHead) -> Key | None:
        """The caller's key, None if the path needs none. Raises a `SluiceError` if the request is
        not allowed."""
        # INVARIANT: key, path, method, scope, in the contract's order. A caller without a valid key
        # learns nothing about the paths.
        key = self._authenticate(head) if head.needs_key else None
        if head.fault is not None:
            raise head.fault
        assert head.route is not None  # without a route, there is a fault
        scopes = head.route.scopes
        if scopes is not None and (key is None or key.scope not in scopes):
            raise Forbidden("the scope of the API key does not allow this")
        return key

    def _authenticate(self, head: ApiHead) -> Key:
        if head.key_fault is not None:
            raise head.key_fault
        # 401 without a key, 403 with one that is not valid (contract, section 1).
        if head.key_digest is None:
            raise Unauthorized
        try:
            key = self._keys.find(head.key_digest)
        except (NoPolicySet, CacheDamaged) as error:
            # Without a policy set no key can be recognised; a valid key must not get 403.
            raise Unavailable(f"the API key can't be checked: {error}") from error
        if key is None:
            raise Forbidden("the API key is unknown, revoked or expired")
        return key

    async def _render_awaited(
        self, head: ApiHead, reply: Awaitable[ApiReply]
    ) -> RenderedResponse | Deferred:
        try:
            return self._render(head, await reply)
        except SluiceError as error:
            return self.render_error(head, error)
        except Exception as error:  # noqa: BLE001  # `_render_failure` logs it
            return self._render_failure(head, error)

    def _render(self, head: ApiHead, reply: ApiReply) -> RenderedResponse | Deferred:
        if reply.durable is not None:
            return Deferred(head, reply.body, reply.durable, reply.extra_lines)
        return self._respond(head, 200, reply.body, reply.media, reply.extra_lines)

    def _respond(
        self, head: ApiHead, status: int, body: bytes, media: bytes = JSON, lines: bytes = b""
    ) -> RenderedResponse:
        self._responses.add(head.name, str(status))
        # The rest of a late body may still arrive, and must not be read as a request.
        close = status == 408
        return self._renderer.render(
            status,
            body,
            head.request_id or self._make_id(),
            media=media,
            extra_lines=lines,
            close=close,
        )

    def _render_failure(self, head: ApiHead, failure: BaseException) -> RenderedResponse:
        """The response for an unexpected exception: the log gets the details, the caller the
        request id under which they are logged."""
        head = self._with_id(head)
        log.error("a request failed", exc_info=failure, extra=about(head.request_id))
        error = SluiceError(f"internal error in request `{head.request_id}`")
        return self.render_error(head, error)

    def _make_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"

    def _with_id(self, head: ApiHead) -> ApiHead:
        """`head` with a request id: the client's, or a new one."""
        return head if head.request_id else head._replace(request_id=self._make_id())
