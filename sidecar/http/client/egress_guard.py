"""Restricts the addresses that the sidecar connects to: those that a configured data source may
have, and nothing else that a name could be made to resolve to (`proxy/RULES.md`, Egress addresses
and B21).

Each connection is checked twice: the whole answer of the resolver, and the one address that the
socket is made for, which no name can change any more. Knows addresses. Knows no request and no
policy.
"""

import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

from policies.ground import egress as not_public
from policies.ground.egress import Address, Network
from sidecar.http.loop_guard import LoopGuard
from sidecar.platform.state_logger import StateLogger

log = logging.getLogger(__name__)

REASONS = ("own_port", *not_public.REASONS)
"""The reasons to refuse an address; the values of the metric's label."""


class AddressRefused(OSError):
    """the name leads to an address that is not allowed"""

    def __init__(self, reason: str) -> None:
        super().__init__(f"address refused: {reason}")
        self.reason = reason


class EgressGuard:
    """Checks the addresses that the upstream `host` leads to. `addresses` are the networks that its
    source allows besides public addresses. `count_refusal` is called with each reason. The log gets
    a line when refusals begin and one when they end; `monotonic` is a clock in seconds."""

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
        self._refusals = StateLogger(
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
        """Raises `AddressRefused` unless all the addresses `found` are allowed."""
        # One refused address refuses all of them: a name that leads partly inside is an attack (DNS
        # rebinding).
        for text in found:
            address = ip_address(text)
            reason = self._reason(address, port)
            if reason is not None:
                self._count_refusal(reason)
                self._refusals.failing(f"it leads to `{address}` ({reason})")
                raise AddressRefused(reason)
        if self._refusals.problem is not None:
            self._refusals.recovered()

    def _reason(self, address: Address, port: int) -> str | None:
        # Checked first, whatever the configuration allows: a request must not come back here.
        if self._own_ports.reaches_self(address, port):
            return "own_port"
        covered = any(address in network for network in self._covered)
        return None if covered else not_public.refusal(address)

    def socket(self, info: tuple[Any, ...]) -> socket.socket:
        """A socket for the address in `info`, which is checked however it was resolved."""
        family, kind, proto, _, where = info
        self.check([where[0]], where[1])
        return socket.socket(family, kind, proto)
