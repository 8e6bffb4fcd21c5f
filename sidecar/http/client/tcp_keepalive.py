"""Has the system notice that the other side of a connection is gone without a word: its host is
down, or the network between is. Many requests share a connection of HTTP/2, and later ones would
be sent on it too.

Not by PINGs of HTTP/2: servers of gRPC end a connection whose client sends more than a few of them
while they work on a call.
"""

import asyncio
import socket

_SECONDS = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""The seconds of silence, those between two probes, and how many go unanswered."""
_UNTAKEN_MILLISECONDS = 25_000
"""The time for which sent bytes may be unacknowledged (RFC 5482)."""


def keep_alive(transport: asyncio.Transport) -> None:
    """End the connection of `transport` after 25 s without a sign of the other side's system. Where
    the system has no such option, its own times apply."""
    sock = transport.get_extra_info("socket")
    # A socket that is closed already has no descriptor, and no options.
    if sock is None or sock.fileno() < 0:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_SECONDS.items(), ("TCP_USER_TIMEOUT", _UNTAKEN_MILLISECONDS)):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
