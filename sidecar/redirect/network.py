"""Reads what the pod's network has from `/proc/net`, and finds the addresses of the cluster's API
server, to which a pod connects without its sidecar.

These come from the cluster's DNS, and not from KUBERNETES_SERVICE_HOST: the kubelet gives a Service
`kubernetes` of the pod's own namespace precedence over the real one (`getServiceEnvVarMap`), so a
user who may create Services there could name any address.
"""

import re
import socket
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

from sidecar.redirect.plan import MAX_PORT, Address, Endpoint, UnusablePlan, endpoints, number

PROC = Path("/proc/net")

_LOOPBACK = "lo"
_LINK_LOCAL = "20"
"""The scope in `if_inet6` of an address that reaches only its own link."""

KUBERNETES_API_OPTION = "--kubernetes-api"
MAX_ADDRESSES = 8
_ABSENT = (socket.EAI_NONAME, socket.EAI_NODATA)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z")


class Ipv6Address(NamedTuple):
    address: IPv6Address
    link_local: bool


def ipv6_addresses(proc: Path = PROC) -> list[Ipv6Address]:
    """Return the pod's own IPv6 addresses; empty where the kernel has no IPv6."""
    rows = [line.split() for line in _lines(proc / "if_inet6")]
    others = [row for row in rows if row[5] != _LOOPBACK]
    return [Ipv6Address(IPv6Address(bytes.fromhex(r[0])), r[3] == _LINK_LOCAL) for r in others]


def has_ipv4_route(proc: Path = PROC) -> bool:
    """Return whether IPv4 packets can leave by any interface other than loopback."""
    return any(line.split()[0] != _LOOPBACK for line in _lines(proc / "route")[1:])


def owner_of_accepted(peer: tuple[str, int], port: int, version: int) -> int | None:
    """Return the user of the local socket on `port` that is connected to `peer`; None if there is
    none."""
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
    """Return the addresses of `text`, such as `kubernetes.default.svc.cluster.local:443`, with its
    port. Empty if there is no such name. Raises `UnusablePlan`, and `Unresolved` if another try may
    succeed."""
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
