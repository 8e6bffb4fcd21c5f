"""An agent's connection without a socket: the test cuts the segments, and collects every byte of
the response in order. The data source and the rest of the proxy are real."""

import asyncio
from collections.abc import Sequence
from typing import Any

from sidecar.proxy.downstream import ProxyListener


class InMemory(asyncio.Transport):
    """What a connection of the proxy's speaks to."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.lost = asyncio.Event()
        self._closing = False
        self._protocol: Any = None
        self._loop = asyncio.get_running_loop()

    async def talk(self, port: ProxyListener, segments: Sequence[bytes], turns: int) -> bytes:
        """Sends `segments`, so many turns of the loop apart, and the end of the sending side; what
        came back until the connection ended."""
        assert port.server is not None
        self._protocol = protocol = port.server()
        protocol.connection_made(self)
        for segment in segments:
            if self._closing:
                break
            protocol.data_received(segment)
            for _ in range(turns):
                await asyncio.sleep(0)
        if not self._closing and not protocol.eof_received():
            self.close()
        async with asyncio.timeout(20):
            await self.lost.wait()
        return bytes(self.written)

    # ------------------------------------------------------------------------------- the transport

    def write(self, data: Any) -> None:
        if not self._closing:
            self.written += data

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._ended)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default

    def _ended(self) -> None:
        self._protocol.connection_lost(None)
        self.lost.set()
