"""Ends the sending side of TCP connections, and resets connections."""

import asyncio
import socket
import struct

# The system's `struct linger`: switched on, with a time of 0 seconds.
_RESET = struct.pack("ii", 1, 0)


def reset(transport: asyncio.Transport) -> None:
    """Break a connection off with a TCP reset, so that its end can't be taken for an orderly
    one."""
    sock = transport.get_extra_info("socket")
    # A socket that is closed already has no descriptor, and no options.
    if sock is not None and sock.fileno() >= 0:
        # A linger time of 0 makes the system send RST instead of FIN.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()


def end_sending(transport: asyncio.Transport) -> None:
    """End the sending side of a connection. If the other side has reset the connection, break it
    off: asyncio's transports don't notice the reset before they read again, and raise."""
    try:
        transport.write_eof()
    except OSError:
        transport.abort()
