"""Terminates TLS at the sidecar: a layer between a connection from an agent and a protocol that
knows nothing of TLS.

The same layer serves ports that speak TLS, tunnels that are terminated, and redirected connections.
It uses the standard library's TLS over in-memory buffers, because the TLS of asyncio and of uvloop
lacks two things: it can't start on bytes that were read already, and it can't let an agent that
ended its sending side get its response.

Knows TLS, and when each side may send. Knows nothing of what is said.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, cast

from policies.ground.connection_budget import Slot

log = logging.getLogger(__name__)

_READ = 65536


class TlsLayer(asyncio.Transport, asyncio.Protocol):
    """Terminates TLS on one connection. It is the asyncio protocol of the connection below, and the
    transport of the protocol above, which `factory` creates once the handshake is done. The
    handshake may take `handshake_seconds`. Calls `on_invalid` with the reason if the bytes that
    arrive aren't valid TLS. `slot` is the connection's place in the budget of its port, None inside
    a tunnel."""

    def __init__(
        self,
        context: ssl.SSLContext,
        factory: Callable[[], asyncio.Protocol],
        handshake_seconds: float,
        on_invalid: Callable[[str], None],
        slot: Slot | None = None,
    ) -> None:
        super().__init__()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._factory = factory
        self._handshake_seconds = handshake_seconds
        self._on_invalid = on_invalid
        self._slot = slot
        self._inner: asyncio.Protocol | None = None
        self._paused = self._ended = self._lost = self._closing = False

    # -------------------------------------------------------- what happens on the connection below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports don't inherit from asyncio's.
        self._raw = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        if self._slot is not None and not self._slot.take(self.abort):
            self.abort()
        # Otherwise a client that never finishes its handshake would hold the connection forever.
        self._deadline = self._loop.call_later(self._handshake_seconds, self._raw.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = self._closing = True
        self._deadline.cancel()
        if self._slot is not None:
            self._slot.leave()
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def eof_received(self) -> bool:
        """Cut the connection: an end without TLS's close_notify may be a truncation attack."""
        return False

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if self._inner is not None or self._handshake():
            self._read()

    def _handshake(self) -> bool:
        """Continue the handshake. Returns whether it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            # OpenSSL may have written an alert that tells the agent why.
            self._flush()
            # An alert from the agent means that it refuses, for instance the sidecar's certificate.
            if "ALERT" not in str(error):
                self._on_invalid("what arrived is not valid TLS")
            log.debug("TLS: %s", error)
            self._closing = True
            self._raw.close()
            return False
        self._flush()
        self._deadline.cancel()
        self._inner = self._factory()
        self._inner.connection_made(self)
        return True

    def _read(self) -> None:
        while not (self._paused or self._ended or self._closing):
            try:
                data = self._tls.read(_READ)
            except ssl.SSLWantReadError:
                break
            # close_notify: an orderly end.
            except ssl.SSLZeroReturnError:
                data = b""
            # A record that fails its check was changed on the way. What was read so far must not
            # look complete.
            except ssl.SSLError as error:
                log.debug("TLS: %s", error)
                self._flush()
                self._raw.abort()
                return
            assert self._inner is not None
            if data:
                self._inner.data_received(data)
            else:
                self._ended = True
                if not self._inner.eof_received():
                    self.close()
        self._flush()

    # ---------------------------------------------------------------- what the protocol above does

    def write(self, data: Any) -> None:
        if self._closing:
            return
        view = memoryview(data)
        # OpenSSL writes at most one record of 16 KiB per call.
        while view:
            view = view[self._tls.write(view) :]
        self._flush()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Send close_notify, which says that nothing more will be sent."""
        try:
            self._tls.unwrap()
        except ssl.SSLError as error:
            # OpenSSL wants to wait for the other side's close_notify. There is no need to.
            log.debug("TLS: %s", error)
        self._flush()

    def close(self) -> None:
        if not self._closing:
            self.write_eof()
            self._closing = True
        self._raw.close()

    def abort(self) -> None:
        self._closing = True
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._closing or self._raw.is_closing()

    def _flush(self) -> None:
        data = self._outgoing.read()
        # OpenSSL may still have an alert to send when the connection is gone.
        if data and not self._lost:
            self._raw.write(data)

    def pause_reading(self) -> None:
        if not (self._paused or self.is_closing()):
            self._paused = True
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        if self._paused and not self.is_closing():
            self._paused = False
            self._raw.resume_reading()
            # The loop hands over what is decrypted already, so that the caller isn't re-entered.
            self._loop.call_soon(self._read)

    def is_reading(self) -> bool:
        return not (self._paused or self._closing)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._tls if name == "ssl_object" else self._raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._inner = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._inner is not None
        return self._inner
