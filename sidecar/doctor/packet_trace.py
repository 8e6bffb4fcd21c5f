"""Traces a packet of a local process through the packet-filter rules.

If a rule depends on something unknown here (a mark, a set), the trace follows both branches: a
packet counts as stopped or redirected only if that is the outcome of every branch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network

from sidecar.doctor.iptables import Hook, Option, Rule, RuleChain, RuleSet

Address = IPv4Address | IPv6Address

STOPS = frozenset({"DROP", "REJECT"})
_VERDICTS = frozenset({"ACCEPT", "RETURN", *STOPS})
_REDIRECTS = frozenset({"REDIRECT", "DNAT"})
_NAT_PRIORITY = -100
"""The priority at which the kernel runs all nat chains. A nat chain's own priority only orders it
among these."""
_MAX_DEPTH = 32

Outcome = tuple[str, str]
"""The result of one chain: a verdict, and the target if the verdict is a redirect."""


@dataclass(frozen=True, slots=True)
class Packet:
    """The first packet of a connection. `protocol` is `tcp` or `udp`; the packet leaves by
    `interface`."""

    protocol: str
    to: Address
    port: int
    uid: int
    gid: int
    interface: str = "eth0"
    mark: int | None = 0
    """The packet's mark; None if a rule may have set it. A process without capabilities can't set
    one itself."""


@dataclass(frozen=True, slots=True)
class TraceResult:
    """The result of a trace. `redirected_to` holds the ports or addresses that the packet may be
    redirected to; `passes` is True if it may leave unchanged."""

    redirected_to: frozenset[str]
    passes: bool


def trace(rules: RuleSet, packet: Packet) -> TraceResult:
    """Trace `packet` through the chains of all hooks, in the kernel's order."""
    stopped = False
    for hook in sorted(each for each in rules.hooks if not each.nat):
        if all(verdict in STOPS for verdict, _ in _outcomes(rules, hook, packet)):
            if hook.priority < _NAT_PRIORITY:
                return TraceResult(frozenset(), passes=False)
            # A packet that was redirected has another destination by now, and goes on.
            stopped = True
    redirected_to: set[str] = set()
    unchanged = True
    # The first chain that redirects a connection decides.
    for hook in sorted(each for each in rules.hooks if each.nat):
        outcomes = set(_outcomes(rules, hook, packet))
        redirected_to |= {to for verdict, to in outcomes if verdict in _REDIRECTS}
        unchanged = any(verdict not in _REDIRECTS | STOPS for verdict, _ in outcomes)
        if not unchanged:
            break
    return TraceResult(frozenset(redirected_to), unchanged and not stopped)


def _outcomes(rules: RuleSet, hook: Hook, packet: Packet) -> Iterator[Outcome]:
    chains = rules.tables.get(hook.table, {})
    output = chains.get(hook.chain, RuleChain("ACCEPT"))
    for verdict, to in _walk(chains, output, packet, 0):
        yield (output.policy, "") if verdict == "RETURN" else (verdict, to)


def _walk(
    chains: dict[str, RuleChain], chain: RuleChain, packet: Packet, depth: int
) -> Iterator[Outcome]:
    """Yield the possible outcomes of one chain; `RETURN` means that the calling chain continues."""
    if depth > _MAX_DEPTH:
        # The kernel accepts no rule set this deep, and rejects loops. ACCEPT is the worse case.
        yield "ACCEPT", ""
        return
    for rule in chain.rules:
        applies = _applies(rule, packet)
        if applies is False:
            continue
        own = chains.get(rule.target)
        # If the rule may apply, both happen: its target takes effect, and the chain goes on.
        continues = applies is None
        if own is not None:
            for verdict, to in _walk(chains, own, packet, depth + 1):
                # After `-g` a RETURN goes back to the caller of this chain (iptables(8)).
                if verdict == "RETURN" and not rule.goto:
                    continues = True
                else:
                    yield verdict, to
        elif rule.target in _VERDICTS or rule.target in _REDIRECTS:
            yield rule.target, rule.to
        else:
            continues = True  # the target marks, counts or logs
        if not continues:
            return
    yield "RETURN", ""


def _applies(rule: Rule, packet: Packet) -> bool | None:
    """Return whether all conditions of the rule hold for the packet; None if that depends on
    something unknown."""
    answers = [(_condition_holds(option, packet), option.negated) for option in rule.options]
    # One condition that does not hold rules the packet out for certain, whatever is unknown.
    if any(holds is negated for holds, negated in answers):
        return False
    return None if any(holds is None for holds, _ in answers) else True


def _condition_holds(option: Option, packet: Packet) -> bool | None:
    try:
        return _matches(option.module, option.name, option.value, packet)
    except ValueError:
        return None  # a name, such as a user's, instead of a number


def _matches(module: str, name: str, value: str, packet: Packet) -> bool | None:
    match module, name:
        case ("", "--protocol"):
            known = {packet.protocol, "all", {"tcp": "6", "udp": "17"}[packet.protocol]}
            return not known.isdisjoint(value.split(","))
        case ("", "--destination"):
            return any(packet.to in ip_network(each, strict=False) for each in value.split(","))
        case ("", "--out-interface"):
            return any(_is_interface(each, packet.interface) for each in value.split(","))
        case ("", "--fragment"):  # the first packet of a connection is no later fragment
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
            wanted, _, mask = value.partition("/")  # without a mask, all 32 bits count
            return packet.mark & int(mask or "0xffffffff", 16) == int(wanted, 16)
        # A packet of a local process has a socket, and is the first of its connection.
        case ("owner", "--socket-exists") | ("comment", _):
            return True
        case ("conntrack", "--ctstate") | ("state", "--state"):
            return "NEW" in value.split(",")
        case _:
            return None


def _is_interface(value: str, name: str) -> bool:
    prefix = value.removesuffix("+")  # `eth+` means every interface that starts with `eth`
    return name == value or (prefix != value and name.startswith(prefix))


def _in(ranges: str, number: int) -> bool:
    """Return whether `ranges`, such as `443`, `1:1024,8080` or `1000-1999`, contains `number`."""
    for each in ranges.split(","):
        low, _, high = each.replace("-", ":").partition(":")
        if int(low or 0) <= number <= int(high or (low if ":" not in each else 65535)):
            return True
    return False
