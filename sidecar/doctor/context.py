"""What the checks examine: the settings, the users of agent and sidecar, listening sockets and
packet-filter rules. Observed once, so that all checks see the same state. Judges nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from policies.ground.listen_address import ListenAddress
from sidecar.doctor.host import Address, Host, ListeningSocket, Unobservable
from sidecar.doctor.iptables import RuleSet
from sidecar.settings.model import SidecarSettings, Source


class ListeningPort(NamedTuple):
    """One of the sidecar's ports. `keyless` means that its requests count as the agent's without
    presenting a key."""

    name: str
    listen: ListenAddress
    keyless: bool


class SourceAddress(NamedTuple):
    """The host and port of a source, and its addresses or why they are unknown."""

    source: Source
    host: str
    port: int
    addresses: list[Address] | Unobservable


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """`agent_uid` is None if it is unknown. `sidecar_uids` are the users whose process listens on
    the sidecar's address, empty if none does."""

    settings: SidecarSettings
    file: Path
    host: Host
    agent_uid: int | None
    sockets: list[ListeningSocket] | Unobservable
    sidecar_uids: frozenset[int]
    rules: dict[int, RuleSet | Unobservable]
    """For each IP version in use on this host."""
    ports: tuple[ListeningPort, ...]
    upstreams: tuple[SourceAddress, ...]

    @property
    def decides_by_name(self) -> bool:
        """Whether the sidecar may decide connections by the host's name alone."""
        return self.settings.forward_proxy is not None or self.settings.transparent is not None

    @property
    def trusted_uids(self) -> frozenset[int]:
        """The users who may own the sidecar's files: root, the sidecar and this process's user."""
        return (frozenset({0, self.host.uid()}) | self.sidecar_uids) - {self.agent_uid}


def observe(
    settings: SidecarSettings, file: Path, host: Host, agent_uid: int | None
) -> DoctorContext:
    """Observe the host. Without an `agent_uid`, the agent is this process's user, unless root."""
    if agent_uid is None:
        agent_uid = host.uid() or None
    try:
        sockets: list[ListeningSocket] | Unobservable = host.listening()
    except Unobservable as error:
        sockets = error
    listening = [] if isinstance(sockets, Unobservable) else sockets
    return DoctorContext(
        settings,
        file,
        host,
        agent_uid,
        sockets,
        frozenset(each.uid for each in listening if _serves(each, settings.listen)),
        {version: _rules(host, version) for version in ((4, 6) if host.has_ipv6() else (4,))},
        tuple(_ports(settings)),
        tuple(_upstream(host, source) for source in settings.sources),
    )


def _serves(socket: ListeningSocket, listen: ListenAddress) -> bool:
    if socket.port != listen.port:
        return False
    return (
        socket.address.is_unspecified
        or str(socket.address) == listen.host
        or (listen.host == "localhost" and socket.address.is_loopback)
    )


def _rules(host: Host, version: int) -> RuleSet | Unobservable:
    try:
        return host.rules(version)
    except Unobservable as error:
        return error


def _ports(settings: SidecarSettings) -> list[ListeningPort]:
    ports = [ListeningPort("`listen`", settings.listen, keyless=False)]
    if settings.forward_proxy is not None:
        ports.append(ListeningPort("`forward_proxy`", settings.forward_proxy, keyless=True))
    if settings.transparent is not None:
        ports.append(ListeningPort("`transparent`", settings.transparent, keyless=True))
    for source in settings.sources:
        if source.listen is not None:
            ports.append(ListeningPort(f"source `{source.alias}`", source.listen, keyless=True))
    return ports


def _upstream(host: Host, source: Source) -> SourceAddress:
    parts = urlsplit(source.upstream)
    name = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        addresses: list[Address] | Unobservable = host.addresses(name)
    except Unobservable as error:
        addresses = error
    return SourceAddress(source, name, port, addresses)
