"""Checks that the packet filter redirects everything that the agent sends to the sidecar, or stops
it. Reports other rules that may redirect first, or that can't be read. Without any redirect, these
checks find nothing; `direct_access` then shows how the agent bypasses the sidecar."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from policies.ground.doctor_finding import DoctorFinding, Severity
from sidecar.doctor.examination import DoctorContext
from sidecar.doctor.host import Unobservable
from sidecar.doctor.iptables import Hook, RuleSet
from sidecar.doctor.nftables import UNREAD
from sidecar.doctor.packet_trace import Packet, TraceResult, trace

OURS = "inet sluice"
"""The table that `sluice redirect` writes with `nft`."""
_SHOWN = 3


def foreign_rules(version: int, rules: RuleSet) -> Iterator[DoctorFinding]:
    """Report rules that decide where a connection goes before the sidecar's own rules do, and rules
    that can't be read."""
    # Chains of other types can only stop what ours would have redirected.
    deciding = [hook for hook in rules.hooks if hook.nat and rules.reachable(hook)]
    for hook in deciding:
        options = [option for rule in rules.reachable(hook) for option in rule.options]
        parts = [option.name for option in options if option.module == UNREAD]
        if parts:
            yield DoctorFinding(
                Severity.UNKNOWN,
                f"rules for IPv{version}: in {_named(hook)}, this can't be read: "
                + "; ".join(list(dict.fromkeys(parts))[:_SHOWN]),
                "a rule that depends on it may let the agent bypass the sidecar",
                f"read it yourself: `nft list table {hook.table}`",
            )
    ours = min((hook for hook in deciding if hook.table == OURS), default=None)
    for hook in deciding:
        if ours is not None and hook.table != OURS and hook.priority <= ours.priority:
            yield DoctorFinding(
                Severity.LOW,
                f"rules for IPv{version}: {_named(hook)} (priority {hook.priority}) comes before "
                f"`{OURS}`",
                "what it redirects does not reach the sidecar, and it may change later",
                "give it a priority above -110, or check that it redirects nothing of the agent's",
            )


def _named(hook: Hook) -> str:
    return f"`{hook.table}`, {hook.chain}"


# From the ranges for documentation (RFC 5737, RFC 3849), which no real rule mentions.
SAMPLE = {4: ip_address("203.0.113.9"), 6: ip_address("2001:db8::9")}
ANY_PORT = 40_000
"""A sample port that stands for all ports that the rules do not mention."""
HTTPS, DNS = 443, 53
_UNUSED_ID = 54_321
"""A sample user and group id that stands for all ids that the rules do not mention."""


class _Family(NamedTuple):
    """The rules of one IP version, with the user and the interfaces of the sample packets."""

    version: int
    rules: RuleSet
    uid: int
    interfaces: tuple[str, ...]
    mark: int | None

    def sample(self, protocol: str, port: int = ANY_PORT) -> Packet:
        """Return a packet from the agent to an address that no rule mentions."""
        return Packet(protocol, SAMPLE[self.version], port, self.uid, _UNUSED_ID, mark=self.mark)

    def passes(self, packet: Packet) -> bool:
        """Return whether `packet` may leave unchanged by any of the interfaces."""
        return any(result.passes for result in self.traces(packet))

    def traces(self, packet: Packet) -> list[TraceResult]:
        return [trace(self.rules, replace(packet, interface=each)) for each in self.interfaces]

    @property
    def who(self) -> str:
        return "any user" if self.uid == _UNUSED_ID else f"UID {self.uid}"


def redirect(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report TCP connections of the agent that are not redirected to the sidecar."""
    if not _redirects(context):
        return
    for version, rules in context.rules.items():
        reason = rules if isinstance(rules, Unobservable) else rules.incomplete
        if reason:
            yield DoctorFinding(
                Severity.UNKNOWN,
                f"rules for IPv{version}: {reason}",
                "a rule that is not visible here may let the agent bypass the sidecar",
                "run this as root, on a host with `iptables-save` and `nft`",
            )
    for family in _families(context):
        name = f"IPv{family.version}"
        yield from foreign_rules(family.version, family.rules)
        if family.passes(family.sample("tcp")):
            # Nothing is redirected, so each exception below would only repeat this finding.
            yield DoctorFinding(
                Severity.HIGH,
                f"TCP over {name} from {family.who} is not redirected",
                "the agent's connections don't reach the sidecar",
                f"redirect all TCP of {name} (deploy/README.md has the rules)",
            )
            continue
        for target, is_source in _exempt(context, family):
            yield DoctorFinding(
                Severity.HIGH if is_source else Severity.MEDIUM,
                f"TCP over {name} from {family.who} to {target} is not redirected",
                "a configured source is there" if is_source else "traffic to it is not judged",
                "remove the exception from the rules",
            )
        for port in sorted(_redirected_elsewhere(context, family)):
            yield DoctorFinding(
                Severity.MEDIUM,
                f"TCP over {name} is redirected to `{port}`, where no sidecar listens",
                "the process that listens there handles the agent's traffic",
                "redirect to the port of `transparent`",
            )


def udp(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report UDP packets that may leave. UDP can't be redirected, so it must be stopped: QUIC is
    HTTPS over UDP 443, and a query to any DNS server can carry data out."""
    for family in _families(context):
        named = {HTTPS: "443", DNS: "53", ANY_PORT: "others"}
        passing = [port for port in named if family.passes(family.sample("udp", port))]
        if passing:
            yield DoctorFinding(
                Severity.MEDIUM if passing == [DNS] else Severity.HIGH,
                f"UDP over IPv{family.version} from {family.who} is let through, to ports: "
                + ", ".join(named[port] for port in passing),
                "QUIC on 443 is HTTPS that is not redirected; DNS queries can carry data out",
                "reject everything but TCP, except DNS to your own resolver",
            )


def other_users(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report users and groups, besides the sidecar's, whose packets the rules exempt."""
    for family in _families(context):
        packet = family.sample("tcp")
        if family.passes(packet):
            continue  # nothing is redirected: `redirect` reports that
        if family.passes(replace(packet, uid=_UNUSED_ID)):
            yield _exempted(family, f"every user but {family.who}")
            continue
        users = {0, *_mentioned(family.rules, "--uid-owner")} - context.sidecar_uids
        exempt = [f"UID {u}" for u in sorted(users) if family.passes(replace(packet, uid=u))]
        groups = set(_mentioned(family.rules, "--gid-owner"))
        exempt += [f"GID {g}" for g in sorted(groups) if family.passes(replace(packet, gid=g))]
        for who in exempt:
            yield _exempted(family, who)


def _exempted(family: _Family, who: str) -> DoctorFinding:
    return DoctorFinding(
        Severity.MEDIUM,
        f"TCP over IPv{family.version} from {who} is not redirected",
        "every process that runs as it, or can become it, bypasses the sidecar",
        "exempt only the sidecar's user, and run nothing else as that user or group",
    )


def _redirects(context: DoctorContext) -> bool:
    """Return whether connections are meant to be redirected to the sidecar, by the settings or by a
    rule."""
    if context.settings.transparent is not None:
        return True
    known = (rules for rules in context.rules.values() if isinstance(rules, RuleSet))
    found = (rule for rules in known for rule in rules.outgoing(nat_only=True))
    return any(rule.target == "REDIRECT" for rule in found)


def _families(context: DoctorContext) -> Iterator[_Family]:
    if not _redirects(context):
        return
    # A rule may name an interface, so a packet that passes by any one of them is a way out.
    interfaces = tuple(context.host.interfaces()) or ("eth0",)
    uid = _UNUSED_ID if context.agent_uid is None else context.agent_uid
    for version, rules in context.rules.items():
        if isinstance(rules, RuleSet):
            yield _Family(version, rules, uid, interfaces, _mark(rules))


def _mark(rules: RuleSet) -> int | None:
    """Return the mark of the agent's packets: 0, or None (unknown) if a rule sets one."""
    # A process needs CAP_NET_ADMIN to mark its own packets; an agent without it sends 0.
    sets_mark = (rule.target in ("MARK", "CONNMARK") for rule in rules.outgoing())
    return None if any(sets_mark) else 0


def _exempt(context: DoctorContext, family: _Family) -> Iterator[tuple[str, bool]]:
    """Yield the addresses and ports to which packets leave unchanged, among the sources and those
    that rules name; each with True if it is a source's."""
    # Trying every address and port is out of the question. An exception needs a rule that mentions
    # it, so what the rules mention is enough.
    for upstream in context.upstreams:
        for address in [] if isinstance(upstream.addresses, Unobservable) else upstream.addresses:
            if address.version != family.version:
                continue
            if "lo" in context.host.outgoing_interfaces(address):
                continue  # `direct_access` tests local addresses by connecting
            if family.passes(replace(family.sample("tcp", upstream.port), to=address)):
                yield f"{address} port {upstream.port}", True
    for port in sorted({80, HTTPS, *_mentioned(family.rules, "--dport", "--dports")}):
        if family.passes(family.sample("tcp", port)):
            yield f"port {port}", False
    texts = {one for each in _values(family.rules, "--destination") for one in each.split(",")}
    for text in sorted(texts):
        network = ip_network(text, strict=False)
        # The first address names the network itself; the one after it could be a host's.
        host = network[min(1, network.num_addresses - 1)]
        if not host.is_loopback and family.passes(replace(family.sample("tcp"), to=host)):
            yield text, False


def _redirected_elsewhere(context: DoctorContext, family: _Family) -> set[str]:
    """Return the targets of redirects that no process of the sidecar's user listens on."""
    if isinstance(context.sockets, Unobservable) or not context.sidecar_uids:
        return set()
    own = {str(each.port) for each in context.sockets if each.uid in context.sidecar_uids}
    targets = {to for each in family.traces(family.sample("tcp")) for to in each.redirected_to}
    return {to for to in targets if to.rpartition(":")[2] not in own}


def _values(rules: RuleSet, *names: str) -> set[str]:
    options = (option for rule in rules.outgoing() for option in rule.options)
    return {option.value for option in options if option.name in names}


def _mentioned(rules: RuleSet, *names: str) -> Iterable[int]:
    """Yield the numbers that rules give as values of these options, including both ends of
    ranges."""
    for value in _values(rules, *names):
        for end in value.replace("-", ",").replace(":", ",").split(","):
            if end.isdigit():
                yield int(end)
