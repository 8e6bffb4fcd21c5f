"""What the packet filter is to do: where connections go, whose are exempt, what else may leave.

Reads the texts of arguments and of `resolv.conf`. Knows no tool and no rule's syntax.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

Address = IPv4Address | IPv6Address

MAX_USER = 2**32 - 2
"""The largest user id; 2**32 - 1 means "no change" to setuid."""
MAX_PORT = 65535
MAX_SKIPPED = 64
"""The most ports or ranges that an annotation may exempt."""

_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?\Z")


class UnusablePlan(ValueError):
    """the arguments make no usable rules; the message says which, and why"""


class PortRange(NamedTuple):
    """The TCP ports from `first` to `last`, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RedirectPlan:
    """All that the rules depend on."""

    port: int
    """The sidecar's `transparent` port, to which all TCP is redirected."""
    sidecar_user: int
    """The only user whose connections are exempt. Never a group: a container may choose its groups
    more freely than its user."""
    skip_ports: tuple[PortRange, ...] = ()
    """TCP ports to which connections are not redirected, and so not judged."""
    resolvers: tuple[Address, ...] = ()
    """The addresses that take DNS queries over UDP."""

    def skips(self, port: int) -> bool:
        """Whether connections to `port` are not redirected."""
        return any(each.first <= port <= each.last for each in self.skip_ports)


def number(text: str, name: str, least: int, most: int) -> int:
    """`text` as a number in that range. Raises `UnusablePlan`."""
    if not (text.isascii() and text.isdigit() and least <= int(text[:12]) <= most):
        raise UnusablePlan(f"{name}: `{text[:40]}` is not a number from {least} to {most}")
    return int(text)


def port_ranges(text: str) -> tuple[PortRange, ...]:
    """Ports and ranges with commas between them, such as `5432,8080-8090`, in order and merged.
    Raises `UnusablePlan`."""
    items = [each.strip() for each in text.split(",") if each.strip()]
    if len(items) > MAX_SKIPPED:
        raise UnusablePlan(f"skipped ports: {len(items)} items; at most {MAX_SKIPPED} are possible")
    return _merged(_port_range(each) for each in items)


def _port_range(item: str) -> PortRange:
    match = _RANGE.match(item)
    first = int(match[1]) if match else 0
    last = int(match[2] or match[1]) if match else 0
    if not 1 <= first <= last <= MAX_PORT:
        raise UnusablePlan(
            f"skipped ports: `{item[:40]}` is neither a port nor a range such as 8080-8090"
        )
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


def addresses(text: str) -> tuple[Address, ...]:
    """Addresses with commas between them. Raises `UnusablePlan`."""
    # `ip_address` takes any text after a `%` for a zone, and that would end up in a script.
    if "%" in text:
        raise UnusablePlan("resolvers: an address must be given without its zone")
    try:
        found = [ip_address(each.strip()) for each in text.split(",") if each.strip()]
    except ValueError as error:
        raise UnusablePlan(f"resolvers: {error}") from error
    return tuple(dict.fromkeys(found))


def name_servers(resolv_conf: str) -> tuple[Address, ...]:
    """The name servers in the text of a `resolv.conf`. Lines that no resolver reads are ignored."""
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
