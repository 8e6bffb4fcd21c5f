"""From a request to the one handler of its path, as section 1 of the contract has it for them all:
who is asked for a key, in which order faults are judged, and what an error looks like.

Knows no route and no decision, and waits for nothing: `connection` does the waiting.
"""

import itertools
import logging
import re
from collections.abc import Awaitable, Mapping
from typing import NamedTuple

from aiohttp import HttpVersion10, HttpVersion11, hdrs
from aiohttp.http import RawRequestMessage
from multidict import CIMultiDictProxy, istr

from policies.definitions.model import Key
from policies.ground.errors import (
    Forbidden,
    Malformed,
    MethodNotAllowed,
    NotFound,
    SluiceError,
    Unauthorized,
    Unavailable,
)
from policies.ground.keys import KeysDiffer, key_digest, presented_key
from sidecar.api.route import ApiReply, ApiRequest, ApiRoute
from sidecar.http.body_budget import BodyBudgetExceeded
from sidecar.http.response_head import JSON, Deferred, Outcome, RenderedResponse, ResponseRenderer
from sidecar.identity import LiveKeys
from sidecar.metrics.metrics import Metrics
from sidecar.platform.json_logging import about
from sidecar.policy_cache.cache_file import CacheDamaged
from sidecar.policy_cache.document_fetcher import DocumentFetcher, FetchFailed, MissingDocument
from sidecar.policy_cache.full.full_store import NoPolicySet

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}").fullmatch
_NEEDS_KEY = "/v1/"
_VERSIONS = (HttpVersion11, HttpVersion10)
# Case-folded once: a look-up by a plain string folds it each time.
_KEY_HEADER = istr("X-API-Key")
_ID_HEADER = istr("X-Request-ID")


class ApiHead(NamedTuple):
    """What the head of a request says, whenever it is sent: nothing in here ages."""

    route: ApiRoute | None
    name: str
    fault: SluiceError | None
    """Why its path and method can't be served, for whoever may know."""
    needs_key: bool
    key_digest: bytes | None
    key_fault: SluiceError | None
    """Why it can't be said which key it presents."""
    request_id: str | None
    content_type: str | None
    query: str


class Dispatcher:
    """Answers requests by a table of exact paths."""

    def __init__(
        self,
        routes: Mapping[str, ApiRoute],
        keys: LiveKeys,
        answers: ResponseRenderer,
        metrics: Metrics,
        prefix: str,
        document_fetcher: DocumentFetcher,
    ) -> None:
        self._document_fetcher = document_fetcher
        self._routes = routes
        self._keys = keys
        self._answers = answers
        self._responses = metrics.responses
        self._prefix = prefix
        self._numbers = itertools.count(1)

    def read(self, message: RawRequestMessage) -> ApiHead:
        """What the message's head says. Raises nothing: a fault is told when it is answered."""
        path, _, query = message.path.partition("?")
        route = self._routes.get(path)
        headers = message.headers
        presented, key_fault = _presented(headers)
        given = headers.get(_ID_HEADER)
        return ApiHead(
            route=route,
            name="none" if route is None else route.name,
            fault=_fault(message, route),
            needs_key=path.startswith(_NEEDS_KEY),
            key_digest=key_digest(presented) if presented else None,
            key_fault=key_fault,
            request_id=given if given is not None and _REQUEST_ID(given) else None,
            content_type=headers.get(hdrs.CONTENT_TYPE),
            query=query,
        )

    def refusal(self, head: ApiHead) -> RenderedResponse | None:
        """The answer to a request whose body nobody need read; None where it is to be read."""
        try:
            self._admit(head)
        except MissingDocument:
            return None  # who asks is not known yet: `answer` has it looked up
        except SluiceError as error:
            return self.error(head, error)
        return None

    def answer(self, head: ApiHead, body: bytes) -> Outcome:
        """Answers everything, and raises nothing. Who asks is judged anew each time: a key that
        was good a moment ago may be revoked."""
        try:
            key = self._admit(head)
            assert head.route is not None  # admitted
            reply = head.route.handle(ApiRequest(key, head.content_type, head.query), body)
            if isinstance(reply, ApiReply):
                return self._rendered(head, reply)
            return self._later(head, reply)
        except MissingDocument as lacking:
            return self._looked_up(head, body, lacking.name)
        except SluiceError as error:
            return self.error(head, error)
        except Exception:
            numbered = self._numbered(head)
            log.exception("a request failed", extra=about(numbered.request_id))
            return self._broken(numbered)

    async def _looked_up(
        self, head: ApiHead, body: bytes, name: str
    ) -> RenderedResponse | Deferred:
        """The same, once the document that it takes is here."""
        try:
            await self._document_fetcher.fetch([name])
        except FetchFailed as error:
            return self.error(head, Unavailable(f"the policy set can't be read: {error}"))
        outcome = self.answer(head, body)
        return outcome if isinstance(outcome, RenderedResponse | Deferred) else await outcome

    def settled(self, deferred: Deferred) -> RenderedResponse:
        """The answer that a promise came to."""
        failure = deferred.durable.exception()
        if failure is None:
            return self._made(deferred.head, 200, deferred.body, more=deferred.more)
        if isinstance(failure, SluiceError):
            return self.error(deferred.head, failure)
        numbered = self._numbered(deferred.head)
        log.error("a request failed", exc_info=failure, extra=about(numbered.request_id))
        return self._broken(numbered)

    def error(self, head: ApiHead, error: SluiceError) -> RenderedResponse:
        """The error body, with what every answer carries."""
        more = b""
        if isinstance(error, MethodNotAllowed) and head.route is not None:
            more = f"Allow: {', '.join(head.route.methods)}\r\n".encode()
        if isinstance(error, BodyBudgetExceeded):
            more = b"Retry-After: %d\r\n" % error.retry_after
        return self._made(head, error.status, error.encoded(), more=more)

    def unreadable(self) -> RenderedResponse:
        """The answer to what the parser could not read. It is not said what that was."""
        self._responses.add("none", "400")
        body = Malformed("this is not HTTP/1.1").encoded()
        return self._answers.render(400, body, self._make_id(), close=True)

    def hung_up(self, head: ApiHead) -> None:
        """The client went away before its body was whole: nothing was decided."""
        request_id = self._numbered(head).request_id
        log.info("request %s: the client hung up in the middle of its body", request_id)

    def _admit(self, head: ApiHead) -> Key | None:
        """Who asks, if that is for them to ask. The order is the contract's: a key, that it is
        valid, then the path, the method, the scope."""
        key = self._authenticated(head) if head.needs_key else None
        if head.fault is not None:
            raise head.fault
        assert head.route is not None  # else there were a fault
        scopes = head.route.scopes
        if scopes is not None and (key is None or key.scope not in scopes):
            raise Forbidden("the scope of the API key does not allow this")
        return key

    def _authenticated(self, head: ApiHead) -> Key:
        if head.key_fault is not None:
            raise head.key_fault
        if head.key_digest is None:
            raise Unauthorized
        try:
            key = self._keys.find(head.key_digest)
        except (NoPolicySet, CacheDamaged) as error:
            # Nobody can be told from anybody: that is no reason to call a good key a bad one.
            raise Unavailable(f"no key can be checked: {error}") from error
        if key is None:
            raise Forbidden("the API key is unknown, revoked or expired")
        return key

    async def _later(
        self, head: ApiHead, reply: Awaitable[ApiReply]
    ) -> RenderedResponse | Deferred:
        try:
            return self._rendered(head, await reply)
        except SluiceError as error:
            return self.error(head, error)
        except Exception:
            numbered = self._numbered(head)
            log.exception("a request failed", extra=about(numbered.request_id))
            return self._broken(numbered)

    def _rendered(self, head: ApiHead, reply: ApiReply) -> RenderedResponse | Deferred:
        if reply.durable is not None:
            return Deferred(head, reply.body, reply.durable, reply.more)
        return self._made(head, 200, reply.body, reply.media, reply.more)

    def _made(
        self, head: ApiHead, status: int, body: bytes, media: bytes = JSON, more: bytes = b""
    ) -> RenderedResponse:
        self._responses.add(head.name, str(status))
        request_id = head.request_id or self._make_id()
        # Of a body that did not come in time the rest may still come, and is no request.
        close = status == 408
        return self._answers.render(status, body, request_id, media=media, more=more, close=close)

    def _make_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"

    def _numbered(self, head: ApiHead) -> ApiHead:
        """With a request id, its own or a new one."""
        return head if head.request_id else head._replace(request_id=self._make_id())

    def _broken(self, head: ApiHead) -> RenderedResponse:
        """A fault of ours: the log has it, the caller a number to ask by."""
        return self.error(head, SluiceError(f"internal error in request `{head.request_id}`"))


def _presented(headers: "CIMultiDictProxy[str]") -> tuple[str | None, SluiceError | None]:
    """The key that a request presents, or why that can't be said."""
    try:
        keys = headers.getall(_KEY_HEADER, ())
        return presented_key(keys, headers.getall(hdrs.AUTHORIZATION, ())), None
    except KeysDiffer as error:
        return None, error


def _fault(message: RawRequestMessage, route: ApiRoute | None) -> SluiceError | None:
    if message.version not in _VERSIONS:
        return Malformed("the HTTP version is neither 1.1 nor 1.0")
    if route is None:
        return NotFound("no such path")
    if message.method not in route.methods:
        return MethodNotAllowed(f"the method `{message.method}` is not one of this path's")
    return None
