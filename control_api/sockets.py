"""Binds listening sockets. Knows no server and no route."""

import socket

from policies.ground.listen_address import ListenAddress

BACKLOG = 1024


class CannotListen(Exception):
    """the service can't listen on the address"""


def bind(address: ListenAddress, setting: str, count: int = 1) -> list[list[socket.socket]]:
    """`count` sets of listening sockets for `address`, one set per worker. A set has several
    sockets if the host is a name with several addresses. Raises `CannotListen`, which names the
    setting."""
    # Each worker has its own socket on the same port (SO_REUSEPORT), so the kernel spreads
    # connections evenly by their addresses. If all workers accepted from one socket, the first to
    # wake would take most: of 64 connections that arrived at once, one worker of four took 54.
    opened: list[list[socket.socket]] = []
    try:
        infos = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
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
