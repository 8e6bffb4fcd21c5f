"""What counts as the end of a syslog connection, and what does not."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from control_api.audit.export_push.syslog import EndedEarly, Stream, open_stream
from tests.support.certificates import authority

Receive = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
DATA = b"x" * 100_000


@asynccontextmanager
async def receiving(receive: Receive, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    server = await asyncio.start_server(receive, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def written_to_the_end(stream: Stream, data: bytes) -> None:
    await stream.write(data)
    await stream.end()


async def all_of_it(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    assert await reader.read(-1) == DATA
    writer.close()


async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(1000)
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def until_it_came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Closes early: after the data, before the sender has closed."""
    await reader.readexactly(len(DATA))
    writer.close()


@pytest.fixture(params=[False, True], ids=["tcp", "tls"])
def tls(request: pytest.FixtureRequest) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    if not request.param:
        return None, None
    return authority().server("127.0.0.1"), authority().client()


Pair = tuple[ssl.SSLContext | None, ssl.SSLContext | None]


async def test_a_receiver_that_reads_all_and_closes_has_acknowledged(tls: Pair) -> None:
    async with receiving(all_of_it, tls[0]) as port:
        stream = await open_stream("127.0.0.1", port, tls[1])
        await stream.write(DATA)
        await stream.end()
        stream.close()


async def test_a_receiver_that_leaves_something_unread_has_not(tls: Pair) -> None:
    async with receiving(half, tls[0]) as port:
        stream = await open_stream("127.0.0.1", port, tls[1])
        with pytest.raises(OSError, match=r"reset|closed|Broken pipe"):
            await written_to_the_end(stream, DATA)
        stream.close()


async def test_a_receiver_that_closes_first_has_not(tls: Pair) -> None:
    async with receiving(until_it_came, tls[0]) as port:
        stream = await open_stream("127.0.0.1", port, tls[1])
        await stream.write(DATA)
        await asyncio.sleep(0.3)  # it closes meanwhile
        with pytest.raises(EndedEarly):
            await stream.end()
        stream.close()


async def test_a_receiver_that_never_closes_has_not() -> None:
    done = asyncio.Event()

    async def reads_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        await done.wait()
        writer.close()

    async with receiving(reads_on) as port:
        stream = await open_stream("127.0.0.1", port, None)
        await stream.write(DATA)
        with pytest.raises(TimeoutError):
            # expires on purpose
            await asyncio.wait_for(stream.end(), 0.5)
        stream.close()
        done.set()


@pytest.mark.parametrize("size", [10, 100_000])
async def test_a_receiver_that_refuses_our_certificate_has_not(size: int) -> None:
    """TLS 1.3 says so only once we believe that the handshake is over."""
    server = authority().server("127.0.0.1", asks=True)
    client = authority().client(authority("stranger").issue("sluice"))

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("nothing is read")

    async with receiving(never, server) as port:
        for context in (authority().client(), client):
            stream = await open_stream("127.0.0.1", port, context)
            with pytest.raises(OSError, match=r"reset|close|ertificate|unknown|Broken pipe"):
                await written_to_the_end(stream, b"x" * size)
            stream.close()


async def test_a_connection_closed_without_close_notify_is_an_end_only_on_request() -> None:
    """As of a process that was killed, and of rsyslog's driver `gtls`."""
    listening = socket.create_server(("127.0.0.1", 0))
    loop, context = asyncio.get_running_loop(), authority().server("127.0.0.1")

    def receive() -> None:
        connection, _ = listening.accept()
        served = context.wrap_socket(connection, server_side=True, suppress_ragged_eofs=False)
        while served.recv(65_536):
            pass
        socket.socket(fileno=served.detach()).close()

    with listening:
        for asked in (True, False):
            receiving = loop.run_in_executor(None, receive)
            port = listening.getsockname()[1]
            stream = await open_stream("127.0.0.1", port, authority().client())
            await stream.write(DATA)
            if asked:
                with pytest.raises(EndedEarly, match="close_notify"):
                    await stream.end()
            else:
                await stream.end(close_notify=False)
            stream.close()
            await receiving


async def test_a_server_with_another_name_is_refused() -> None:
    async with receiving(all_of_it, authority().server("elsewhere.example.com")) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await open_stream("127.0.0.1", port, authority().client())
