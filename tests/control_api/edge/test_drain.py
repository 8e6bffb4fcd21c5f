"""A draining listener: it closes the port at once, and still answers the connections that were
waiting."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web

from control_api.edge.sending import ReplyEncoder
from control_api.edge.server import ApiListener
from policies.ground.addresses import ListenAddress
from tests.support.certificates import authority


class Hello:
    """Answers every request."""

    def __init__(self) -> None:
        self.new_request_id = lambda: "1"
        self.response = ReplyEncoder(lambda: 0).response

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=f"hello {request.path}")


async def test_a_connection_that_waits_is_answered() -> None:
    listener = await ApiListener.open(ListenAddress("127.0.0.1", 0), "X", Hello(), [])
    # In the kernel's backlog: the event loop gets no turn before the drain begins.
    waiting = socket.create_connection(("127.0.0.1", listener.address.port))
    waiting.setblocking(False)
    waiting.sendall(b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n")
    await listener.drain(5)
    answer = waiting.recv(65536)  # it stands there: the drain has ended
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"hello /late")
    waiting.close()


async def test_the_port_is_closed_before_those_that_waited_are_served() -> None:
    """A connection that arrives while these are served would be reset. One that never finishes its
    handshake makes the drain last as long as possible."""
    tls = authority().server("127.0.0.1")
    listener = await ApiListener.open(ListenAddress("127.0.0.1", 0), "X", Hello(), [], tls)
    silent = socket.create_connection(("127.0.0.1", listener.address.port))
    draining = asyncio.ensure_future(listener.drain(5))
    await asyncio.sleep(0)
    assert not draining.done()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", listener.address.port)).close()
    silent.close()
    await draining
