"""Wraps the serving of every request: assigns its id, reads its body within limits of size and
time, counts it in the metrics, and is the one place where an error becomes a response.

When requests fail because the service lacks something it needs, such as its database, each cause is
logged once a minute, and its end is logged once. A database that restarts would otherwise cost a
line per request.
"""

import asyncio
import itertools
import logging
import re
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus

from aiohttp import web

from control_api.current_request import TRACEPARENT, WRITTEN_REVISION, ClientLeft
from control_api.edge.answers import HttpReply
from control_api.edge.route import MAX_BODY
from control_api.edge.sending import ReplyEncoder, send, to_stream
from control_api.metrics.metrics import Instruments
from policies.ground.clock import Clock
from policies.ground.errors import Malformed, SluiceError, TooLarge, Unavailable
from policies.ground.process.json_logging import REQUEST_ID

# A client that sends a byte now and then must not hold a connection forever.
BODY_SECONDS = 30.0
"""The most seconds that a body may take to arrive."""


PIECE = 256 * 1024
"""The most compressed bytes that one step of the decompression reads, and the most that it
produces. One step takes less than a millisecond."""
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""zlib's `wbits` value for each content coding. `deflate` means the zlib format (RFC 9110, section
8.4.1.2)."""

MAX_LARGE = 6
"""The most requests with large bodies that are served at a time: each holds its body in memory."""
MAX_OF_TENANT = 3
"""The most requests with large bodies of one tenant that are served at a time, so that a tenant
does not hold up the others."""


class LargeBodies:
    """Counts the requests with large bodies that are being served, by tenant, and limits their
    number."""

    def __init__(self) -> None:
        self._of: Counter[object] = Counter()

    @contextmanager
    def counted(self, tenant: object) -> Iterator[None]:
        """Count one request of the tenant while the context lasts. Raise `Unavailable` if too many
        are being served already; the client may retry."""
        if self._of[tenant] >= MAX_OF_TENANT or self._of.total() >= MAX_LARGE:
            raise Unavailable(
                f"{self._of.total()} requests with large bodies are being served already "
                f"(at most {MAX_OF_TENANT} of a tenant): try again later"
            )
        self._of[tenant] += 1
        try:
            yield
        finally:
            self._of[tenant] -= 1
            if not self._of[tenant]:
                del self._of[tenant]


class ClientDisconnected(Malformed):
    """the client disconnected before the body was complete"""


async def read_body(request: web.BaseRequest, most: int = MAX_BODY) -> bytes:
    """Read the request's body, and decompress it if it is compressed.

    Raise `TooLarge` if it has more than `most` bytes, compressed or not, `Malformed` if it is
    incomplete, late or not encoded as its `Content-Encoding` says, and `ClientDisconnected` if the
    client goes away.
    """
    # Refuse before anything is read. A body without `Content-Length` is cut off during the read.
    if (request.content_length or 0) > most:
        raise TooLarge(f"the body is larger than {most} bytes")
    try:
        if request.content.is_eof():
            # The body came with the head, as most do: it needs no timer, and no turn of the loop.
            body = request.content.read_nowait()
        else:
            await _send_continue(request)
            async with asyncio.timeout(BODY_SECONDS):
                body = await _read(request, most)
    except TimeoutError:
        raise Malformed(f"the body did not arrive within {BODY_SECONDS:.0f} s") from None
    except ConnectionError:
        raise ClientDisconnected from None
    except web.RequestPayloadError:
        raise Malformed("the body is cut short") from None
    if len(body) > most:
        raise TooLarge(f"the body is larger than {most} bytes")
    coding = ", ".join(request.headers.getall("Content-Encoding", ())).lower()
    return body if coding in ("", "identity") else await inflated(body, coding, most)


async def inflated(body: bytes, coding: str, most: int) -> bytes:
    """Decompress a body to at most `most` bytes. Other tasks get a turn after each piece.

    Raise `TooLarge` if it would have more bytes, and `Malformed` if it is not exactly one complete
    body of this `coding`.
    """
    window = _WINDOWS.get(coding)
    if window is None:
        raise Malformed(f"the body's encoding is `{coding}`; expected gzip, deflate or none")
    inflater, whole, at = zlib.decompressobj(window), bytearray(), 0
    try:
        while not inflater.eof:
            # A piece at a time, since the inflater copies what it leaves of each.
            given = inflater.unconsumed_tail or body[at : (at := at + PIECE)]
            piece = inflater.decompress(given, min(PIECE, most + 1 - len(whole)))
            whole += piece
            if len(whole) > most:
                raise TooLarge(f"the body is larger than {most} bytes when it is inflated")
            if not piece and not given and not inflater.eof:
                raise Malformed("the compressed body is cut short")
            await asyncio.sleep(0)
    except zlib.error:
        raise Malformed(f"the body is not encoded with {coding}") from None
    if inflater.unused_data or at < len(body):
        raise Malformed("something follows the compressed body")
    return bytes(whole)


async def _read(request: web.BaseRequest, most: int) -> bytes:
    """Read the body, or only its beginning if it has more than `most` bytes. aiohttp's own `read`
    is not used because it has one limit for all routes."""
    body = bytearray()
    while len(body) <= most and (chunk := await request.content.readany()):
        body += chunk
    return bytes(body)


async def _send_continue(request: web.BaseRequest) -> None:
    """Send `100 Continue` to a client that waits for it before sending the body, as its header
    `Expect: 100-continue` says (RFC 9110, section 10.1.1)."""
    transport = request.transport
    expects = request.headers.get("Expect", "").lower() == "100-continue"
    if expects and transport is not None and request.version == (1, 1):
        transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


PAUSE_SECONDS = 60.0
"""The least number of seconds between two log lines about the same cause."""
NO_OPERATION = "none"
"""The operation's name in logs and metrics for a request that failed while its key was checked,
before its route was known."""
_MAX_CAUSES = 64
"""The most causes that are remembered, since some messages name what is unavailable. Beyond that,
all are forgotten."""
_log = logging.getLogger("sluice.http")


class ServerFaults:
    """Logs why requests fail when the service is unavailable: once a minute for each cause, and
    once when it is over. `monotonic` is a clock in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._logged_at: dict[str, float] = {}
        self._failing: dict[str, str] = {}
        """For each operation that failed, the cause that was logged."""

    def failed(self, operation: str, error: Unavailable) -> None:
        """Log the cause of a failed request of this operation, unless that was done within the last
        minute. Once it is logged, the operation counts as failing until `answered` is called."""
        cause, now = error.message, self._monotonic()
        if now - self._logged_at.get(cause, float("-inf")) < PAUSE_SECONDS:
            return
        if len(self._logged_at) >= _MAX_CAUSES:
            self._logged_at.clear()
        self._logged_at[cause] = now
        self._failing[operation] = cause
        _log.error("request failed with %d: %s", error.status, cause)

    def answered(self, operation: str) -> None:
        """Record that a request of this operation succeeded, and log the recovery if it failed
        before."""
        # Only an operation that failed shows that the cause is over: others may not need it.
        if self._failing and self._failing.pop(operation, None) is not None:
            back = (
                "API keys are checked"
                if operation == NO_OPERATION
                else f"`{operation}` is answered"
            )
            _log.warning("recovered: %s again", back)


_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}\Z")


@dataclass(slots=True)
class RequestInfo:
    """The facts known about a request so far. `operation` is the name of its route's operation, or
    `none` until the route is found. `key_checked` is True once its API key was found valid."""

    method: str
    target: str
    operation: str = NO_OPERATION
    key_checked: bool = False


Serve = Callable[[web.BaseRequest, RequestInfo], Awaitable[HttpReply]]
Refused = Callable[[SluiceError, web.BaseRequest], HttpReply]


class RequestShell:
    """Answers the requests of a listener, and adds what all of them need: request id, metrics,
    logging of errors. The generated request ids begin with `run_id`."""

    def __init__(self, instruments: Instruments, clock: Clock, run_id: str) -> None:
        self._instruments = instruments
        # Cache the labelled children, so that a request does not take the parent metric's lock.
        # Operations and statuses are few.
        self._requests = cache(instruments.http.requests.labels)
        self._seconds = cache(instruments.http.seconds.labels)
        self._monotonic = clock.monotonic
        self._faults = ServerFaults(clock.monotonic)
        self.response = ReplyEncoder(clock.now).response
        # A prefix of this run and a counter: unique without a system call per request.
        ids = (f"{run_id}-{number:x}" for number in itertools.count(1))
        self.new_request_id: Callable[[], str] = ids.__next__

    async def answer(
        self, request: web.BaseRequest, serve: Serve, refused: Refused
    ) -> web.StreamResponse:
        """Respond to `request`, whatever happens: with the reply of `serve`, or with the reply that
        `refused` makes of the error that `serve` raised."""
        started = self._monotonic()
        given = request.headers.get("X-Request-ID")
        request_id = given if given and _REQUEST_ID.match(given) else self.new_request_id()
        REQUEST_ID.set(request_id)
        # A connection's requests share one context: forget what the previous one wrote.
        WRITTEN_REVISION.set(None)
        TRACEPARENT.set(request.headers.getall("traceparent", ()))
        info = RequestInfo(request.method, request.raw_path)
        try:
            reply = await serve(request, info)
            self._faults.answered(info.operation)
            if info.key_checked:
                self._faults.answered(NO_OPERATION)
        except (ClientDisconnected, ClientLeft) as error:
            # If this reached aiohttp, it would log a server error with another request id.
            # Writing the response to the closed connection fails quietly.
            _log.info("%s: %s", info.operation, error.message)
            reply = refused(error, request)
        except Unavailable as error:
            self._faults.failed(info.operation, error)
            reply = refused(error, request)
        except SluiceError as error:
            # The caller's own mistakes are not logged: anyone could fill the log with them.
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                _log.error("request failed with %d: %s", error.status, error.message)
            reply = refused(error, request)
        except Exception:  # noqa: BLE001  # the only place where a bug becomes a 500
            _log.exception("request failed: %s", info.operation)
            self._instruments.http.crashes.inc()
            reply = refused(SluiceError(f"internal error, request `{request_id}`"), request)
        self._requests(info.operation, reply.status).inc()
        self._seconds(info.operation).observe(self._monotonic() - started)
        if reply.pieces is not None:
            return await send(request, to_stream(reply, request_id), reply.pieces)
        return self.response(reply, request_id)
