"""Proves the rules by using them: a connection to an address where nothing is must reach a listener
of this process, and a UDP packet must be rejected. This process is not exempt, so an agent's
packets are treated like its own.

Also reads the pod's network from `/proc/net`, and finds the addresses of the cluster's API server,
to which a pod connects without its sidecar.

These addresses come from the cluster's DNS, and not from KUBERNETES_SERVICE_HOST: the kubelet gives
a Service `kubernetes` of the pod's own namespace precedence over the real one
(`getServiceEnvVarMap`), so a user who may create Services there could name any address.
"""

import hmac
import re
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from errno import EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EHOSTUNREACH, ENETUNREACH
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from time import sleep
from typing import NamedTuple

from sidecar.proxy.tunnel.redirect_check import RESERVED, RESERVED_PORT, original_destination
from sidecar.redirect.plan import (
    MAX_PORT,
    Address,
    Endpoint,
    RedirectPlan,
    UnusablePlan,
    endpoints,
    number,
)

PROC = Path("/proc/net")

_LOOPBACK_INTERFACE = "lo"
_LINK_LOCAL = "20"
"""The code in the scope column of `if_inet6` of an address that reaches only its own link."""

KUBERNETES_API_OPTION = "--kubernetes-api"
MAX_ADDRESSES = 8
_ABSENT = (socket.EAI_NONAME, socket.EAI_NODATA)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z")


class Ipv6Address(NamedTuple):
    address: IPv6Address
    link_local: bool


def ipv6_addresses(proc: Path = PROC) -> list[Ipv6Address]:
    """Return the pod's own IPv6 addresses; empty if the kernel has no IPv6."""
    rows = [line.split() for line in _lines(proc / "if_inet6")]
    others = [row for row in rows if row[5] != _LOOPBACK_INTERFACE]
    return [Ipv6Address(IPv6Address(bytes.fromhex(r[0])), r[3] == _LINK_LOCAL) for r in others]


def has_ipv4_route(proc: Path = PROC) -> bool:
    """Return whether IPv4 packets can leave by any interface besides loopback."""
    return any(line.split()[0] != _LOOPBACK_INTERFACE for line in _lines(proc / "route")[1:])


def owner_of_accepted(peer: tuple[str, int], port: int, version: int) -> int | None:
    """Return the user id of the local socket on `port` that is connected to `peer`; None if there
    is no such socket."""
    wanted = f"{_hex(peer[0], version)}:{peer[1]:04X}"
    for line in _lines(PROC / ("tcp" if version == 4 else "tcp6"))[1:]:
        # `sl local_address rem_address st … uid …`, as in proc(5).
        _, local, remote, _, _, _, _, uid, *_ = line.split()
        if (local[-4:], remote) == (f"{port:04X}", wanted):
            return int(uid)
    return None


def _hex(address: str, version: int) -> str:
    # The kernel prints each 32-bit word of the address as a number of the host's byte order.
    packed = socket.inet_pton(socket.AF_INET if version == 4 else socket.AF_INET6, address)
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        # A kernel without IPv6 has no such file.
        return []


class Unresolved(Exception):
    """the name of the API server can't be resolved now; the message says why"""


def kubernetes_api(text: str) -> tuple[Endpoint, ...]:
    """Return the addresses and the port of the API server in `text`, such as
    `kubernetes.default.svc.cluster.local:443`; empty if there is no such name. Raises
    `UnusablePlan`, and `Unresolved` if another attempt may succeed."""
    host, _, port_text = text.rpartition(":")
    port = number(port_text, KUBERNETES_API_OPTION, 1, MAX_PORT)
    literal = _literal(host)
    if literal is None and not _NAME.match(host):
        neither = "is neither a name nor an IP address"
        raise UnusablePlan(f"{KUBERNETES_API_OPTION}: `{host[:80]}` {neither}")
    found = [literal] if literal is not None else _resolved(host)
    return endpoints(found[:MAX_ADDRESSES], port, KUBERNETES_API_OPTION)


def _literal(host: str) -> Address | None:
    try:
        if host.startswith("[") and host.endswith("]") and "%" not in host:
            return IPv6Address(host[1:-1])
        return IPv4Address(host)
    except ValueError:
        return None


def _resolved(name: str) -> list[Address]:
    try:
        # The dot at the end keeps `search` domains of `resolv.conf` out.
        found = socket.getaddrinfo(f"{name}.", None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _ABSENT:
            return []
        why = f"`{name}` can't be resolved: {error.strerror}"
        raise Unresolved(f"{KUBERNETES_API_OPTION}: {why}") from error
    # A scope, as in `fe80::1%eth0`, names an interface; rules go by the address.
    return [ip_address(str(each[4][0]).partition("%")[0]) for each in found]


DOCUMENTATION_ADDRESS = {4: "192.0.2.21", 6: "2001:db8::21"}
"""Addresses reserved for documentation (RFC 5737, RFC 3849). Nothing answers there, so a connection
succeeds only if it is redirected."""
HTTPS = 443
_LOOPBACK = {4: "127.0.0.1", 6: "::1"}
_FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}

_SECONDS = 5.0
_CHALLENGE_BYTES = 32
_STRANGERS = 8
"""The most connections by others that may arrive before ours."""
_TRIES, _PAUSE = 20, 0.2
"""The attempts, and the seconds between them. A new IPv6 address can't be used before the kernel
knows that it is unique, which takes about a second."""
_NO_WAY = (ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EAFNOSUPPORT)


class NotProven(Exception):
    """a connection or packet did not go where the rules must lead it; the message says which"""


def prove(plan: RedirectPlan) -> Iterator[str]:
    """Try out all rules, and yield a line for each that is proven. Raises `NotProven`."""
    proven = 0
    with ExitStack() as stack:
        listeners = {version: _listen(stack, plan.port, version) for version in (4, 6)}
        for version in (4, 6):
            address = _trial_address(version, plan)
            if address is None:
                yield f"IPv{version}: this pod has no way out, so there is nothing to redirect"
                continue
            for to in ((address, _port(plan)), (RESERVED[version], RESERVED_PORT)):
                if address == DOCUMENTATION_ADDRESS[version] or to[0] == address:
                    _prove_tcp(TcpTrial(plan, version, to), listeners[version])
                    yield f"IPv{version}: TCP to {to[0]} port {to[1]} lands on port {plan.port}"
            _prove_udp(version, address)
            yield f"IPv{version}: UDP to {address} port {HTTPS} is rejected"
            proven += 1
    if not proven:
        raise NotProven("this pod has no route for IPv4 or IPv6, so no rule can be tried out")


def _listen(stack: ExitStack, port: int, version: int) -> socket.socket | None:
    """Return a listener at which redirected connections arrive; None if the port is taken, by the
    sidecar, or if the kernel does not have this IP version."""
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


def _trial_address(version: int, plan: RedirectPlan) -> str | None:
    """Return an address that the pod has a route to, and that only a redirected connection can
    reach; None if no packet of this IP version can leave."""
    for _ in range(_TRIES):
        if _has_route(version):
            return DOCUMENTATION_ADDRESS[version]
        if not (has_ipv4_route() if version == 4 else _own_ipv6()):
            return None
        sleep(_PAUSE)
    own = [each for each in _own_ipv6() if not plan.skips_address(IPv6Address(each))]
    if version == 6 and own:
        # No default route, but an address of its own: a connection to that is redirected as well.
        return own[0]
    raise NotProven(
        f"no route leads to {DOCUMENTATION_ADDRESS[version]}, so no rule can be tried out"
    )


def _has_route(version: int) -> bool:
    try:
        with closing(socket.socket(_FAMILY[version], socket.SOCK_DGRAM)) as probe:
            # Sends nothing: the kernel only looks for a route.
            probe.connect((DOCUMENTATION_ADDRESS[version], HTTPS))
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


class TcpTrial(NamedTuple):
    """A TCP connection to try: to the address and port `to`, by this IP version. It must arrive at
    the plan's port."""

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


def _prove_tcp(trial: TcpTrial, listener: socket.socket | None) -> None:
    with ExitStack() as stack:
        connection = trial.connect(stack)
        if listener is None:
            expect_sidecar(stack, trial, connection)
            return
        challenge = secrets.token_bytes(_CHALLENGE_BYTES)
        connection.sendall(challenge)
        if not any(_delivers(listener, challenge, trial.to) for _ in range(_STRANGERS)):
            raise NotProven(f"{trial} is answered, but not by port {trial.plan.port} of this pod")


def _delivers(listener: socket.socket, challenge: bytes, to: tuple[str, int]) -> bool:
    """Return whether the next connection delivers `challenge`, and the kernel knows that it was
    going to the address `to`. The sidecar depends on both."""
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


def expect_sidecar(stack: ExitStack, trial: TcpTrial, connection: socket.socket) -> None:
    """Prove that connections reach the sidecar, which has the port already if only the init
    container is restarted. The kernel's table of connections shows whether ours arrived there.

    If another redirected connection of this pod has the same port as ours, the kernel changes our
    port on the way, and the table shows the new one. So each attempt adds a connection from another
    port.
    """
    plan, ours = trial.plan, []
    for _ in range(_TRIES):
        address, port, *_ = connection.getsockname()
        ours.append((address, port))
        owners = [owner_of_accepted(each, plan.port, trial.version) for each in ours]
        if plan.sidecar_user in owners:
            return
        sleep(_PAUSE)
        connection = trial.connect(stack)
    sidecar = f"a process of user {plan.sidecar_user} on port {plan.port}"
    raise NotProven(f"{trial} is answered, but not by {sidecar}")


def _prove_udp(version: int, address: str) -> None:
    with closing(socket.socket(_FAMILY[version], socket.SOCK_DGRAM)) as sending:
        try:
            sending.sendto(secrets.token_bytes(8), (address, HTTPS))
        except PermissionError:
            return
        except OSError as error:
            raise NotProven(f"UDP to {address} port {HTTPS} can't be tried: {error}") from error
    raise NotProven(f"UDP to {address} port {HTTPS} is not rejected: QUIC would pass the sidecar")
