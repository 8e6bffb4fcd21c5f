"""Proves the rules by using them: a connection to an address where nothing is must land on a
listener of this process, and a UDP packet must be rejected. This process is not exempt, so what
happens to it happens to an agent."""

import hmac
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from errno import EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EHOSTUNREACH, ENETUNREACH
from ipaddress import IPv6Address
from time import sleep
from typing import NamedTuple

from sidecar.proxy.tunnel.original_destination import RESERVED, RESERVED_PORT, original_destination
from sidecar.redirect.network import has_ipv4_route, ipv6_addresses, owner_of_accepted
from sidecar.redirect.plan import MAX_PORT, RedirectPlan

NOWHERE = {4: "192.0.2.21", 6: "2001:db8::21"}
"""Addresses for documentation (RFC 5737, RFC 3849): only a redirected connection succeeds."""
HTTPS = 443
_LOOPBACK = {4: "127.0.0.1", 6: "::1"}
_FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}

_SECONDS = 5.0
_CHALLENGE_BYTES = 32
_STRANGERS = 8
"""The number of other connections that may arrive before ours."""
_TRIES, _PAUSE = 20, 0.2
"""A new IPv6 address can't be used before the kernel knows that it is unique, about a second."""
_NO_WAY = (ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EAFNOSUPPORT)


class NotProven(Exception):
    """a connection or packet did not go where the rules must lead it; the message says which"""


def prove(plan: RedirectPlan) -> Iterator[str]:
    """Try everything, and yield what is proven. Raises `NotProven`."""
    proven = 0
    with ExitStack() as stack:
        listeners = {version: _listen(stack, plan.port, version) for version in (4, 6)}
        for version in (4, 6):
            address = _somewhere(version, plan)
            if address is None:
                yield f"IPv{version}: this pod has no way out, so there is nothing to redirect"
                continue
            for to in ((address, _port(plan)), (RESERVED[version], RESERVED_PORT)):
                if address == NOWHERE[version] or to[0] == address:
                    _prove_tcp(Way(plan, version, to), listeners[version])
                    yield f"IPv{version}: TCP to {to[0]} port {to[1]} lands on port {plan.port}"
            _prove_udp(version, address)
            yield f"IPv{version}: UDP to {address} port {HTTPS} is rejected"
            proven += 1
    if not proven:
        raise NotProven("this pod has no route for IPv4 or IPv6, so no rule can be tried out")


def _listen(stack: ExitStack, port: int, version: int) -> socket.socket | None:
    """Return a listener to which connections are redirected; None if the sidecar has the port."""
    try:
        # A kernel that was started without IPv6 has not even the sockets.
        listener = stack.enter_context(closing(socket.socket(_FAMILY[version])))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_LOOPBACK[version], port))
    except OSError as error:
        if error.errno in (EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT):
            return None
        raise
    listener.listen()
    listener.settimeout(_SECONDS)
    return listener


def _somewhere(version: int, plan: RedirectPlan) -> str | None:
    """Return an address that the pod has a route to, and that only a redirected connection can
    reach; None if no packet of this version can leave."""
    for _ in range(_TRIES):
        if _has_route(version):
            return NOWHERE[version]
        if not (has_ipv4_route() if version == 4 else _own_ipv6()):
            return None
        sleep(_PAUSE)
    own = [each for each in _own_ipv6() if not plan.skips_address(IPv6Address(each))]
    if version == 6 and own:
        # No default route, but an address of its own: a connection to that is redirected as well.
        return own[0]
    raise NotProven(f"no route leads to {NOWHERE[version]}, so no rule can be tried out")


def _has_route(version: int) -> bool:
    try:
        with closing(socket.socket(_FAMILY[version], socket.SOCK_DGRAM)) as probe:
            # Sends nothing: the kernel only looks for a route.
            probe.connect((NOWHERE[version], HTTPS))
    except OSError as error:
        if error.errno not in _NO_WAY:
            raise
        return False
    return True


def _own_ipv6() -> list[str]:
    return [str(each.address) for each in ipv6_addresses() if not each.link_local]


def _port(plan: RedirectPlan) -> int:
    free = [port for port in range(1, MAX_PORT + 1) if port != plan.port and not plan.skips(port)]
    if not free:
        raise NotProven("every port is skipped, so no rule can be tried out")
    return secrets.choice(free)


class Way(NamedTuple):
    """TCP of this version to an address and port `to`, which must land on the plan's port."""

    plan: RedirectPlan
    version: int
    to: tuple[str, int]

    def __str__(self) -> str:
        return f"TCP to {self.to[0]} port {self.to[1]}"

    def connect(self, stack: ExitStack) -> socket.socket:
        connection = stack.enter_context(closing(socket.socket(_FAMILY[self.version])))
        connection.settimeout(_SECONDS)
        try:
            connection.connect(self.to)
        except OSError as error:
            raise NotProven(f"{self} does not arrive at port {self.plan.port}: {error}") from error
        return connection


def _prove_tcp(way: Way, listener: socket.socket | None) -> None:
    with ExitStack() as stack:
        connection = way.connect(stack)
        if listener is None:
            expect_sidecar(stack, way, connection)
            return
        challenge = secrets.token_bytes(_CHALLENGE_BYTES)
        connection.sendall(challenge)
        if not any(_brings(listener, challenge, way.to) for _ in range(_STRANGERS)):
            raise NotProven(f"{way} is answered, but not by port {way.plan.port} of this pod")


def _brings(listener: socket.socket, challenge: bytes, to: tuple[str, int]) -> bool:
    """Return whether the next connection brings `challenge`, and the kernel knows that it was going
    `to` another address: the sidecar depends on both."""
    try:
        accepted = listener.accept()[0]
        with closing(accepted):
            accepted.settimeout(_SECONDS)
            heard = accepted.recv(_CHALLENGE_BYTES, socket.MSG_WAITALL)
            original = original_destination(accepted)
    except OSError:
        return False
    ours = hmac.compare_digest(heard, challenge)
    return ours and original is not None and (original.host, original.port) == to


def expect_sidecar(stack: ExitStack, way: Way, connection: socket.socket) -> None:
    """Prove that connections reach the sidecar, which has the port after a restart of the init
    container alone: the kernel's table of connections tells whether ours arrived there.

    If another redirected connection of this pod has the same port as ours, the kernel changes our
    port on the way, and the table shows the new one. So each try adds a connection from another
    port.
    """
    plan, ours = way.plan, []
    for _ in range(_TRIES):
        address, port, *_ = connection.getsockname()
        ours.append((address, port))
        owners = [owner_of_accepted(each, plan.port, way.version) for each in ours]
        if plan.sidecar_user in owners:
            return
        sleep(_PAUSE)
        connection = way.connect(stack)
    sidecar = f"a process of user {plan.sidecar_user} on port {plan.port}"
    raise NotProven(f"{way} is answered, but not by {sidecar}")


def _prove_udp(version: int, address: str) -> None:
    with closing(socket.socket(_FAMILY[version], socket.SOCK_DGRAM)) as sending:
        try:
            sending.sendto(secrets.token_bytes(8), (address, HTTPS))
        except PermissionError:
            return
        except OSError as error:
            raise NotProven(f"UDP to {address} port {HTTPS} can't be tried: {error}") from error
    raise NotProven(f"UDP to {address} port {HTTPS} is not rejected: QUIC would pass the sidecar")
