"""The parts that both kinds of connections share: the service's address, the failures of a request,
and the connections that a forked process must forget."""

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
"""The most idle connections to keep."""
FAILURES = (OSError, asyncio.TimeoutError, h11.ProtocolError)
"""The errors that a failed request can raise: of the network, the TLS handshake, the HTTP parser or
the deadline."""
Prepare = Callable[[Exchange], bytes]
"""A function that starts a request on an exchange, and returns the bytes to send."""


class Endpoint(NamedTuple):
    """The address of the sidecar or control API, and how to connect to it."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    timeout: float
    """The seconds that a whole request may take, including the connection."""


def read_url(url: str) -> httpx.URL:
    """Parse the service's address. Raises `ValueError`; its message never repeats the address,
    which could hold a key."""
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
    """The kept connections of a process."""

    def after_fork(self) -> None:
        """Forget the connections. Called in the child process after a fork."""


def seconds_left(deadline: float) -> float:
    """Return the seconds left until the deadline, a time of the monotonic clock. Raises
    `TimeoutError` after it."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def problem(error: Exception, endpoint: Endpoint) -> str:
    """Describe a failed request in the SDK's own words: the text of `error` could repeat what was
    sent, including the key."""
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
    """Return whether an idle connection was closed by the peer, or holds bytes that no request
    asked for. In both cases it must not be used again."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()
"""Every pool of connections in this process."""


def _after_fork() -> None:
    """Forget all connections in a child process: two processes on one connection would read each
    other's decisions."""
    for pool in list(POOLS):
        pool.after_fork()


os.register_at_fork(after_in_child=_after_fork)
