"""Where a connection was meant to go before the packet filter redirected it here (Linux,
`SO_ORIGINAL_DST` of netfilter's connection tracking, for either version of IP).

It is what the agent's socket asked for, and no more: whoever lives at that address, and whatever
name led there, is not known by it. Knows sockets.
"""

import socket
import struct
from ipaddress import IPv4Address, IPv6Address
from typing import Protocol

from sidecar.http.authority import Authority

# <linux/netfilter_ipv4.h> SO_ORIGINAL_DST, <linux/netfilter_ipv6/ip6_tables.h>
# IP6T_SO_ORIGINAL_DST: the same number at two levels.
_OPTION = 80
# sockaddr_in: family, port, address, padding. sockaddr_in6: family, port, flow, address, scope.
# The family is in the host's order, the port in the network's.
_IPV4 = struct.Struct("=2x2s4s8x")
_IPV6 = struct.Struct("=2x2s4x16s4x")


class SocketLike(Protocol):
    """As much of a socket as is asked."""

    @property
    def family(self) -> int: ...
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def original_destination(sock: SocketLike) -> Authority | None:
    """The address and port, as they stand in the configuration; None where the system knows of no
    redirection. A connection that came straight here may have our own port for an answer."""
    if sock.family == socket.AF_INET6:
        told = _asked(sock, socket.IPPROTO_IPV6, _IPV6)
        if told is not None:
            port, address = told
            return Authority(str(IPv6Address(address)), int.from_bytes(port))
    # An IPv4 connection to a socket of IPv6 is asked about as what it is.
    told = _asked(sock, socket.IPPROTO_IP, _IPV4)
    if told is None:
        return None
    port, address = told
    return Authority(str(IPv4Address(address)), int.from_bytes(port))


def _asked(sock: SocketLike, level: int, form: struct.Struct) -> tuple[bytes, bytes] | None:
    try:
        told = sock.getsockopt(level, _OPTION, form.size)
    except OSError:
        # No connection tracking, or none of this connection.
        return None
    port, address = form.unpack(told)
    return port, address
