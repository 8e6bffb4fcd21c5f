"""TLS that ends here: between a connection of the agent's and a protocol that knows nothing of it.

One layer for all of it (a port that speaks TLS, a tunnel that is opened, a redirected connection),
on the standard library's TLS over buffers in memory, because neither event loop's own can begin on
bytes that were read already, or lets an agent that ended its sending side hear its answer.

Knows TLS, and when each side may send. Knows nothing of what is said.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, cast

log = logging.getLogger(__name__)

_READ = 65536


class TlsLayer(asyncio.Protocol):
    """What `made` makes speaks through it once the handshake is done, which may take `seconds`.
    `failed` is called where what arrived is no TLS, with what is wrong."""

    def __init__(
        self,
        context: ssl.SSLContext,
        made: Callable[[], asyncio.Protocol],
        seconds: float,
        failed: Callable[[str], None],
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._made = made
        self._seconds = seconds
        self._failed = failed
        self._inner: asyncio.Protocol | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._paused = self._ended = self._lost = False
        self.closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's by type.
        self.raw = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.call_later(self._seconds, self.raw.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = self.closing = True
        self._settled()
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def eof_received(self) -> bool:
        """An end without a word of TLS is no orderly one: whatever was on its way is cut off."""
        return False

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if self._inner is not None or self._shaken():
            self._read()

    def set_inner(self, inner: asyncio.BaseProtocol) -> None:
        assert isinstance(inner, asyncio.Protocol)
        self._inner = inner

    @property
    def inner(self) -> asyncio.Protocol | None:
        return self._inner

    # ----------------------------------------------------------------------------- what is received

    def _shaken(self) -> bool:
        """Whether hands are shaken, now that more has arrived."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()
            # Where the agent refuses our certificate it is the agent that says no.
            if "ALERT" not in str(error):
                self._failed("what arrived is no TLS that can be read")
            log.debug("TLS: %s", error)
            self.closing = True
            self.raw.close()
            return False
        self._flush()
        self._settled()
        self._inner = self._made()
        self._inner.connection_made(TlsTransport(self))
        return True

    def _read(self) -> None:
        while not (self._paused or self._ended or self.closing):
            try:
                data = self.tls.read(_READ)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                data = b""
            except ssl.SSLError as error:
                log.debug("TLS: %s", error)
                self._flush()
                self.raw.abort()
                return
            assert self._inner is not None
            if data:
                self._inner.data_received(data)
            else:
                self._ended = True
                if not self._inner.eof_received():
                    self.close()
        self._flush()

    def _settled(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # --------------------------------------------------------------------------------- what is sent

    def write(self, data: bytes) -> None:
        if self.closing:
            return
        view = memoryview(data)
        while view:
            view = view[self.tls.write(view) :]
        self._flush()

    def end(self) -> None:
        """Says that nothing more will be sent."""
        try:
            self.tls.unwrap()
        except ssl.SSLError as error:
            # It waits for the other side to say the same; we don't.
            log.debug("TLS: %s", error)
        self._flush()

    def close(self) -> None:
        if not self.closing:
            self.end()
            self.closing = True
        self.raw.close()

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and not self._lost:
            self.raw.write(data)

    # ----------------------------------------------------------------------------------------- flow

    def pause(self) -> None:
        if not (self._paused or self.closing or self.raw.is_closing()):
            self._paused = True
            self.raw.pause_reading()

    def resume(self) -> None:
        if self._paused and not (self.closing or self.raw.is_closing()):
            self._paused = False
            self.raw.resume_reading()
            # What was decrypted already is handed over from the loop, not from within the caller.
            self._loop.call_soon(self._read)

    @property
    def reading(self) -> bool:
        return not (self._paused or self.closing)


class TlsTransport(asyncio.Transport):
    """What the protocol within speaks to."""

    def __init__(self, layer: TlsLayer) -> None:
        super().__init__()
        self._layer = layer

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._layer.tls
        return self._layer.raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._layer.set_inner(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._layer.inner is not None
        return self._layer.inner

    def is_closing(self) -> bool:
        return self._layer.closing or self._layer.raw.is_closing()

    def close(self) -> None:
        self._layer.close()

    def abort(self) -> None:
        self._layer.closing = True
        self._layer.raw.abort()

    def is_reading(self) -> bool:
        return self._layer.reading

    def pause_reading(self) -> None:
        self._layer.pause()

    def resume_reading(self) -> None:
        self._layer.resume()

    def write(self, data: Any) -> None:
        self._layer.write(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._layer.end()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._layer.raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._layer.raw.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._layer.raw.get_write_buffer_limits()
