"""Binds listening sockets, for the IP versions that this machine has. Also tells systemd that the
service is ready."""

import errno
import socket
from typing import Any

from policies.ground.addresses import EVERY, ListenAddress

BACKLOG = 1024
_NO_SUCH_VERSION = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""The error numbers by which the system says that it has no IPv4, or no IPv6."""
_Info = tuple[int, int, int, str, tuple[Any, ...]]
"""One result of `socket.getaddrinfo`."""


class CannotListen(Exception):
    """the service can't listen on the address"""


def bind(address: ListenAddress, setting: str, count: int = 1) -> list[list[socket.socket]]:
    """Bind `count` sets of listening sockets for `address`, one set per worker. A set has several
    sockets if the host is `*` or a name with several addresses. Raises `CannotListen`, which names
    the setting."""
    # Each worker has its own socket on the same port (SO_REUSEPORT), so the kernel spreads
    # connections evenly by their addresses. If all workers accepted from one socket, the first to
    # wake would take most: of 64 connections that arrived at once, one worker of four took 54.
    opened: list[list[socket.socket]] = []
    try:
        infos = _infos(address)
        ports: dict[object, int] = {}
        for index in range(count):
            opened.append([])
            for family, kind, protocol, _, target in dict.fromkeys(infos):
                if index == 0 and count > 1 and address.port:
                    # SO_REUSEPORT would silently share the port with another service that the same
                    # user runs, so first check that the port is free.
                    _open(family, kind, protocol, target, shared=False).close()
                # For port 0 the system chooses a port for the first set; the others share it.
                chosen = (target[0], ports.get(target, target[1]), *target[2:])
                made = _open(family, kind, protocol, chosen, shared=count > 1)
                ports[target] = made.getsockname()[1]
                opened[-1].append(made)
    except OSError as error:
        for made in (each for some in opened for each in some):
            made.close()
        raise CannotListen(
            f"{setting}: can't listen on `{address}`: {error.strerror or error}"
        ) from error
    return opened


def bound(address: ListenAddress, sockets: list[socket.socket]) -> ListenAddress:
    """Return the address on which `sockets` listen, with the port that the system chose if 0 was
    asked for. `sockets` is a set that `bind` made for `address`."""
    if address.host == EVERY:
        return address
    return ListenAddress(*sockets[0].getsockname()[:2])


def hosts_to_bind(address: ListenAddress) -> list[str]:
    """Return the hosts of `address` that should be bound. For `*`, these are `0.0.0.0` and `::`,
    without the one whose IP version this machine lacks: a pod of a cluster with one version need
    not have the other."""
    if address.host != EVERY:
        return [address.host]
    # With neither, keep both: binding them tells why.
    return [host for host in address.hosts if can_bind(host)] or list(address.hosts)


def can_bind(host: str) -> bool:
    """Return whether this machine has the IP version of the address `host`, and the address itself.
    Return True for any other error, which will show when the port is opened."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.bind((host, 0))
    except OSError as error:
        # Any other fault is reported when the port opens, which must not miss a version silently.
        return error.errno not in _NO_SUCH_VERSION
    return True


def _infos(address: ListenAddress) -> list[_Info]:
    """Return the results of `getaddrinfo` for each host that should be bound."""
    return [
        info
        for host in hosts_to_bind(address)
        for info in socket.getaddrinfo(
            host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    ]


def _open(
    family: int, kind: int, protocol: int, target: tuple[object, ...], *, shared: bool
) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        # A restart must not wait until the last connections have left TIME_WAIT.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # IPv4 gets a socket of its own, with which a dual-stack socket would collide.
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.setblocking(False)
        made.bind(target)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def notify_ready(address: str | None) -> None:
    """Send `READY=1` to systemd's socket at `address`, the value of NOTIFY_SOCKET; do nothing if it
    is None or empty. Raises `OSError`, since systemd would wait for the message, and then stop the
    service."""
    if not address:
        return
    # `@` stands for the zero byte of an abstract socket (sd_notify(3)).
    path = f"\0{address[1:]}" if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(path)
        sender.sendall(b"READY=1")
