"""Prevents proxy loops: nothing the sidecar forwards may lead back to one of its own ports
(`proxy/RULES.md`, Egress addresses and B26). Knows listening addresses, and which addresses are
local."""

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

from policies.ground.egress import Address


class LoopGuard:
    """The sidecar's listening addresses; filled as its ports open."""

    def __init__(self) -> None:
        self._open: dict[int, set[Address]] = {}

    def add(self, sockets: Iterable[Any]) -> None:
        for listening in sockets:
            host, port = listening.getsockname()[:2]
            self.add_address(host, port)

    def add_address(self, host: str, port: int) -> None:
        """Like `add`, for a port whose socket is a library's. A name other than an address stands
        for this machine."""
        try:
            address = ip_address(host)
        except ValueError:
            address = ip_address("127.0.0.1") if host == "localhost" else ip_address("::")
        self._open.setdefault(port, set()).add(_normalized(address))

    def reaches_self(self, address: Address, port: int) -> bool:
        """Whether a connection to `address` and `port` would reach one of the sidecar's ports."""
        hosts = self._open.get(port)
        if hosts is None:
            return False
        address = _normalized(address)
        # Connecting to `0.0.0.0` or `::` connects to this host.
        if address in hosts or address.is_unspecified:
            return True
        # A port that is open on all addresses is reached through every local one.
        return any(host.is_unspecified for host in hosts) and _is_local(address)


def _normalized(address: Address) -> Address:
    """An IPv4-mapped IPv6 address as IPv4, and any other without its zone."""
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or IPv6Address(int(address))
    return address


def _is_local(address: Address) -> bool:
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    # Only a local address can be bound; binding a datagram socket sends nothing.
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
