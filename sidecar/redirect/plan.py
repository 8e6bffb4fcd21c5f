"""Plans the packet-filter rules: where connections are redirected, whose connections are exempt,
and what else may leave the pod."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    collapse_addresses,
    ip_address,
    ip_network,
)
from typing import NamedTuple

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_USER = 2**32 - 2
"""The largest user id. The next number, 2**32 - 1, means "no change" to `setuid`."""
MAX_PORT = 65535
MAX_SKIPPED = 64
"""The most ports and ranges, and the most networks, that an annotation may exempt."""
WIDEST = {4: 8, 6: 32}
"""The shortest prefix of a network that an annotation may exempt, by IP version. Without a limit,
an annotation could exempt nearly all addresses, and nothing would be redirected."""
DNS = 53

# The addresses that prove the rules are in these ranges: the reserved ones and those of `proof.py`.
_DOCUMENTATION = {4: ip_network("192.0.2.0/24"), 6: ip_network("2001:db8::/32")}
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?\Z")
# Neither a zone (`%`) nor a netmask, both of which `ip_network` would take.
_NETWORK = re.compile(r"[0-9a-fA-F:.]{2,45}/[0-9]{1,3}\Z")


class UnusablePlan(ValueError):
    """the arguments make no usable rules; the message says which, and why"""


class PortRange(NamedTuple):
    """The TCP ports from `first` to `last`, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"


class Endpoint(NamedTuple):
    address: Address
    port: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.address.version == 6 else self.address
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RedirectPlan:
    port: int
    """The sidecar's `transparent` port, to which all TCP is redirected."""
    sidecar_user: int
    """The only user who is exempt. No group is: a container can choose its groups more freely."""
    skip_ports: tuple[PortRange, ...] = ()
    """TCP ports to which connections are not redirected, and so not judged."""
    skip_networks: tuple[Network, ...] = ()
    """Networks to which TCP connections are not redirected, and so not judged."""
    kubernetes_api: tuple[Endpoint, ...] = ()
    """The addresses of the cluster's API server, to which connections bypass the sidecar."""
    resolvers: tuple[Address, ...] = ()
    """The addresses to which DNS queries may be sent, over UDP and TCP."""

    @property
    def direct(self) -> tuple[Endpoint, ...]:
        """The single addresses and TCP ports to which connections are not redirected."""
        return (*self.kubernetes_api, *(Endpoint(each, DNS) for each in self.resolvers))

    def skips_address(self, address: Address) -> bool:
        return any(address in each for each in self.skip_networks)

    def skips(self, port: int) -> bool:
        return any(each.first <= port <= each.last for each in self.skip_ports)


def number(text: str, name: str, least: int, most: int) -> int:
    """Parse `text` as a whole number from `least` to `most`. Raises `UnusablePlan`, which names it
    as `name`."""
    if not (text.isascii() and text.isdigit() and least <= int(text[:12]) <= most):
        raise UnusablePlan(f"{name}: `{text[:40]}` is not a number from {least} to {most}")
    return int(text)


def _items(text: str, name: str) -> list[str]:
    items = [each.strip() for each in text.split(",") if each.strip()]
    if len(items) > MAX_SKIPPED:
        raise UnusablePlan(f"{name}: {len(items)} items; at most {MAX_SKIPPED} are possible")
    return items


def port_ranges(text: str) -> tuple[PortRange, ...]:
    """Parse ports and ranges with commas between them, such as `5432,8080-8090`. Returns them in
    order, with adjacent and overlapping ones merged. Raises `UnusablePlan`."""
    merged = _merged(_port_range(each) for each in _items(text, "skipped ports"))
    if merged == (PortRange(1, MAX_PORT),):
        raise UnusablePlan("skipped ports: these are all ports, so nothing would be judged")
    return merged


def _port_range(item: str) -> PortRange:
    match = _RANGE.match(item)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last <= MAX_PORT:
        neither = "is neither a port nor a range such as 8080-8090"
        raise UnusablePlan(f"skipped ports: `{item[:40]}` {neither}")
    return PortRange(first, last)


def _merged(ranges: Iterable[PortRange]) -> tuple[PortRange, ...]:
    # nft refuses a set whose ranges overlap.
    merged: list[PortRange] = []
    for each in sorted(ranges):
        if merged and each.first <= merged[-1].last + 1:
            merged[-1] = PortRange(merged[-1].first, max(merged[-1].last, each.last))
        else:
            merged.append(each)
    return tuple(merged)


def networks(text: str) -> tuple[Network, ...]:
    """Parse networks with commas between them, such as `10.20.0.0/16,2001:db8:7::/48`. Returns them
    merged, so that none overlap. Raises `UnusablePlan`."""
    found = [_network(each) for each in _items(text, "skipped networks")]
    # nft refuses a set whose networks overlap.
    return (
        *collapse_addresses(each for each in found if isinstance(each, IPv4Network)),
        *collapse_addresses(each for each in found if isinstance(each, IPv6Network)),
    )


def _network(item: str) -> Network:
    try:
        network = ip_network(item, strict=False) if _NETWORK.match(item) else None
    except ValueError:
        network = None
    if network is None:
        known = "a network such as 10.20.0.0/16 or fd00:7::/48"
        raise UnusablePlan(f"skipped networks: `{item[:50]}` is not {known}")
    widest = WIDEST[network.version]
    if network.prefixlen < widest:
        least = f"IPv{network.version} needs at least /{widest}"
        raise UnusablePlan(f"skipped networks: `{item}` is too wide; {least}")
    _keep_provable(network, "skipped networks")
    return network


def _keep_provable(network: Network, name: str) -> None:
    reserved = f"{_DOCUMENTATION[network.version]}, the addresses by which rules are proven"
    if network.overlaps(_DOCUMENTATION[network.version]):
        raise UnusablePlan(f"{name}: `{network}` overlaps {reserved}")


def endpoints(found: Iterable[Address], port: int, name: str) -> tuple[Endpoint, ...]:
    """Return each of these addresses once, with the port. Raises `UnusablePlan` for an address
    among those by which the rules are proven."""
    unique = tuple(dict.fromkeys(found))
    for each in unique:
        _keep_provable(ip_network(each), name)
    return tuple(Endpoint(each, port) for each in unique)


def addresses(text: str) -> tuple[Address, ...]:
    """Parse IP addresses with commas between them. Raises `UnusablePlan`."""
    # `ip_address` takes any text after a `%` for a zone, and that would end up in a script.
    if "%" in text:
        raise UnusablePlan("resolvers: an address must be given without its zone")
    try:
        found = [ip_address(each.strip()) for each in text.split(",") if each.strip()]
    except ValueError as error:
        raise UnusablePlan(f"resolvers: {error}") from error
    return tuple(dict.fromkeys(found))


def name_servers(resolv_conf: str) -> tuple[Address, ...]:
    found = []
    for line in resolv_conf.splitlines():
        words = line.split()
        if words[:1] == ["nameserver"] and len(words) > 1:
            try:
                # The zone in `fe80::1%eth0` names an interface; rules go by the address.
                found.append(ip_address(words[1].partition("%")[0]))
            except ValueError:
                continue
    return tuple(dict.fromkeys(found))
