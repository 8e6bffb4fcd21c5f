"""The texts of annotations and of `resolv.conf`, and the rules made of them."""

import re
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from sidecar.proxy.tunnel.redirect_check import RESERVED
from sidecar.redirect import packet_filter
from sidecar.redirect.packet_filter import Ran, RulesFailed, apply, iptables_script, nft_script
from sidecar.redirect.plan import (
    Endpoint,
    PortRange,
    RedirectPlan,
    UnusablePlan,
    addresses,
    name_servers,
    networks,
    port_ranges,
)
from sidecar.redirect.proof import DOCUMENTATION_ADDRESS, Unresolved, kubernetes_api
from tests.support.documents import put

PLAN = RedirectPlan(8712, 20102)
FULL = replace(
    PLAN,
    skip_ports=(PortRange(25, 25), PortRange(8000, 8010)),
    skip_networks=networks("10.20.0.0/16,10.30.0.0/16,fd00:7::/48"),
    kubernetes_api=(Endpoint(ip_address("10.96.0.1"), 443),),
    resolvers=(ip_address("10.96.0.10"), ip_address("fd00::a")),
)


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("", []),
        (" , ", []),
        ("5432", [(5432, 5432)]),
        ("8080-8090, 25", [(25, 25), (8080, 8090)]),
        ("1-10,5-20,21,30", [(1, 21), (30, 30)]),
        ("1-65534,80", [(1, 65534)]),
    ],
)
def test_ports_are_read_and_merged(text: str, ranges: list[tuple[int, int]]) -> None:
    assert [tuple(each) for each in port_ranges(text)] == ranges


HOSTILE = [
    "0", "65536", "90-80", "-1", "1-", "1--2", "http", "80 } accept", "80\n443", "٨٠", "80;443",
    "100000000000000000000", "1-65535", "1-100,100-65535", ",".join(map(str, range(1, 131, 2))),
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_annotation_is_refused(text: str) -> None:
    with pytest.raises(UnusablePlan, match="skipped ports"):
        port_ranges(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("10.20.0.0/16", ["10.20.0.0/16"]),
        ("fd00:7::/48, 10.0.0.0/8", ["10.0.0.0/8", "fd00:7::/48"]),
        ("10.1.2.3/24,10.1.2.128/25,10.1.3.0/24", ["10.1.2.0/23"]),
        ("198.51.100.7/32,FD00::1/128", ["198.51.100.7/32", "fd00::1/128"]),
    ],
)
def test_networks_are_read_and_merged(text: str, expected: list[str]) -> None:
    assert list(map(str, networks(text))) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, "is not a network") for text in (
            "10.0.0.0", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "10.0.0/24", "010.0.0.0/8",
            "fd00::/129", "fe80::1%eth0/64", "kb.test/24", "10.0.0.0/8 } accept",
            "10.0.0.0/8\naccept", "/24", "١٠.0.0.0/8", "10.0.0.0/+8", "::/", "1:2:3:4:5:6:7:8:9/64",
        )),
        *((text, "too wide") for text in ("0.0.0.0/0", "::/0", "10.0.0.0/7", "fd00::/31")),
        *((text, "by which rules are proven") for text in (
            "192.0.0.0/8", "192.0.2.0/24", "192.0.2.21/32", "192.0.2.99/32", "2001:db8::/32",
            "2001:db8::21/128", "2001:0DB8:1::/48",
        )),
        (",".join(f"10.{each}.0.0/16" for each in range(65)), "65 items; at most 64"),
    ],
)  # fmt: skip
def test_networks_that_would_undo_the_redirection_are_refused(text: str, says: str) -> None:
    with pytest.raises(UnusablePlan, match=f"(?s)skipped networks: .*{says}"):
        networks(text)


def test_addresses_that_prove_the_rules_cannot_be_skipped() -> None:
    for address in (*RESERVED.values(), *DOCUMENTATION_ADDRESS.values()):
        with pytest.raises(UnusablePlan, match="by which rules are proven"):
            networks(f"{address}/{ip_address(address).max_prefixlen}")
        with pytest.raises(UnusablePlan, match="by which rules are proven"):
            kubernetes_api(f"[{address}]:443" if ":" in address else f"{address}:443")


def test_the_api_server_is_a_name_or_an_address_with_a_port() -> None:
    assert kubernetes_api("10.96.0.1:443") == (Endpoint(ip_address("10.96.0.1"), 443),)
    assert list(map(str, kubernetes_api("[fd00::1]:6443"))) == ["[fd00::1]:6443"]
    # RFC 6761: never a name. No resolver may be needed to say so, so either answer will do.
    with suppress(Unresolved):
        assert kubernetes_api("kubernetes.invalid:443") == ()
    for text in ("", "10.96.0.1", "10.96.0.1:0", "10.96.0.1:https", "fe80::1%lo:443", "::1:443",
                 "a b:443", "kb.test }:443", "-a:443", ".:443", "10.96.0.0/16:1"):  # fmt: skip
        with pytest.raises(UnusablePlan, match="--kubernetes-api"):
            kubernetes_api(text)


def test_addresses_are_only_addresses() -> None:
    assert addresses("10.96.0.10, fd00::a,10.96.0.10") == FULL.resolvers
    for text in ("10.0.0.0/8", "kube-dns", "10.0.0.1 } accept", "fe80::1%lo\naccept"):
        with pytest.raises(UnusablePlan):
            addresses(text)


def test_name_servers_are_those_of_resolv_conf() -> None:
    text = "search svc\nnameserver 10.96.0.10\n#nameserver 1.1.1.1\nnameserver\nnameserver x\n"
    assert name_servers(text + "nameserver fe80::1%eth0") == (
        ip_address("10.96.0.10"),
        ip_address("fe80::1"),
    )


def scripts(plan: RedirectPlan) -> dict[str, list[str]]:
    """The rules in order, by the part of the packet filter that they are in."""
    text = nft_script(plan)
    nat, refuse = text.split("chain nothing_else")
    return {
        "nft nat": nat.splitlines(),
        "nft filter": refuse.splitlines(),
        **{
            f"{table} {version}": iptables_script(plan, version, table, hooked=False).splitlines()
            for table in ("nat", "filter")
            for version in (4, 6)
        },
    }


@pytest.mark.parametrize("part", list(scripts(FULL)))
def test_only_the_sidecars_user_is_exempt_and_after_the_reserved_address(part: str) -> None:
    rules = scripts(FULL)[part]
    text = "\n".join(rules)
    assert "gid" not in text
    exempt = [index for index, rule in enumerate(rules) if "20102" in rule]
    reserved = [index for index, rule in enumerate(rules) for each in RESERVED.values()
                if re.search(rf"{re.escape(each)}\b", rule)]  # fmt: skip
    assert len(exempt) == 1
    assert reserved
    assert max(reserved) < exempt[0]


def test_only_requested_exceptions_pass() -> None:
    for rules in scripts(PLAN).values():
        passing = [rule for rule in rules if re.search(r" accept$|RETURN", rule)]
        assert all(re.search(r"20102|127\.0\.0\.0/8|::1", rule) for rule in passing)
    added = {part: len(rules) - len(scripts(PLAN)[part]) for part, rules in scripts(FULL).items()}
    assert added == {
        "nft nat": 6, "nft filter": 8,
        "nat 4": 6, "nat 6": 4, "filter 4": 7, "filter 6": 5,
    }  # fmt: skip


class Programs:
    """Programs that fail if their arguments say so, and what they were told."""

    def __init__(self, failing: str) -> None:
        self.failing = failing
        self.told: list[str] = []

    def __call__(self, arguments: object, given: str) -> Ran:
        self.told.append(str(arguments))
        return Ran(1, "no such table") if self.failing in self.told[-1] else Ran(0, "")


def test_rules_for_ipv6_may_be_missing_only_in_a_pod_without_ipv6(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("iptables", "iptables-restore", "ip6tables", "ip6tables-restore"):
        put(tmp_path, name, "#!/bin/sh\n")
    monkeypatch.setattr(packet_filter, "FOLDERS", str(tmp_path))
    programs = Programs("ip6tables-restore")
    with pytest.raises(RulesFailed, match="ip6tables-restore failed"):
        apply(PLAN, "iptables", has_ipv6=True, run=programs)
    tool, notes = apply(PLAN, "iptables", has_ipv6=False, run=programs)
    assert tool == "iptables"
    assert "no rules for IPv6, which this pod does not have" in notes[0]
    # An absolute name, and the filter first: what is not redirected yet fails, and does not pass.
    started = [each for each in programs.told if "-restore" in each]
    assert all(each.startswith("['/") for each in started)
