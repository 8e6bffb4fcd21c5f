"""What becomes of a packet that a process here sends, by packet-filter rules. Pure.

Where a rule asks what is not known here (a mark, a set, an address of ours), both answers are
followed, so the outcome is a set: a packet is safe only where every one of its outcomes is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network

from sidecar.doctor.iptables import Option, Rule, RuleChain, RuleSet

Address = IPv4Address | IPv6Address

STOPS = frozenset({"DROP", "REJECT"})
_GIVES_WAY = frozenset({"ACCEPT", "RETURN", *STOPS})
_TURNS = frozenset({"REDIRECT", "DNAT"})
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Packet:
    """The first of a connection. `protocol` is `tcp` or `udp`; `interface` where it goes out."""

    protocol: str
    to: Address
    port: int
    uid: int
    gid: int
    interface: str = "eth0"
    mark: int | None = 0
    """None where a rule may have set one; a process without capabilities can't."""


@dataclass(frozen=True, slots=True)
class Fate:
    """`turned` are the ports or addresses that it may be sent to instead, `passes` is whether it
    may leave as it is."""

    turned: frozenset[str]
    passes: bool


def fate(rules: RuleSet, packet: Packet) -> Fate:
    """By the `OUTPUT` chains, in the order in which the kernel asks them."""
    for table in ("raw", "mangle"):
        if _all_stop(rules, table, packet):
            return Fate(frozenset(), passes=False)
    outcomes = set(_outcomes(rules, "nat", packet))
    turned = frozenset(to for verdict, to in outcomes if verdict in _TURNS)
    as_it_is = any(verdict not in _TURNS | STOPS for verdict, _ in outcomes)
    return Fate(turned, as_it_is and not _all_stop(rules, "filter", packet))


def _all_stop(rules: RuleSet, table: str, packet: Packet) -> bool:
    return all(verdict in STOPS for verdict, _ in _outcomes(rules, table, packet))


Outcome = tuple[str, str]
"""A verdict, and where the packet goes instead."""


def _outcomes(rules: RuleSet, table: str, packet: Packet) -> Iterator[Outcome]:
    chains = rules.tables.get(table, {})
    output = chains.get("OUTPUT", RuleChain("ACCEPT"))
    for verdict, to in _walked(chains, output, packet, 0):
        yield (output.policy, "") if verdict == "RETURN" else (verdict, to)


def _walked(
    chains: dict[str, RuleChain], chain: RuleChain, packet: Packet, depth: int
) -> Iterator[Outcome]:
    """The outcomes of one chain; `RETURN` where the chain above goes on."""
    if depth > _DEEPEST:
        yield "ACCEPT", ""  # no ruleset that the kernel takes is so deep
        return
    for rule in chain.rules:
        applies = _applies(rule, packet)
        if applies is False:
            continue
        own = chains.get(rule.target)
        goes_on = applies is None
        if own is not None:
            for verdict, to in _walked(chains, own, packet, depth + 1):
                if verdict == "RETURN" and not rule.goto:
                    goes_on = True
                else:
                    yield verdict, to
        elif rule.target in _GIVES_WAY or rule.target in _TURNS:
            yield rule.target, rule.to
        else:
            goes_on = True  # it marks, counts or logs
        if not goes_on:
            return
    yield "RETURN", ""


def _applies(rule: Rule, packet: Packet) -> bool | None:
    """None where that can't be told."""
    unknown = False
    for option in rule.options:
        holds = _holds(option, packet)
        if holds is None:
            unknown = True
        elif holds is option.negated:
            return False
    return None if unknown else True


def _holds(option: Option, packet: Packet) -> bool | None:
    try:
        return _known(option.module, option.name, option.value, packet)
    except ValueError:
        return None  # a name where a number is usual


def _known(module: str, name: str, value: str, packet: Packet) -> bool | None:
    match module, name:
        case ("", "--protocol"):
            return value in (packet.protocol, "all", {"tcp": "6", "udp": "17"}[packet.protocol])
        case ("", "--destination"):
            network = ip_network(value, strict=False)
            return packet.to.version == network.version and packet.to in network
        case ("", "--out-interface"):
            begun = value.removesuffix("+")
            return packet.interface == value or (
                begun != value and packet.interface.startswith(begun)
            )
        case ("", "--fragment"):
            return False
        case ("tcp" | "udp", "--dport"):
            return packet.protocol == module and _in(value, packet.port)
        case ("multiport", "--dports"):
            return _in(value, packet.port)
        case ("owner", "--uid-owner"):
            return _in(value, packet.uid)
        case ("owner", "--gid-owner"):
            return _in(value, packet.gid)
        case ("mark", "--mark") if packet.mark is not None:
            wanted, _, mask = value.partition("/")
            return packet.mark & int(mask or "0xffffffff", 16) == int(wanted, 16)
        case ("owner", "--socket-exists") | ("comment", _):
            return True
        case ("conntrack", "--ctstate") | ("state", "--state"):
            return "NEW" in value.split(",")
        case _:
            return None


def _in(ranges: str, number: int) -> bool:
    """`443`, `1:1024,8080` or `1000-1999`."""
    for each in ranges.split(","):
        low, _, high = each.replace("-", ":").partition(":")
        if int(low or 0) <= number <= int(high or (low if ":" not in each else 65535)):
            return True
    return False
