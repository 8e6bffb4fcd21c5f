"""What happens to a packet by rules of `nft`, and how the tools' answers are put together."""

import json
import os
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from sidecar.doctor.host import Host, Unobservable
from sidecar.doctor.iptables import RuleSet
from sidecar.doctor.nftables import UNREAD, parse
from sidecar.doctor.packet_trace import Packet, TraceResult, trace
from tests.sidecar.doctor.recorded_host import AGENT, RECORDED, SIDECAR

FAR = {4: "203.0.113.9", 6: "2001:db8::9"}
PASSES = TraceResult(frozenset(), passes=True)
STOPPED = TraceResult(frozenset(), passes=False)
COMPLETE = (RECORDED / "complete.nft.json").read_text()
ACCEPT: dict[str, Any] = {"accept": None}
STATE = {"ct": {"key": "state"}}
NETWORK = {"prefix": {"addr": "203.0.113.0", "len": 24}}


def to(port: str) -> TraceResult:
    return TraceResult(frozenset({port}), passes=False)


def packet(place: str, port: int = 443, uid: int = AGENT, *, udp: bool = False) -> Packet:
    return Packet("udp" if udp else "tcp", ip_address(place), port, uid, 7)


@pytest.mark.parametrize(
    ("sent", "becomes"),
    [
        (packet(FAR[4]), to("8712")),
        (packet(FAR[6]), to("8712")),
        (packet(FAR[4], uid=0), to("8712")),
        (packet(FAR[6], uid=SIDECAR), PASSES),
        (packet(FAR[4], udp=True), STOPPED),
        (packet(FAR[6], 53, udp=True), STOPPED),
        (packet("10.96.0.10", 53, udp=True), PASSES),
        (packet("fd00::a", 53), PASSES),
        (packet("10.96.0.10", 54), to("8712")),
        (packet("10.96.0.1"), PASSES),
        (packet("10.96.0.1", 6443), to("8712")),
        (packet(FAR[4], 25), PASSES),
        (packet(FAR[6], 8005), PASSES),
        (packet(FAR[4], 8011), to("8712")),
        (packet("10.31.2.3"), PASSES),
        (packet("10.32.2.3"), to("8712")),
        (packet("fd00:7::1"), PASSES),
        (packet("fd00:7::1", udp=True), STOPPED),
        (packet("127.0.0.1", 8710), PASSES),
    ],
)
def test_complete_rules_redirect_every_connection(sent: Packet, becomes: TraceResult) -> None:
    assert trace(parse(COMPLETE, sent.to.version), sent) == becomes


def meta(key: str, right: Any, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": {"meta": {"key": key}}, "right": right}}


def field(protocol: str, name: str, right: Any, op: str = "==") -> dict[str, Any]:
    left = {"payload": {"protocol": protocol, "field": name}}
    return {"match": {"op": op, "left": left, "right": right}}


def rules(*expressions: list[Any], more: tuple[Any, ...] = (), version: int = 4) -> RuleSet:
    """One nat chain whose last rule redirects; `more` stands before its rules."""
    table = {"family": "inet", "table": "t"}
    base = {"name": "out", "hook": "output", "type": "nat", "prio": -100, "policy": "accept"}
    all_tcp = [meta("l4proto", "tcp"), {"redirect": {"port": 8712}}]
    items = [
        {"chain": table | base},
        *more,
        *({"rule": table | {"chain": "out", "expr": each}} for each in [*expressions, all_tcp]),
    ]
    return parse(json.dumps({"nftables": items}), version)


@pytest.mark.parametrize(
    ("conditions", "passes"),
    [
        ([field("ip", "daddr", "203.0.113.9")], True),
        ([field("ip", "daddr", "203.0.113.9", "!=")], False),
        ([field("ip", "daddr", {"range": ["203.0.113.3", "203.0.113.12"]})], True),
        ([field("ip", "daddr", {"set": ["10.0.0.1", NETWORK]})], True),
        ([field("ip6", "daddr", "::1", "!=")], False),
        ([meta("nfproto", "ipv6")], False),
        ([meta("nfproto", "ipv6", "!=")], True),
        ([field("tcp", "dport", 443)], True),
        ([field("tcp", "dport", 443, "!=")], False),
        ([field("udp", "dport", 443)], False),
        ([field("th", "dport", {"range": [400, 500]})], True),
        ([meta("skuid", {"set": [3, {"range": [900, 1100]}]})], True),
        ([meta("skuid", AGENT, "!=")], False),
        ([meta("skgid", 8)], False),
        ([meta("oifname", "eth*")], True),
        ([meta("oifname", {"set": ["lo", "wg0"]})], False),
        ([meta("mark", 1)], False),
        ([field("ip", "daddr", "@named")], True),
        ([field("ip", "daddr", "@empty")], False),
        ([field("ip", "daddr", "@empty", "!=")], True),
        ([{"counter": {"packets": 1, "bytes": 2}}], True),
        ([{"match": {"op": "in", "left": STATE, "right": "established"}}], False),
        ([{"match": {"op": "==", "left": STATE, "right": {"set": ["new", "invalid"]}}}], True),
    ],
)  # fmt: skip
def test_a_condition_is_read(conditions: list[Any], passes: bool) -> None:
    sets = tuple(
        {"set": {"family": "inet", "table": "t", "name": name, "elem": elements}}
        for name, elements in {"named": [{"elem": {"val": "203.0.113.9"}}], "empty": []}.items()
    )
    read = rules([*conditions, ACCEPT], more=sets)
    assert not [each for rule in read.outgoing() for each in rule.options if each.module == UNREAD]
    assert trace(read, packet(FAR[4])) == (PASSES if passes else to("8712"))


UNKNOWN = [
    [{"xt": {"type": "match", "name": "comment"}}, ACCEPT],
    [{"match": {"op": "==", "left": {"fib": {"result": "type"}}, "right": "local"}}, ACCEPT],
    [field("ip", "daddr", "@changing"), ACCEPT],
    [field("ip", "daddr", "@missing"), ACCEPT],
    [field("tcp", "dport", 5, "<"), ACCEPT],
    [field("ip", "daddr", {"concat": ["203.0.113.9", 443]}), ACCEPT],
    [{"limit": {"rate": 5, "per": "second"}}, ACCEPT],
    [{"vmap": {"key": {"meta": {"key": "l4proto"}}, "data": {"set": [["tcp", {"accept": None}]]}}}],
    [{"queue": {"num": 1}}],
    [{"of a later version": 7}],
    ["a text"],
]  # fmt: skip


@pytest.mark.parametrize("expressions", UNKNOWN)
def test_a_condition_that_cannot_be_read_may_let_packets_through(expressions: list[Any]) -> None:
    changing = {"family": "inet", "table": "t", "name": "changing", "flags": ["dynamic"]}
    read = rules(expressions, more=({"set": changing},))
    assert [each for rule in read.outgoing() for each in rule.options if each.module == UNREAD]
    assert trace(read, packet(FAR[4])) == TraceResult(frozenset({"8712"}), passes=True)


def test_chains_are_followed() -> None:
    table = {"family": "inet", "table": "t"}
    more = (
        {"chain": table | {"name": "ACCEPT"}},
        {"rule": table | {"chain": "ACCEPT", "expr": [field("tcp", "dport", 9), ACCEPT]}},
        {"rule": table | {"chain": "ACCEPT", "expr": [{"return": None}]}},
    )
    for jump in ("jump", "goto"):
        read = rules([{jump: {"target": "ACCEPT"}}], more=more)
        assert trace(read, packet(FAR[4], 9)) == PASSES
    # After `goto`, the end of the chain is the end of the one that went there.
    assert trace(rules([{"jump": {"target": "ACCEPT"}}], more=more), packet(FAR[4])) == to("8712")
    assert trace(rules([{"goto": {"target": "ACCEPT"}}], more=more), packet(FAR[4])) == PASSES


def test_a_mark_that_a_rule_sets_is_unknown_elsewhere() -> None:
    read = rules([{"mangle": {"key": {"meta": {"key": "mark"}}, "value": 1}}, ACCEPT])
    assert [each.target for each in read.outgoing()][:2] == ["MARK", "ACCEPT"]


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"nftables": 7}', '{"nftables": [7]}',
                                  '{"nftables": [{"rule": {"family": "ip"}}]}'])  # fmt: skip
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|Expecting|nft --json"):
        parse(text, 4)


# ------------------------------------------------------------------------------------------- tools

SAVED = (
    "# Generated by iptables-save v1.8.9 (nf_tables)\n*nat\n:OUTPUT ACCEPT [0:0]\n"
    "-A OUTPUT -p tcp -m comment --comment x -j REDIRECT --to-ports 8712\nCOMMIT\n"
)
OF_IPTABLES = {
    "nftables": [
        {"chain": {"family": "ip", "table": "nat", "name": "OUTPUT", "hook": "output",
                   "type": "nat", "prio": -100}},
        {"rule": {"family": "ip", "table": "nat", "chain": "OUTPUT",
                  "expr": [{"xt": {"type": "match", "name": "comment"}}, ACCEPT]}},
    ]
}  # fmt: skip


def host(folder: Path, **tools: str) -> Host:
    """A host with these tools, by what they print, or do if it begins with `!`."""
    for name, text in tools.items():
        path = folder / name.replace("_", "-")
        does = text[1:] if text.startswith("!") else f"cat <<'E'\n{text}\nE"
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)
    (folder / "net").mkdir(exist_ok=True)
    return Host(folder, str(folder))


def test_either_tool_is_enough_and_one_is_needed(tmp_path: Path) -> None:
    with pytest.raises(Unobservable, match="neither `iptables-save` nor `nft` is installed"):
        host(tmp_path).rules(4)
    assert trace(host(tmp_path, nft=COMPLETE).rules(6), packet(FAR[6])) == to("8712")
    both = host(tmp_path, iptables_save=SAVED)
    assert {"nat", "inet sluice"} == set(both.rules(4).tables)
    assert not both.rules(4).incomplete


def test_tables_of_iptables_are_read_by_its_own_tool(tmp_path: Path) -> None:
    made = host(tmp_path, nft=json.dumps(OF_IPTABLES), iptables_save=SAVED)
    assert set(made.rules(4).tables) == {"nat"}
    # A table of the other implementation has the same name, and both are in force.
    made = host(tmp_path, iptables_save=SAVED.replace("nf_tables", "legacy"))
    assert set(made.rules(4).tables) == {"nat", "ip nat"}
    incompatible = "# Table `nat' is incompatible, use 'nft' tool.\n*filter\nCOMMIT"
    made = host(tmp_path, iptables_save=incompatible)
    assert set(made.rules(4).tables) == {"filter", "ip nat"}
    assert made.rules(4).incomplete == ""


@pytest.mark.parametrize(
    ("said", "incomplete"),
    [
        ("!echo 'Operation not permitted (you must be root)' >&2; exit 1", "must be root"),
        ("!echo 'cache initialization failed: Protocol not supported' >&2; exit 1", ""),
        ("nonsense", "Expecting value"),
    ],
)
def test_a_failing_nft_is_reported(tmp_path: Path, said: str, incomplete: str) -> None:
    rules_there = host(tmp_path, nft=said, iptables_save=SAVED).rules(4)
    assert bool(incomplete) == bool(rules_there.incomplete)
    assert incomplete in rules_there.incomplete
    (tmp_path / "iptables-save").unlink()
    if incomplete:
        with pytest.raises(Unobservable, match=incomplete):
            host(tmp_path).rules(4)


def test_tables_that_nft_cannot_show_are_reported(tmp_path: Path) -> None:
    made = host(tmp_path, nft=COMPLETE)
    assert made.rules(4).incomplete == ""
    (tmp_path / "net" / "ip_tables_names").write_text("nat\nfilter\n")
    says = "tables of `iptables-legacy`, which `nft` can't read: nat, filter"
    assert made.rules(4).incomplete == says
    assert made.rules(6).incomplete == ""
    if os.geteuid() != 0:
        (tmp_path / "net" / "ip_tables_names").chmod(0)
        assert "EACCES (permission denied)" in made.rules(4).incomplete
