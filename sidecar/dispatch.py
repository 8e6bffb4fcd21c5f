"""From a request to the one handler of its path, as section 1 of the contract has it for them all:
who is asked for a key, in which order faults are judged, and what an error looks like.

Knows no route and no decision.
"""

import asyncio
import itertools
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import orjson
from aiohttp import ClientError, HttpVersion10, HttpVersion11, hdrs
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError
from multidict import istr

from policies.ground.errors import (
    Forbidden,
    Malformed,
    MethodNotAllowed,
    NotFound,
    SluiceError,
    TooLarge,
    Unauthorized,
    Unavailable,
    error_body,
)
from policies.ground.keys import key_digest
from policies.model import Key
from sidecar.answers import JSON, Answers
from sidecar.identity import Keys
from sidecar.metrics import Metrics
from sidecar.policy_cache.cache_file import CacheDamaged
from sidecar.policy_cache.documents import NoPolicySet
from sidecar.server import Answer, Request

log = logging.getLogger(__name__)

MAX_BODY = 1024 * 1024
BODY_SECONDS = 10.0

_TOO_LARGE = f"the body is larger than {MAX_BODY} bytes"

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}").fullmatch
_NEEDS_KEY = "/v1/"
_VERSIONS = (HttpVersion11, HttpVersion10)
# Case-folded once: a look-up by a plain string folds it each time.
_KEY_HEADER = istr("X-API-Key")
_ID_HEADER = istr("X-Request-ID")


class Reply(NamedTuple):
    """What a handler answers."""

    body: bytes
    status: int = 200
    media: bytes = JSON


class Call(NamedTuple):
    """What a handler is given. `key` is None on paths that need none."""

    request: Request
    key: Key | None
    id: str


class Route(NamedTuple):
    """One path. `name` is its label in metrics; `scopes` are those of keys that may call it, None
    where none is asked for."""

    name: str
    methods: tuple[str, ...]
    scopes: tuple[str, ...] | None
    handle: Callable[[Call], Awaitable[Reply]]


class BodyTooSlow(SluiceError):
    """the body did not arrive in time"""

    status = 408


class Dispatcher:
    """Answers requests by a table of exact paths."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        keys: Keys,
        answers: Answers,
        metrics: Metrics,
        prefix: str,
    ) -> None:
        self._routes = routes
        self._keys = keys
        self._answers = answers
        self._responses = metrics.responses
        self._prefix = prefix
        self._numbers = itertools.count(1)

    async def handle(self, request: Request) -> Answer:
        """Answers everything; raises nothing but cancellation."""
        given = request.headers.get(_ID_HEADER)
        request_id = given if given is not None and _REQUEST_ID(given) else self._make_id()
        path = request.message.path.partition("?")[0]
        route = self._routes.get(path)
        name = "other" if route is None else route.name
        try:
            if request.message.version not in _VERSIONS:
                raise Malformed("the HTTP version is neither 1.1 nor 1.0")
            key = self._authenticate(request) if path.startswith(_NEEDS_KEY) else None
            reply = await self._routed(route, Call(request, key, request_id))
        except SluiceError as error:
            allow = route.methods if isinstance(error, MethodNotAllowed) and route else ()
            return self._fault(name, request_id, error.status, error.encoded(), allow)
        except Exception:
            log.exception("request %s failed", request_id)
            body = error_body(500, f"internal error in request `{request_id}`")
            return self._fault(name, request_id, 500, orjson.dumps(body), ())
        self._responses[name, str(reply.status)]()
        return self._answers.make(reply.status, reply.body, request_id, media=reply.media)

    def refuse(self) -> Answer:
        """The answer to what the parser could not read. It is not said what that was."""
        self._responses["other", "400"]()
        body = Malformed("this is not HTTP/1.1").encoded()
        return self._answers.make(400, body, self._make_id(), close=True)

    async def _routed(self, route: Route | None, call: Call) -> Reply:
        if route is None:
            raise NotFound("no such path")
        method = call.request.message.method
        if method not in route.methods:
            raise MethodNotAllowed(f"the method `{method}` is not one of this path's")
        scopes = route.scopes
        if scopes is not None and (call.key is None or call.key.scope not in scopes):
            raise Forbidden("the scope of the API key does not allow this")
        return await route.handle(call)

    def _authenticate(self, request: Request) -> Key:
        presented = request.headers.get(_KEY_HEADER)
        if not presented:
            raise Unauthorized
        try:
            key = self._keys.find(key_digest(presented))
        except (NoPolicySet, CacheDamaged) as error:
            # Nobody can be told from anybody: that is no reason to call a good key a bad one.
            raise Unavailable(f"no key can be checked: {error}") from error
        if key is None:
            raise Forbidden("the API key is unknown, revoked or expired")
        return key

    def _fault(
        self, name: str, request_id: str, status: int, body: bytes, allow: tuple[str, ...]
    ) -> Answer:
        self._responses[name, str(status)]()
        more = f"Allow: {', '.join(allow)}\r\n".encode() if allow else b""
        # Of a body that did not come in time, the rest may still come, and is no request.
        return self._answers.make(status, body, request_id, more=more, close=status == 408)

    def _make_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"


async def read_body(request: Request) -> bytes:
    """The body: `TooLarge`, `Malformed` where its framing breaks, `BodyTooSlow`."""
    arriving = request.body
    if arriving.is_eof():  # it came with the head, as nearly all do
        whole = arriving.read_nowait()
        if len(whole) > MAX_BODY:
            raise TooLarge(_TOO_LARGE)
        return whole
    if int(request.headers.get(hdrs.CONTENT_LENGTH, 0)) > MAX_BODY:
        raise TooLarge(_TOO_LARGE)
    if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
        request.welcome_body()
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while chunk := await arriving.readany():
                body += chunk
                if len(body) > MAX_BODY:
                    raise TooLarge(_TOO_LARGE)
    except TimeoutError:
        raise BodyTooSlow(f"the body did not arrive within {BODY_SECONDS:g} s") from None
    except (RequestPayloadError, HttpProcessingError, ClientError, ConnectionError) as error:
        raise Malformed("the body ended early, or its framing is broken") from error
    return bytes(body)
