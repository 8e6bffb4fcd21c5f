"""Ends TCP connections, and breaks them off."""

import asyncio
import socket
import struct

# The system's `struct linger`: switched on, with a time of 0 seconds.
_RESET = struct.pack("ii", 1, 0)


def reset(transport: asyncio.Transport) -> None:
    """Breaks a connection with a TCP reset, so that its end can't be taken for an orderly one."""
    sock = transport.get_extra_info("socket")
    # A socket that is closed already has no descriptor, and no options.
    if sock is not None and sock.fileno() >= 0:
        # A linger time of 0 makes the system send RST instead of FIN.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()


def end_sending(transport: asyncio.Transport) -> None:
    """Ends the sending side of a connection. Breaks the connection off if the other side has reset
    it: asyncio's transports don't know that before they read again, and raise."""
    try:
        transport.write_eof()
    except OSError:
        transport.abort()
