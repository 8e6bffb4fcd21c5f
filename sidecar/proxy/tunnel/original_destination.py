"""Finds where a connection was going before the packet filter redirected it here (Linux,
`SO_ORIGINAL_DST` of netfilter's connection tracking, for IPv4 and IPv6), and names the address that
the packet filter redirects for every user, the sidecar's own too. A sidecar that connects there
must find itself; otherwise the rules are gone (`sidecar/redirect/README.md`).

The original destination shows which address the agent's socket asked for, and no more: not who
lives there, nor which name led there.
"""

import socket
import struct
from ipaddress import IPv4Address, IPv6Address
from typing import Protocol

from sidecar.http.authority import Authority, compressed

RESERVED = {4: "192.0.2.20", 6: "2001:db8::20"}
"""The reserved address of each IP version, from the ranges for documentation (RFC 5737, RFC 3849):
no source is there."""
RESERVED_PORT = 1


# <linux/netfilter_ipv4.h> SO_ORIGINAL_DST, <linux/netfilter_ipv6/ip6_tables.h>
# IP6T_SO_ORIGINAL_DST: the same number at two levels.
_OPTION = 80
# sockaddr_in: family, port, address, padding. sockaddr_in6: family, port, flow, address, scope.
# The family is in the host's byte order, the port in the network's.
_IPV4 = struct.Struct("=2x2s4s8x")
_IPV6 = struct.Struct("=2x2s4x16s4x")


class SocketLike(Protocol):
    """The part of a socket that is used here."""

    @property
    def family(self) -> int: ...
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def original_destination(sock: SocketLike) -> Authority | None:
    """Return the original address and port, in the form of the configuration; None if the system
    tracks no redirection. For a connection that came straight here it may be the sidecar's own
    port."""
    if sock.family == socket.AF_INET6:
        found = _query(sock, socket.IPPROTO_IPV6, _IPV6)
        if found is not None:
            port, address = found
            return Authority(compressed(IPv6Address(address)), int.from_bytes(port))
    # An IPv4 connection to an IPv6 socket is tracked as IPv4.
    found = _query(sock, socket.IPPROTO_IP, _IPV4)
    if found is None:
        return None
    port, address = found
    return Authority(str(IPv4Address(address)), int.from_bytes(port))


def _query(sock: SocketLike, level: int, layout: struct.Struct) -> tuple[bytes, bytes] | None:
    try:
        raw = sock.getsockopt(level, _OPTION, layout.size)
    except OSError:
        # There is no connection tracking, or it doesn't know this connection.
        return None
    port, address = layout.unpack(raw)
    return port, address
