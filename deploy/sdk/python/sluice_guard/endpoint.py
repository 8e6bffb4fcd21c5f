"""The address of the service, the failures on the way there, and the state that a forked process
forgets."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
import time
import weakref
from collections.abc import Callable
from typing import NamedTuple, Protocol

import h11
import httpx

from sluice_guard.exchange import Exchange

MAX_IDLE = 64
"""The most connections to keep."""
FAILURES = (OSError, asyncio.TimeoutError, h11.ProtocolError)
"""The errors of a network, a TLS handshake, a peer or a clock."""
Prepare = Callable[[Exchange], bytes]
"""A function that writes a request into an exchange."""


class Endpoint(NamedTuple):
    """The address of the service."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    timeout: float
    """Seconds for all of a request, the connection included."""


def read_url(url: str) -> httpx.URL:
    """Parse the service's address. Raises `ValueError`, without the text: it could hold a key."""
    try:
        address = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        raise ValueError("the URL can't be read") from None
    if address.scheme not in ("http", "https") or not address.host:
        raise ValueError("the URL must begin with http:// or https:// and a host")
    if address.userinfo or address.query or address.fragment:
        raise ValueError("the URL may have no user, query or fragment")
    return address


class Pool(Protocol):
    """Connections of this process."""

    def after_fork(self) -> None:
        """Forget the connections, in the child."""


def left(deadline: float) -> float:
    """Return the seconds until the deadline, by the monotonic clock. Raises `TimeoutError` after
    it."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def problem(error: Exception, endpoint: Endpoint) -> str:
    """Return an error in words of our own: its own text could hold what was sent, the key
    included."""
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):  # two classes in Python 3.10
        return f"the sidecar did not answer within {endpoint.timeout:g} s"
    if isinstance(error, (ConnectionRefusedError, socket.gaierror)):
        return f"no sidecar listens at {endpoint.host}:{endpoint.port}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS with the sidecar: {error.reason or 'it is not verified'}"
    if isinstance(error, h11.ProtocolError):
        return "what the sidecar answered is no HTTP response, or too large"
    return "the connection to the sidecar broke off"


def is_readable(connection: socket.socket) -> bool:
    """Return whether an idle connection has ended, or holds bytes that no request asked for."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()
"""Every pool of this process."""


def _after_fork() -> None:
    """Forget all connections in a child process: two processes on one connection would read each
    other's decisions."""
    for pool in list(POOLS):
        pool.after_fork()


os.register_at_fork(after_in_child=_after_fork)
