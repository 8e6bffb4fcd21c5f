"""Which addresses are public, checked against IANA's registries."""

from ipaddress import ip_address, ip_network

import pytest

from policies.ground.public_addresses import NOT_PUBLIC, REASONS, refusal

# IANA IPv4 and IPv6 Special-Purpose Address Registries, as of 2025: every block that is not
# globally reachable, and those that are but serve one protocol only or are deprecated.
IPV4 = """
0.0.0.0/8 0.0.0.0/32 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12
192.0.0.0/24 192.0.0.0/29 192.0.0.8/32 192.0.0.9/32 192.0.0.10/32 192.0.0.170/32 192.0.0.171/32
192.0.2.0/24 192.88.99.0/24 192.88.99.2/32 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24
203.0.113.0/24 240.0.0.0/4 255.255.255.255/32 224.0.0.0/4
"""
IPV6 = """
::1/128 ::/128 ::ffff:0:0/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23
2001::/32 2001:1::1/128 2001:1::2/128 2001:1::3/128 2001:2::/48 2001:3::/32 2001:4:112::/48
2001:10::/28 2001:20::/28 2001:30::/28 2001:db8::/32 2002::/16 3fff::/20 5f00::/16 fc00::/7
fe80::/10 fec0::/10 ff00::/8
"""
# The same registries: globally reachable, and ordinary unicast.
REACHABLE = """
192.31.196.0/24 192.52.193.0/24 192.175.48.0/24 2620:4f:8000::/48 1.0.0.0/8 8.8.8.0/24
100.63.255.0/24 100.128.0.0/24 126.0.0.0/8 128.0.0.0/16 169.253.0.0/16 172.15.0.0/16 172.32.0.0/16
192.0.1.0/24 192.88.98.0/24 192.169.0.0/16 198.17.0.0/16 198.20.0.0/16 223.255.255.0/24 2000::/16
2001:200::/23 2001:4860::/32 2003::/16 2606:4700::/32 3ffe::/16
"""


def _edges(network: str) -> list[str]:
    block = ip_network(network)
    return [str(block[0]), str(block[block.num_addresses // 2]), str(block[-1])]


@pytest.mark.parametrize("network", [*IPV4.split(), *IPV6.split()])
def test_no_special_purpose_address_is_public(network: str) -> None:
    assert {refusal(ip_address(each)) for each in _edges(network)} <= set(REASONS)


@pytest.mark.parametrize("network", REACHABLE.split())
def test_neighbours_of_special_addresses_are_public(network: str) -> None:
    assert {refusal(ip_address(each)) for each in _edges(network)} == {None}


@pytest.mark.parametrize("inner", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "8.8.8.8"])
def test_an_address_within_another_is_not_public(inner: str) -> None:
    """In every form that embeds one, even if the embedded address is public: a gateway that someone
    else chose would forward to it."""
    number = int(ip_address(inner))
    forms = {
        "compatible": number,
        "mapped": 0xFFFF << 32 | number,
        "translated": 0xFFFF << 48 | number,
        "NAT64": 0x64FF9B << 96 | number,
        "local NAT64": 0x64FF9B0001 << 80 | number,
        "6to4": 0x2002 << 112 | number << 80 | 1,
        "Teredo": 0x20010000 << 96 | number << 64 | (number ^ 0xFFFFFFFF),
    }
    for form, value in forms.items():
        assert refusal(ip_address(value.to_bytes(16))) == "embedded", form


@pytest.mark.parametrize(
    "network", ["4000::/3", "6000::/3", "8000::/1", "e000::/4", "200::/7", "400::/6", "1000::/4"]
)
def test_an_unassigned_address_is_not_public(network: str) -> None:
    assert None not in {refusal(ip_address(each)) for each in _edges(network)}


def test_a_scope_does_not_change_the_kind_of_an_address() -> None:
    assert refusal(ip_address("fe80::1%lo")) == "link_local"
    assert refusal(ip_address("fec0::1%1")) == "reserved"


def test_every_entry_is_reachable_and_names_its_source() -> None:
    for entry in NOT_PUBLIC:
        assert entry.source.startswith("RFC ")
        assert refusal(entry.network[0]) in REASONS
        assert refusal(entry.network[-1]) == entry.reason
    assert {entry.reason for entry in NOT_PUBLIC} == set(REASONS)
