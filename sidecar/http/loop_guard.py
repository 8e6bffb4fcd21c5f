"""The ports that this sidecar listens on: nothing it forwards may lead back to one of them
(proxy.md A4 self-connection, B 26). Knows addresses, and whether one is this host's."""

import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

Address = IPv4Address | IPv6Address


class LoopGuard:
    """Filled as the ports open."""

    def __init__(self) -> None:
        self._open: dict[int, set[Address]] = {}

    def add(self, sockets: Iterable[Any]) -> None:
        for each in sockets:
            host, port = each.getsockname()[:2]
            self._open.setdefault(port, set()).add(_plain(ip_address(host)))

    def reaches_self(self, address: Address, port: int) -> bool:
        """Whether connecting there would reach one of them, by any address of this host."""
        hosts = self._open.get(port)
        if hosts is None:
            return False
        address = _plain(address)
        # Connecting to `0.0.0.0` or `::` is connecting to this host.
        if address in hosts or address.is_unspecified:
            return True
        return any(host.is_unspecified for host in hosts) and _is_ours(address)


def _plain(address: Address) -> Address:
    """Without the IPv6 dress of an IPv4 address, and without a zone."""
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or IPv6Address(int(address))
    return address


def _is_ours(address: Address) -> bool:
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    # Only an address of this host can be bound.
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
