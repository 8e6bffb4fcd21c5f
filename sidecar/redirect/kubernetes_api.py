"""Finds the addresses of the cluster's API server, to which a pod connects without its sidecar.

They come from the cluster's DNS, and not from KUBERNETES_SERVICE_HOST: the kubelet gives a Service
`kubernetes` of the pod's own namespace precedence over the real one (`getServiceEnvVarMap`), so
a user who may create Services there could name any address. Sets no rule.
"""

import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

from sidecar.redirect.plan import MAX_PORT, Address, Endpoint, UnusablePlan, endpoints, number

OPTION = "--kubernetes-api"
MAX_ADDRESSES = 8
_ABSENT = (socket.EAI_NONAME, socket.EAI_NODATA)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z")


class Unresolved(Exception):
    """the name of the API server can't be resolved now; the message says why"""


def kubernetes_api(text: str) -> tuple[Endpoint, ...]:
    """The addresses of `text`, such as `kubernetes.default.svc.cluster.local:443`, with its port.
    Empty if there is no such name. Raises `UnusablePlan`, and `Unresolved` where another try may
    succeed."""
    host, _, port_text = text.rpartition(":")
    port = number(port_text, OPTION, 1, MAX_PORT)
    literal = _literal(host)
    if literal is None and not _NAME.match(host):
        raise UnusablePlan(f"{OPTION}: `{host[:80]}` is neither a name nor an IP address")
    found = [literal] if literal is not None else _resolved(host)
    return endpoints(found[:MAX_ADDRESSES], port, OPTION)


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
        raise Unresolved(f"{OPTION}: `{name}` can't be resolved: {error.strerror}") from error
    # A scope, as in `fe80::1%eth0`, names an interface; rules go by the address.
    return [ip_address(str(each[4][0]).partition("%")[0]) for each in found]
