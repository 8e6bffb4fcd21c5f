"""Chooses free ports, reports taken ones, and keeps each port bound until just before the child
process that uses it starts."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from deploy.local.settings import ENVIRONMENT, Address, UpSettings, option

OWNERS = {
    "control_listen": "the control API",
    "sidecar_listen": "the sidecar",
    "source_listen": "the sidecar, for the sample data source",
    "chroma_listen": "the sample data source",
    "milvus_source_listen": "the sidecar, for the sample Milvus",
    "milvus_listen": "the sample Milvus",
    "postgres_source_listen": "the sidecar, for the sample PostgreSQL",
    "postgres_listen": "the sample PostgreSQL",
}
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")  # holds for IPv6 too
USUAL_EPHEMERAL = 32768
"""The first ephemeral port to assume if the system doesn't tell it: Linux's default; other systems
begin higher (IANA recommends 49152, RFC 6335, section 6)."""
LOWEST = 10_000
"""The lowest port to choose. Most well-known services have a lower one."""
TRIES = 200
"""The most ports to try for one address."""


class PortsTaken(Exception):
    """ports that can't be bound, one line each, with the setting that changes it"""


class HeldPorts:
    """Bound sockets that keep the ports of all addresses from other programs. `settings` are the
    settings with the chosen ports in place of port 0."""

    def __init__(
        self, settings: UpSettings, sockets: dict[str, socket.socket], *, by_make: bool
    ) -> None:
        self.settings = settings
        self._sockets = sockets
        self._by_make = by_make

    def release(self, *names: str) -> None:
        """Close the sockets of these addresses, so that a child can bind them. `names` are names of
        settings."""
        for name in names:
            self._sockets[name].close()

    def check_free(self, *names: str) -> None:
        """Raise `PortsTaken` if a server now listens on one of these addresses, which were released
        before."""
        addresses = self.settings.addresses()
        complaints = []
        for name in names:
            with _socket(addresses[name]) as tried:
                try:
                    _bind(tried, addresses[name])
                except OSError as error:
                    complaints.append(_complaint(name, addresses[name], error))
        if complaints:
            raise PortsTaken(_advice(complaints, by_make=self._by_make))

    def taken(self, name: str) -> PortsTaken:
        """Return the error which says that another program listens on this address, which was
        released before."""
        problem = OSError(errno.EADDRINUSE, "another program listens there")
        complaint = _complaint(name, self.settings.addresses()[name], problem)
        return PortsTaken(_advice([complaint], by_make=self._by_make))


@contextlib.contextmanager
def hold_ports(settings: UpSettings, *, by_make: bool = False) -> Iterator[HeldPorts]:
    """Bind every address inside the `with` block; an address with port 0 gets a free port. Raises
    `PortsTaken`, whose message names all addresses that can't be bound, and the command to run
    instead; with `by_make` this is a `make` command."""
    with contextlib.ExitStack() as stack:
        addresses = settings.addresses()
        sockets: dict[str, socket.socket] = {}
        complaints: list[str] = []
        # Bind named ports first: a chosen port must not be one that another setting names.
        for name in sorted(addresses, key=lambda name: addresses[name].port == 0):
            address = addresses[name]
            held = sockets[name] = stack.enter_context(_socket(address))
            try:
                port = _bind(held, address)
            except OSError as error:
                complaints.append(_complaint(name, address, error))
            else:
                addresses[name] = Address(address.host, port)
        if complaints:
            raise PortsTaken(_advice(complaints, by_make=by_make))
        yield HeldPorts(UpSettings(settings.data_dir, **addresses), sockets, by_make=by_make)


def _socket(address: Address) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET)


def _complaint(name: str, address: Address, error: OSError) -> str:
    return (
        f"{OWNERS[name]} can't listen on `{address}`: {error.strerror or error}; "
        f"choose another address with {option(name)} HOST:PORT or {ENVIRONMENT[name]}"
    )


def _advice(complaints: list[str], *, by_make: bool) -> str:
    again = "make run ARGS=--free-ports" if by_make else "sluice up --free-ports"
    return "\n".join([*complaints, f"or let `{again}` choose all of them"])


def _bind(held: socket.socket, address: Address) -> int:
    """Bind the socket and return its port. The socket never listens, so that an early client is
    refused and tries again."""
    if address.port:
        try:
            # Without SO_REUSEADDR first: two launchers that both had it would both hold the port.
            held.bind(address)
        except OSError:
            # With this option a port that has connections in TIME_WAIT, such as the last run's, can
            # be bound, here and by the child.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(address)
        return address.port
    # Without SO_REUSEADDR here, no other socket can bind the port while this one holds it, not even
    # with that option: two launchers never hold the same port.
    for port in _candidates():
        try:
            held.bind((address.host, port))
        except OSError:
            continue  # taken: try the next one
        break
    else:
        # No candidate is free: let the system choose. For a host of another machine, this raises.
        held.bind((address.host, 0))
    return int(held.getsockname()[1])


def _candidates() -> Iterable[int]:
    """Return some random ports below the ephemeral range, from which the system takes the local
    ports of outgoing connections. Such a connection could take the port between its release and the
    child's bind, and the launcher would then ask another program whether it is ready."""
    try:
        first = int(EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = USUAL_EPHEMERAL  # not Linux, or /proc is hidden
    below = range(LOWEST, first)  # empty if the operator has widened the ephemeral range
    # A random choice, so that launchers that start together try different ports.
    return random.SystemRandom().sample(below, min(TRIES, len(below)))
