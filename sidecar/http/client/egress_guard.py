"""Restricts the addresses that the sidecar connects to: only those that a configured data source
may have, and no other address that a name could be made to resolve to (`proxy/RULES.md`, Egress
addresses and B21); and never one of the sidecar's own ports, so that nothing it forwards comes back
to it (B26).

Each connection is checked twice: first the whole answer of the resolver, then the one address that
the socket is made for, which no change of the name can affect any more.
"""

import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from policies.ground import public_addresses
from policies.ground.process.outage_logger import RepeatingOutageLogger
from policies.ground.public_addresses import Address, Network


class LoopGuard:
    """The addresses and ports at which this sidecar listens, filled as its ports open. Used to keep
    the sidecar from connecting to itself."""

    def __init__(self) -> None:
        self._open: dict[int, set[Address]] = {}

    def add(self, sockets: Iterable[Any]) -> None:
        for listening in sockets:
            host, port = listening.getsockname()[:2]
            self.add_address(host, port)

    def add_address(self, host: str, port: int) -> None:
        """Add a port that a library listens on, given as host and port instead of a socket. A host
        name instead of an address stands for this machine."""
        try:
            address = ip_address(host)
        except ValueError:
            address = ip_address("127.0.0.1") if host == "localhost" else ip_address("::")
        self._open.setdefault(port, set()).add(_normalized(address))

    def reaches_self(self, address: Address, port: int) -> bool:
        """Return whether a connection to `address` and `port` would reach one of the sidecar's
        ports."""
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
    """Return an IPv4-mapped IPv6 address as IPv4, and any other IPv6 address without its zone, so
    that equal addresses compare equal."""
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


log = logging.getLogger(__name__)

REASONS = ("own_port", *public_addresses.REASONS)
"""The reasons for refusing an address; also the label values of the metric."""


class AddressRefused(OSError):
    """the name leads to an address that is not allowed"""

    def __init__(self, reason: str) -> None:
        super().__init__(f"address refused: {reason}")
        self.reason = reason


class EgressGuard:
    """Checks the addresses that the upstream `host` resolves to. Public addresses are allowed, and
    the networks in `addresses`, which the source's settings name. `count_refusal` is called with
    the reason of each refusal. The log gets a line when refusals begin and one when they end;
    `monotonic` is a clock in seconds."""

    def __init__(
        self,
        host: str,
        addresses: Sequence[str],
        own_ports: LoopGuard,
        count_refusal: Callable[[str], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._own_ports = own_ports
        self._count_refusal = count_refusal
        self._refusals = RepeatingOutageLogger(
            log,
            f"refused to connect to `{host}`",
            f"`{host}` leads to allowed addresses again",
            monotonic,
        )
        self._covered: list[Network] = [ip_network(each) for each in addresses]
        # An upstream written as an address is that address, and `localhost` is loopback: the
        # operator said so. Any other name says nothing about where it may lead.
        if host == "localhost":
            self._covered += [ip_network("127.0.0.0/8"), ip_network("::1/128")]
        elif ":" in host or host.rpartition(".")[2].isdigit():
            self._covered.append(ip_network(host))

    def check(self, found: Iterable[str], port: int) -> None:
        """Raise `AddressRefused` unless all the addresses in `found` are allowed."""
        # One refused address refuses all of them: a name that leads partly inside is an attack (DNS
        # rebinding).
        for text in found:
            address = ip_address(text)
            reason = self._reason(address, port)
            if reason is not None:
                self._count_refusal(reason)
                self._refusals.failing(f"it leads to `{address}` ({reason})")
                raise AddressRefused(reason)
        if self._refusals.ongoing:
            self._refusals.recovered()

    def _reason(self, address: Address, port: int) -> str | None:
        # Checked first, whatever the configuration allows: a request must not come back here.
        if self._own_ports.reaches_self(address, port):
            return "own_port"
        covered = any(address in network for network in self._covered)
        return None if covered else public_addresses.refusal(address)

    def socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Check the address in `info` (as `getaddrinfo` returns it), regardless of how it was
        resolved, and return a socket for it. Raises `AddressRefused`."""
        family, kind, proto, _, where = info
        self.check([where[0]], where[1])
        return socket.socket(family, kind, proto)
