"""Whether the packet filter leads everything that the agent sends to the sidecar, or stops it.

Where nothing is redirected there is nothing to look at: an agent that is asked to use the sidecar,
and is not made to, shows in what it can reach (`reach.py`).
"""

from collections.abc import Iterable, Iterator
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from sidecar.doctor.context import DoctorContext
from sidecar.doctor.finding import DoctorFinding, Severity
from sidecar.doctor.host import Address, Unseen
from sidecar.doctor.iptables import RuleSet
from sidecar.doctor.packet_trace import Fate, Packet, fate

# Of the ranges for documentation (RFC 5737, 3849): nobody's rules speak of them.
SAMPLE = {4: ip_address("203.0.113.9"), 6: ip_address("2001:db8::9")}
ANY_PORT = 40_000
"""One that no rule speaks of, for all of those."""
HTTPS, DNS = 443, 53
_NOBODY = 54_321
"""A user and a group that no rule speaks of."""
_TABLES = ("raw", "mangle", "nat", "filter")


class _Family(NamedTuple):
    """The rules of one IP version, and the packets that they are asked about."""

    version: int
    rules: RuleSet
    uid: int
    interfaces: tuple[str, ...]
    mark: int | None

    def passes(
        self,
        protocol: str,
        port: int,
        to: Address | None = None,
        uid: int | None = None,
        gid: int | None = None,
    ) -> bool:
        """Whether such a packet may leave as it is, by any of the interfaces."""
        return any(fate.passes for fate in self.fates(protocol, port, to, uid, gid))

    def fates(
        self,
        protocol: str,
        port: int,
        to: Address | None = None,
        uid: int | None = None,
        gid: int | None = None,
    ) -> list[Fate]:
        target = to or SAMPLE[self.version]
        sender = self.uid if uid is None else uid
        group = _NOBODY if gid is None else gid
        return [
            fate(self.rules, Packet(protocol, target, port, sender, group, each, self.mark))
            for each in self.interfaces
        ]

    @property
    def who(self) -> str:
        return "any user" if self.uid == _NOBODY else f"UID {self.uid}"


def redirect(scene: DoctorContext) -> Iterator[DoctorFinding]:
    """TCP: does all of it come to the sidecar, whatever it is for?"""
    if not _redirects(scene):
        return
    for version, rules in scene.rules.items():
        if isinstance(rules, Unseen) or rules.partly:
            yield DoctorFinding(
                Severity.UNKNOWN,
                f"rules for IPv{version}: {rules if isinstance(rules, Unseen) else rules.partly}",
                "what is not seen may let the agent past",
                "run this as root, where `iptables-save` is",
            )
    for family in _families(scene):
        name = f"IPv{family.version}"
        if family.passes("tcp", ANY_PORT):
            yield DoctorFinding(
                Severity.HIGH,
                f"TCP over {name} leaves {family.who} as it is",
                "nothing leads the agent's connections to the sidecar",
                f"redirect all TCP of {name} (deploy/README.md has the rules)",
            )
            continue
        for place, is_source in _exempt(scene, family):
            yield DoctorFinding(
                Severity.HIGH if is_source else Severity.MEDIUM,
                f"TCP over {name} to {place} leaves {family.who} as it is",
                "a configured source is there" if is_source else "whoever is there is not judged",
                "take the exception out of the rules",
            )
        for port in sorted(_elsewhere(scene, family)):
            yield DoctorFinding(
                Severity.MEDIUM,
                f"TCP over {name} is redirected to `{port}`, where no sidecar listens",
                "what listens there decides what becomes of it",
                "redirect to the port of `transparent`",
            )


def udp(scene: DoctorContext) -> Iterator[DoctorFinding]:
    """UDP is not redirected, so it has to be stopped: QUIC is HTTPS over UDP 443, and a question to
    any DNS server carries data out."""
    for family in _families(scene):
        named = {HTTPS: "443", DNS: "53", ANY_PORT: "others"}
        passing = [port for port in named if family.passes("udp", port)]
        if passing:
            yield DoctorFinding(
                Severity.MEDIUM if passing == [DNS] else Severity.HIGH,
                f"UDP over IPv{family.version} leaves {family.who}, to ports: "
                + ", ".join(named[port] for port in passing),
                "QUIC on 443 is HTTPS that nobody redirects; DNS carries data to whoever answers",
                "reject whatever is not TCP, but for DNS to your own resolver",
            )


def other_users(scene: DoctorContext) -> Iterator[DoctorFinding]:
    """Users and groups that the rules let past, beside the sidecar's own."""
    for family in _families(scene):
        if family.passes("tcp", ANY_PORT):
            continue  # everything leaves: `redirect` says so
        if family.passes("tcp", ANY_PORT, uid=_NOBODY, gid=_NOBODY):
            yield _exempted(family, f"every user but {family.who}")
            continue
        users = {0, *_mentioned(family.rules, "--uid-owner")} - scene.uids
        exempt = [f"UID {u}" for u in sorted(users) if family.passes("tcp", ANY_PORT, uid=u)]
        groups = set(_mentioned(family.rules, "--gid-owner"))
        exempt += [f"GID {g}" for g in sorted(groups) if family.passes("tcp", ANY_PORT, gid=g)]
        for who in exempt:
            yield _exempted(family, who)


def _exempted(family: _Family, who: str) -> DoctorFinding:
    return DoctorFinding(
        Severity.MEDIUM,
        f"TCP over IPv{family.version} of {who} is not redirected",
        "what runs as it, or can become it, passes the sidecar by",
        "exempt the sidecar's own user alone, and give nothing else that user or group",
    )


def _redirects(scene: DoctorContext) -> bool:
    """Whether the agent is meant to be led here without its knowing."""
    if scene.transparent is not None:
        return True
    seen = (rules for rules in scene.rules.values() if isinstance(rules, RuleSet))
    return any(rule.target == "REDIRECT" for rules in seen for rule in rules.outgoing("nat"))


def _families(scene: DoctorContext) -> Iterator[_Family]:
    if not _redirects(scene):
        return
    interfaces = tuple(scene.machine.interfaces()) or ("eth0",)
    uid = _NOBODY if scene.agent_uid is None else scene.agent_uid
    for version, rules in scene.rules.items():
        if isinstance(rules, RuleSet):
            yield _Family(version, rules, uid, interfaces, _mark(rules))


def _mark(rules: RuleSet) -> int | None:
    setting = (rule.target in ("MARK", "CONNMARK") for rule in rules.outgoing(*_TABLES))
    return None if any(setting) else 0


def _exempt(scene: DoctorContext, family: _Family) -> Iterator[tuple[str, bool]]:
    """Places that a rule, or a source, speaks of and that can be reached as they are."""
    for upstream in scene.upstreams:
        for address in [] if isinstance(upstream.addresses, Unseen) else upstream.addresses:
            if address.version != family.version or "lo" in scene.machine.leaves_by(address):
                continue  # what stays on this host `reach.py` tries
            if family.passes("tcp", upstream.port, address):
                yield f"{address} port {upstream.port}", True
    for port in sorted({80, HTTPS, *_mentioned(family.rules, "--dport", "--dports")}):
        if family.passes("tcp", port):
            yield f"port {port}", False
    for text in sorted(_values(family.rules, "--destination")):
        network = ip_network(text, strict=False)
        inside = network[min(1, network.num_addresses - 1)]
        if not inside.is_loopback and family.passes("tcp", ANY_PORT, inside):
            yield text, False


def _elsewhere(scene: DoctorContext, family: _Family) -> set[str]:
    """Ports that it is redirected to and on which no process of the sidecar's user listens."""
    if isinstance(scene.sockets, Unseen) or not scene.uids:
        return set()
    ours = {str(each.port) for each in scene.sockets if each.uid in scene.uids}
    turned = {to for each in family.fates("tcp", ANY_PORT) for to in each.turned}
    return {to for to in turned if to.rpartition(":")[2] not in ours}


def _values(rules: RuleSet, *names: str) -> set[str]:
    options = (option for rule in rules.outgoing(*_TABLES) for option in rule.options)
    return {option.value for option in options if option.name in names}


def _mentioned(rules: RuleSet, *names: str) -> Iterable[int]:
    """Numbers that rules speak of, and the ends of their ranges."""
    for value in _values(rules, *names):
        for end in value.replace("-", ",").replace(":", ",").split(","):
            if end.isdigit():
                yield int(end)
