"""What the pod's network has: addresses and routes of each IP version, and connections.

Reads `/proc/net`. Changes nothing.
"""

import socket
import sys
from ipaddress import IPv6Address
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc/net")

_LOOPBACK = "lo"
_LINK_LOCAL = "20"
"""The scope in `if_inet6` of an address that reaches only its own link."""


class Ipv6Address(NamedTuple):
    """One address of an interface other than loopback."""

    address: IPv6Address
    link_local: bool


def ipv6_addresses(proc: Path = PROC) -> list[Ipv6Address]:
    """The pod's own IPv6 addresses; empty where the kernel has no IPv6."""
    rows = [line.split() for line in _lines(proc / "if_inet6")]
    return [
        Ipv6Address(IPv6Address(bytes.fromhex(row[0])), row[3] == _LINK_LOCAL)
        for row in rows
        if row[5] != _LOOPBACK
    ]


def has_ipv4_route(proc: Path = PROC) -> bool:
    """Whether IPv4 packets can leave by any interface other than loopback."""
    return any(line.split()[0] != _LOOPBACK for line in _lines(proc / "route")[1:])


def owner_of_accepted(peer: tuple[str, int], port: int, version: int) -> int | None:
    """The user of the local socket on `port` that is connected to `peer`; None if there is none."""
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
