"""The check against SSRF (server-side request forgery: an attacker makes us call a server that only
we can reach): decides to which addresses a service may connect when someone else chose the name, as
with webhooks of the control API and upstreams of the sidecar. Allows only public unicast addresses.

Every network here is or was in one of IANA's registries of special-purpose addresses (RFC 6890),
and cites the document that reserves it. The standard library's `is_global` is no substitute: it
follows the registries as they were when that Python was released, and treats addresses that embed
another address, such as 6to4's, as global.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import NamedTuple

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

REASONS = (
    "unspecified", "loopback", "link_local", "private", "cgnat", "multicast", "embedded",
    "reserved",
)  # fmt: skip
"""The reasons for which `refusal` refuses an address. They are also the values of a metric's
label."""


class ReservedRange(NamedTuple):
    """A network whose addresses are not public, the reason (one of `REASONS`), and the document
    that reserves it."""

    network: Network
    reason: str
    source: str


def _reserved(network: str, reason: str, source: str) -> ReservedRange:
    return ReservedRange(ip_network(network), reason, source)


# INVARIANT: a network comes before those that contain it; the first match gives the reason.
NOT_PUBLIC = (
    _reserved("0.0.0.0/32", "unspecified", "RFC 1122, section 3.2.1.3"),
    _reserved("0.0.0.0/8", "reserved", "RFC 791, section 3.2: this network"),
    _reserved("10.0.0.0/8", "private", "RFC 1918"),
    _reserved("100.64.0.0/10", "cgnat", "RFC 6598: shared address space"),
    _reserved("127.0.0.0/8", "loopback", "RFC 1122, section 3.2.1.3"),
    _reserved("169.254.0.0/16", "link_local", "RFC 3927"),
    _reserved("172.16.0.0/12", "private", "RFC 1918"),
    _reserved("192.0.0.0/24", "reserved", "RFC 6890, section 2.1: IETF protocol assignments"),
    _reserved("192.0.2.0/24", "reserved", "RFC 5737: documentation"),
    _reserved("192.88.99.0/24", "reserved", "RFC 7526: 6to4 relays, deprecated"),
    _reserved("192.168.0.0/16", "private", "RFC 1918"),
    _reserved("198.18.0.0/15", "reserved", "RFC 2544: benchmarks"),
    _reserved("198.51.100.0/24", "reserved", "RFC 5737: documentation"),
    _reserved("203.0.113.0/24", "reserved", "RFC 5737: documentation"),
    _reserved("224.0.0.0/4", "multicast", "RFC 5771"),
    _reserved("240.0.0.0/4", "reserved", "RFC 1112, section 4; 255.255.255.255 is RFC 919"),
    _reserved("::/128", "unspecified", "RFC 4291, section 2.5.2"),
    _reserved("::1/128", "loopback", "RFC 4291, section 2.5.3"),
    # These embed an IPv4 address, and some gateway would forward to it.
    _reserved("::/96", "embedded", "RFC 4291, section 2.5.5.1: IPv4-compatible"),
    _reserved("::ffff:0:0/96", "embedded", "RFC 4291, section 2.5.5.2: IPv4-mapped"),
    _reserved("::ffff:0:0:0/96", "embedded", "RFC 2765, section 2.1: IPv4-translated"),
    _reserved("64:ff9b::/96", "embedded", "RFC 6052, section 2.1: NAT64"),
    _reserved("64:ff9b:1::/48", "embedded", "RFC 8215: NAT64 with a local prefix"),
    _reserved("2001::/32", "embedded", "RFC 4380, section 2.6: Teredo"),
    _reserved("2002::/16", "embedded", "RFC 3056, section 2: 6to4"),
    _reserved("100::/64", "reserved", "RFC 6666: discard only"),
    _reserved("100:0:0:1::/64", "reserved", "RFC 9780: dummy prefix"),
    # Benchmarks (2001:2::/48), ORCHID (2001:10::/28 and 2001:20::/28) and protocol anycast: no data
    # source and no webhook receiver has an address here.
    _reserved("2001::/23", "reserved", "RFC 2928: IETF protocol assignments"),
    _reserved("2001:db8::/32", "reserved", "RFC 3849: documentation"),
    _reserved("3fff::/20", "reserved", "RFC 9637: documentation"),
    _reserved("5f00::/16", "reserved", "RFC 9602: SRv6 segment identifiers"),
    _reserved("fc00::/7", "private", "RFC 4193: unique local"),
    _reserved("fe80::/10", "link_local", "RFC 4291, section 2.5.6"),
    _reserved("fec0::/10", "reserved", "RFC 3879: site-local, deprecated"),
    _reserved("ff00::/8", "multicast", "RFC 4291, section 2.7"),
)

# All that IANA has assigned as global unicast (IPv6 Address Space registry; RFC 4291, section 2.4).
# The rest of IPv6 is not assigned yet.
_GLOBAL_UNICAST = ip_network("2000::/3")


def refusal(address: Address) -> str | None:
    """Return the reason why a service may not connect to `address` when someone else chose the name
    that resolved to it; None if it may. The reason is one of `REASONS`."""
    for each in NOT_PUBLIC:
        if address in each.network:
            return each.reason
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "reserved"
    return None
