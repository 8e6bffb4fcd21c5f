"""Which addresses a service may connect to when somebody else chose the name: webhooks of the
control API, upstreams of the sidecar. Public unicast addresses, and nothing else.

Every network here is in one of IANA's registries of special-purpose addresses (RFC 6890), or was,
and names the document that sets it apart. The standard library's `is_global` is no substitute: it
follows the registries of the day on which its Python was released, and takes addresses that hold
another one, such as 6to4's, for global. Pure.
"""

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_network,
)
from typing import NamedTuple

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

REASONS = (
    "unspecified", "loopback", "link_local", "private", "cgnat", "multicast", "embedded",
    "reserved",
)  # fmt: skip
"""Why an address is refused: the values of a metric's label."""


class ReservedRange(NamedTuple):
    """A network that is not public: one of `REASONS`, and the document that says so."""

    network: Network
    reason: str
    source: str


def _apart(network: str, reason: str, source: str) -> ReservedRange:
    return ReservedRange(ip_network(network), reason, source)


# INVARIANT: a network stands above those that contain it; the first that matches gives the reason.
NOT_PUBLIC = (
    _apart("0.0.0.0/32", "unspecified", "RFC 1122, section 3.2.1.3"),
    _apart("0.0.0.0/8", "reserved", "RFC 791, section 3.2: this network"),
    _apart("10.0.0.0/8", "private", "RFC 1918"),
    _apart("100.64.0.0/10", "cgnat", "RFC 6598: shared address space"),
    _apart("127.0.0.0/8", "loopback", "RFC 1122, section 3.2.1.3"),
    _apart("169.254.0.0/16", "link_local", "RFC 3927"),
    _apart("172.16.0.0/12", "private", "RFC 1918"),
    _apart("192.0.0.0/24", "reserved", "RFC 6890, section 2.1: IETF protocol assignments"),
    _apart("192.0.2.0/24", "reserved", "RFC 5737: documentation"),
    _apart("192.88.99.0/24", "reserved", "RFC 7526: 6to4 relays, deprecated"),
    _apart("192.168.0.0/16", "private", "RFC 1918"),
    _apart("198.18.0.0/15", "reserved", "RFC 2544: benchmarks"),
    _apart("198.51.100.0/24", "reserved", "RFC 5737: documentation"),
    _apart("203.0.113.0/24", "reserved", "RFC 5737: documentation"),
    _apart("224.0.0.0/4", "multicast", "RFC 5771"),
    _apart("240.0.0.0/4", "reserved", "RFC 1112, section 4; 255.255.255.255 is RFC 919"),
    _apart("::/128", "unspecified", "RFC 4291, section 2.5.2"),
    _apart("::1/128", "loopback", "RFC 4291, section 2.5.3"),
    # These hold an IPv4 address, to which some gateway would go on.
    _apart("::/96", "embedded", "RFC 4291, section 2.5.5.1: IPv4-compatible"),
    _apart("::ffff:0:0/96", "embedded", "RFC 4291, section 2.5.5.2: IPv4-mapped"),
    _apart("::ffff:0:0:0/96", "embedded", "RFC 2765, section 2.1: IPv4-translated"),
    _apart("64:ff9b::/96", "embedded", "RFC 6052, section 2.1: NAT64"),
    _apart("64:ff9b:1::/48", "embedded", "RFC 8215: NAT64 with a local prefix"),
    _apart("2001::/32", "embedded", "RFC 4380, section 2.6: Teredo"),
    _apart("2002::/16", "embedded", "RFC 3056, section 2: 6to4"),
    _apart("100::/64", "reserved", "RFC 6666: discard only"),
    _apart("100:0:0:1::/64", "reserved", "RFC 9780: dummy prefix"),
    # Benchmarks (2001:2::/48), ORCHID (2001:10::/28 and 2001:20::/28), anycast of protocols: no
    # data source and no receiver has an address here.
    _apart("2001::/23", "reserved", "RFC 2928: IETF protocol assignments"),
    _apart("2001:db8::/32", "reserved", "RFC 3849: documentation"),
    _apart("3fff::/20", "reserved", "RFC 9637: documentation"),
    _apart("5f00::/16", "reserved", "RFC 9602: SRv6 segment identifiers"),
    _apart("fc00::/7", "private", "RFC 4193: unique local"),
    _apart("fe80::/10", "link_local", "RFC 4291, section 2.5.6"),
    _apart("fec0::/10", "reserved", "RFC 3879: site-local, deprecated"),
    _apart("ff00::/8", "multicast", "RFC 4291, section 2.7"),
)

# All that IANA gives out for use on the internet (IPv6 Address Space registry; RFC 4291, section
# 2.4). The rest of IPv6 is not assigned yet.
_GLOBAL_UNICAST = ip_network("2000::/3")


def refusal(address: Address) -> str | None:
    """Why a name that somebody else chose may not lead to `address`: one of `REASONS`, None where
    it may."""
    for each in NOT_PUBLIC:
        if address in each.network:
            return each.reason
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "reserved"
    return None
