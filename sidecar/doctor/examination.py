"""Observes the host once, so that all checks see the same state; and renders the findings as text
and JSON."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import orjson

from policies.ground.addresses import ListenAddress
from policies.ground.doctor_finding import DoctorFinding, as_lines
from sidecar.doctor.host import Address, Host, ListeningSocket, Unobservable
from sidecar.doctor.iptables import RuleSet
from sidecar.settings.model import SidecarSettings, Source
from sidecar.settings.ports import Port, ports_of

_Observed = TypeVar("_Observed")


def as_text(findings: Sequence[DoctorFinding]) -> str:
    return as_lines(findings) if findings else "found nothing that can bypass this sidecar"


def as_json(findings: Sequence[DoctorFinding]) -> str:
    """Return the findings as JSON: `{findings: [{check, severity, seen, why, do}]}`."""
    rows = [{**each._asdict(), "severity": each.severity.value} for each in findings]
    return orjson.dumps({"findings": rows}, option=orjson.OPT_INDENT_2).decode()


class SourceAddress(NamedTuple):
    """The host and port in a URL of a source, and the host's IP addresses, or the reason why they
    are unknown."""

    source: Source
    url: str
    host: str
    port: int
    addresses: list[Address] | Unobservable


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """The state of the host and the settings, which the checks examine. `agent_uid` is None if it
    is unknown. `sidecar_uids` are the users whose processes listen on the sidecar's address; empty
    if there are none."""

    settings: SidecarSettings
    file: Path
    host: Host
    agent_uid: int | None
    sockets: list[ListeningSocket] | Unobservable
    sidecar_uids: frozenset[int]
    rules: dict[int, RuleSet | Unobservable]
    """The packet-filter rules for each IP version in use on this host."""
    ports: tuple[Port, ...]
    upstreams: tuple[SourceAddress, ...]

    @property
    def decides_by_name(self) -> bool:
        """True if the sidecar may decide connections by the host name alone."""
        return self.settings.forward_proxy is not None or self.settings.transparent is not None

    @property
    def trusted_uids(self) -> frozenset[int]:
        """The users who may own the sidecar's files: root, the sidecar's user and this process's
        user."""
        # Never the agent, even if it runs this doctor: what it owns, it can change.
        return (frozenset({0, self.host.uid()}) | self.sidecar_uids) - {self.agent_uid}


def observe(
    settings: SidecarSettings, file: Path, host: Host, agent_uid: int | None
) -> DoctorContext:
    """Observe the host. Without `agent_uid`, this process's user is taken for the agent's, unless
    it is root."""
    if agent_uid is None:
        agent_uid = host.uid() or None
    sockets = _look(host.listening)
    listening = [] if isinstance(sockets, Unobservable) else sockets
    return DoctorContext(
        settings,
        file,
        host,
        agent_uid,
        sockets,
        frozenset(each.uid for each in listening if _serves(each, settings.listen)),
        # Without an IPv6 address that reaches beyond its link, missing IPv6 rules are no gap.
        {version: _look(host.rules, version) for version in ((4, 6) if host.has_ipv6() else (4,))},
        tuple(ports_of(settings)),
        tuple(each for source in settings.sources for each in _addresses(host, source)),
    )


def _serves(socket: ListeningSocket, listen: ListenAddress) -> bool:
    address = socket.address
    return socket.port == listen.port and (
        address.is_unspecified  # `0.0.0.0` and `::` accept connections to every address
        or str(address) == listen.host
        or (listen.host == "localhost" and address.is_loopback)
    )


def _look(observe: Callable[..., _Observed], *args: object) -> _Observed | Unobservable:
    """Return the value that `observe` observes. Returns an `Unobservable` instead of raising it:
    the checks that need this value report it, and the others still run."""
    try:
        return observe(*args)
    except Unobservable as error:
        return error


def _addresses(host: Host, source: Source) -> Iterable[SourceAddress]:
    """Return the addresses of the source, each host and port once."""
    found: dict[tuple[str, int], SourceAddress] = {}
    for url in source.urls:
        parts = urlsplit(url)
        name = parts.hostname or ""
        # A `tcp` address always has a port; only HTTP has defaults.
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if (name, port) not in found:
            addresses = _look(host.addresses, name)
            found[name, port] = SourceAddress(source, url, name, port, addresses)
    return found.values()
