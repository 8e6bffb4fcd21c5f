"""Notices that the packet filter's rules are gone. The first of them redirects a reserved address
for every user (`sidecar/redirect`): a connection that the sidecar opens there must arrive at its
own transparent port, and a UDP packet there must be refused (`sidecar/redirect/README.md`).

Also finds where a connection was going before the packet filter redirected it here (Linux,
`SO_ORIGINAL_DST` of netfilter's connection tracking, for IPv4 and IPv6). This original destination
shows which address the agent's socket asked for, and no more: not who lives there, nor which name
led there.
"""

import asyncio
import hmac
import logging
import socket
import struct
from collections.abc import Callable
from contextlib import closing
from errno import EADDRNOTAVAIL, EAFNOSUPPORT, ENETUNREACH
from ipaddress import IPv4Address, IPv6Address
from typing import Protocol

from policies.ground.clock import Clock
from policies.ground.errors import worded
from policies.ground.process.outage_logger import RepeatingOutageLogger
from sidecar.http.authority import Authority, compressed
from sidecar.proxy.connections import BufferedConnection

RESERVED = {4: "192.0.2.20", 6: "2001:db8::20"}
"""The reserved address of each IP version, which the packet filter redirects for every user. Both
are from the ranges for documentation (RFC 5737, RFC 3849), so no source is there."""
RESERVED_PORT = 1


# <linux/netfilter_ipv4.h> SO_ORIGINAL_DST, <linux/netfilter_ipv6/ip6_tables.h>
# IP6T_SO_ORIGINAL_DST: the same number at two levels.
_OPTION = 80
# sockaddr_in: family, port, address, padding. sockaddr_in6: family, port, flow, address, scope.
# The family is in the host's byte order, the port in the network's.
_IPV4 = struct.Struct("=2x2s4s8x")
_IPV6 = struct.Struct("=2x2s4x16s4x")


class SocketLike(Protocol):
    """The methods of a socket that `original_destination` needs."""

    @property
    def family(self) -> int: ...
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def original_destination(sock: SocketLike) -> Authority | None:
    """Return the address and port that a redirected connection was going to, in canonical form;
    None if the system tracks no redirection. For a connection that wasn't redirected it may be the
    sidecar's own port."""
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


log = logging.getLogger(__name__)

CHALLENGE_BYTES = 32
ARRIVE_SECONDS = 3.0
"""The seconds within which a challenge must arrive, through the kernel and a busy event loop."""
ATTEMPTS = 2
"""The number of attempts in a row that must fail before the check fails: a sidecar that is wrongly
not ready is an outage."""

_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_NO_ROUTE = (ENETUNREACH, EADDRNOTAVAIL, EAFNOSUPPORT)
"""Errors which mean that the pod has no network of this IP version, so that there is nothing to
redirect."""
_PLACES = frozenset(Authority(address, RESERVED_PORT) for address in RESERVED.values())


class RedirectCheck:
    """Checks every `seconds` that the packet filter redirects connections to this sidecar: it
    connects to a reserved address, sends a random challenge, and waits for it at the transparent
    port. `problem` describes the fault, None while the rules work; before the first success it says
    that they are not checked yet. `changed` is called when `problem` changes."""

    def __init__(
        self,
        seconds: float,
        random_bytes: Callable[[int], bytes],
        changed: Callable[[], None],
        clock: Clock,
        arrive_seconds: float = ARRIVE_SECONDS,
    ) -> None:
        self.problem: str | None = "the packet filter's rules are not checked yet"
        self._seconds = seconds
        self._random_bytes = random_bytes
        self._changed = changed
        self._arrive_seconds = arrive_seconds
        self._state = RepeatingOutageLogger(
            log,
            "the packet filter does not lead connections to this sidecar",
            "the packet filter leads connections to this sidecar again",
            clock.monotonic,
        )
        self._expected: dict[bytes, asyncio.Future[None]] = {}
        self._listening = asyncio.Event()

    async def start(self) -> None:
        """Begin to check: the sidecar's ports are open."""
        self._listening.set()

    async def close(self, _seconds: float) -> None:
        """Stop checking: the ports close, so a connection that does not arrive is not the fault of
        the rules."""
        self._listening.clear()

    async def run(self) -> None:
        """Check again and again, while the ports are open. Never returns."""
        while True:
            await self._listening.wait()
            await self.check()
            await asyncio.sleep(self._seconds)

    async def check(self) -> None:
        """Check once, and once more after a failure. Updates `problem`."""
        problem = None
        for _ in range(ATTEMPTS):
            problem = await self._attempt()
            if problem is None:
                break
        if not self._listening.is_set():
            return  # closed meanwhile
        if problem is None:
            self._state.recovered()
        else:
            self._state.failing(problem)
        if problem != self.problem:
            self.problem = problem
            self._changed()

    async def claims_connection(
        self, agent: BufferedConnection, original: Authority, seconds: float
    ) -> bool:
        """Return whether a connection that arrived was opened by this check. Any other connection
        keeps its bytes unread and is handled as usual. `seconds` limits the wait for the
        challenge."""
        if original not in _PLACES:
            return False
        # An agent's connection may come here too. It can't know a challenge, and gets no answer
        # that would tell it more.
        try:
            async with asyncio.timeout(seconds):
                while len(agent.buffered) < CHALLENGE_BYTES and await agent.wait_for_more():
                    pass
        except TimeoutError:
            return False
        heard = agent.buffered[:CHALLENGE_BYTES]
        for challenge, arrived in self._expected.items():
            if hmac.compare_digest(challenge, heard):
                if not arrived.done():
                    arrived.set_result(None)
                return True
        return False

    async def _attempt(self) -> str | None:
        """Try all IP versions; return the fault, None if there is none."""
        tried = await asyncio.gather(*(self._version(version) for version in RESERVED))
        problems = [each for each in tried if each]
        if problems:
            return "; ".join(problems)
        # `None` stands for a version without a network: with neither, nothing was shown to work.
        return None if "" in tried else "this network has no route, so nothing can be checked"

    async def _version(self, version: int) -> str | None:
        """Return the fault of one IP version: empty if the redirection works, None if the pod has
        no network of this version."""
        try:
            if not _udp_is_refused(version):
                return f"UDP over IPv{version} is not rejected"
            await self._arrives(version)
        except TimeoutError:
            return f"a connection over IPv{version} does not arrive"
        except OSError as error:
            if error.errno in _NO_ROUTE:
                return None
            return f"a connection over IPv{version} fails: {worded(error)}"
        return ""

    async def _arrives(self, version: int) -> None:
        """Connect to the reserved address, and return once the challenge has arrived. Raises
        `TimeoutError` if it does not arrive, or another `OSError` if the connection fails."""
        loop = asyncio.get_running_loop()
        challenge = self._random_bytes(CHALLENGE_BYTES)
        arrived = self._expected[challenge] = loop.create_future()
        try:
            with closing(socket.socket(_FAMILIES[version])) as connection:
                connection.setblocking(False)
                async with asyncio.timeout(self._arrive_seconds):
                    await loop.sock_connect(connection, (RESERVED[version], RESERVED_PORT))
                    await loop.sock_sendall(connection, challenge)
                    await arrived
        finally:
            del self._expected[challenge]


def _udp_is_refused(version: int) -> bool:
    with closing(socket.socket(_FAMILIES[version], socket.SOCK_DGRAM)) as sending:
        sending.setblocking(False)
        try:
            sending.sendto(b"", (RESERVED[version], RESERVED_PORT))
        except PermissionError:
            return True
    return False
