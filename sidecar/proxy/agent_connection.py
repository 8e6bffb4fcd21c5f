"""One connection of the agent's, and the requests that come on it.

Stands on the sidecar's own connection (`sidecar.server`), and adds what a proxy must do. A request
that can't be parsed reaches the same handler as any other, so that it is recorded. A half-closed
agent still gets its answer. An agent that goes away takes its request with it: what is upstream is
broken off. What follows a refused CONNECT or Upgrade is never read. Requests run in the
connection's own task, one after the other.

Knows connections and messages. Knows nothing of what is asked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import StreamReader
from aiohttp.web_server import Server

from policies.ground.errors import SluiceError
from sidecar.proxy.inbound import Inbound
from sidecar.proxy.limits import Limits
from sidecar.proxy.reply import Reply, Sent
from sidecar.server import Connection

log = logging.getLogger(__name__)

Handler = Callable[[Inbound], Awaitable[Reply | Sent]]


class AgentConnection(Connection):
    """One connection of the agent's, each of its requests answered by `handler`."""

    __slots__ = ("_answering", "_grace", "_half_closed", "_handler", "_limits")

    def __init__(self, manager: Server, handler: Handler, limits: Limits) -> None:
        super().__init__(
            manager,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # which aiohttp takes for "none"
            auto_decompress=False,
            keepalive_timeout=limits.idle_seconds,
            max_line_size=limits.line_bytes,
            max_field_size=limits.field_bytes,
            max_headers=limits.fields,
            read_bufsize=limits.buffer_bytes,
        )
        self._handler = handler
        self._limits = limits
        self._half_closed = False
        self._grace: asyncio.TimerHandle | None = None
        self._answering = False

    @property
    def ending(self) -> bool:
        """Whether the agent sends nothing more, and nothing more of it waits."""
        return self._half_closed and not self._messages

    def answering(self) -> None:
        """From now on a write tells whether the agent is there."""
        self._answering = True
        self._stop_waiting()

    def stop_reading(self) -> None:
        self._upgraded = False
        self._message_tail = b""
        self.close()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes an answer
        """An agent that has sent its request may close its sending side and wait for the answer.
        One that went away looks the same until something is written to it, so it is not waited for
        without end."""
        bodies = self._bodies()
        if not bodies or not all(body.is_eof() for body in bodies):
            return False
        self._half_closed = True
        if not self._answering:
            seconds = self._limits.half_close_seconds
            self._grace = self._loop.call_later(seconds, self._give_up)
        return True

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    async def _answered(self, message: object, body: StreamReader) -> bool:
        """Whether the connection may carry another request."""
        request = Inbound(message, body, self)
        self._request_in_progress = True
        self._current_request = request  # type: ignore[assignment]  # its `_cancel` is used
        try:
            answer = await self._handled(request)
            if isinstance(answer, Reply):
                keep = request.keep_alive and not answer.close
                empty = request.method == "HEAD"
                request.begin(answer.encode(keep_alive=keep, empty=empty, old=request.old))
            else:
                keep = answer.keep_alive
            drained = await self._drained(body, self._limits.lingering_seconds)
            return drained and keep and not (self._close or self.ending)
        except ConnectionError:
            return False
        finally:
            self._answering = False
            self._current_request = None
            self._request_in_progress = False
            if self._handler_waiter is not None and not self._handler_waiter.done():
                self._handler_waiter.set_result(None)

    async def _handled(self, request: Inbound) -> Reply | Sent:
        try:
            return await self._handler(request)
        except Exception:
            # A fault of ours: logged here, and nothing of it told to the agent.
            log.exception("a proxied request failed")
            if request.begun:
                return Sent(keep_alive=False)
            error = SluiceError("the proxy failed; see the sidecar's log")
            return Reply.of_error(error, close=True)

    def _stop_waiting(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def _give_up(self) -> None:
        self._grace = None
        if self.transport is not None:
            self.transport.abort()
