"""What there is to look at: the settings, who the agent and the sidecar are, what listens, which
packet-filter rules hold. Looked at once, so that all checks see the same. Judges nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from policies.ground.listen_address import ListenAddress
from sidecar.doctor.host import Address, Host, ListeningSocket, Unseen
from sidecar.doctor.iptables import RuleSet
from sidecar.settings.model import SidecarSettings, Source


class ListeningPort(NamedTuple):
    """A port of the sidecar's. `speaks` is whether what comes in by it is taken for the agent's,
    without a key."""

    name: str
    listen: ListenAddress
    speaks: bool


class SourceAddress(NamedTuple):
    """Where a source really is. `addresses` is why they are not known where they are not."""

    source: Source
    host: str
    port: int
    addresses: list[Address] | Unseen


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """`agent_uid` is None where nobody said it; `uids` are those whose process listens at the
    sidecar's own address, empty where none does."""

    settings: SidecarSettings
    file: Path
    machine: Host
    agent_uid: int | None
    sockets: list[ListeningSocket] | Unseen
    uids: frozenset[int]
    rules: dict[int, RuleSet | Unseen]
    """By IP version, of those that are in use here."""
    doors: tuple[ListeningPort, ...]
    upstreams: tuple[SourceAddress, ...]

    @property
    def transparent(self) -> ListenAddress | None:
        """Where redirected connections are to arrive, if anywhere."""
        return _transparent(self.settings)

    @property
    def by_name(self) -> bool:
        """Whether connections may pass that are decided by the name alone."""
        return self.settings.forward_proxy is not None or self.transparent is not None

    @property
    def trusted(self) -> frozenset[int]:
        """Who may own what the sidecar reads: root, the sidecar, whoever runs this."""
        return (frozenset({0, self.machine.uid()}) | self.uids) - {self.agent_uid}


def look(
    settings: SidecarSettings, file: Path, machine: Host, agent_uid: int | None
) -> DoctorContext:
    """`agent_uid` None: this process's own, unless that is root's."""
    if agent_uid is None:
        agent_uid = machine.uid() or None
    try:
        sockets: list[ListeningSocket] | Unseen = machine.listening()
    except Unseen as error:
        sockets = error
    listening = [] if isinstance(sockets, Unseen) else sockets
    return DoctorContext(
        settings,
        file,
        machine,
        agent_uid,
        sockets,
        frozenset(each.uid for each in listening if _is_at(each, settings.listen)),
        {version: _rules(machine, version) for version in _versions(machine)},
        tuple(_doors(settings)),
        tuple(_upstream(machine, source) for source in settings.sources),
    )


def _versions(machine: Host) -> tuple[int, ...]:
    return (4, 6) if machine.has_ipv6() else (4,)


def _is_at(found: ListeningSocket, listen: ListenAddress) -> bool:
    if found.port != listen.port:
        return False
    return (
        found.address.is_unspecified
        or str(found.address) == listen.host
        or (listen.host == "localhost" and found.address.is_loopback)
    )


def _rules(machine: Host, version: int) -> RuleSet | Unseen:
    try:
        return machine.rules(version)
    except Unseen as error:
        return error


def _transparent(settings: SidecarSettings) -> ListenAddress | None:
    # The settings of this version have no such key yet; where they have, it is looked at.
    return getattr(settings, "transparent", None)


def _doors(settings: SidecarSettings) -> list[ListeningPort]:
    doors = [ListeningPort("`listen`", settings.listen, speaks=False)]
    if settings.forward_proxy is not None:
        doors.append(ListeningPort("`forward_proxy`", settings.forward_proxy, speaks=True))
    transparent = _transparent(settings)
    if transparent is not None:
        doors.append(ListeningPort("`transparent`", transparent, speaks=True))
    for source in settings.sources:
        if source.listen is not None:
            doors.append(ListeningPort(f"source `{source.alias}`", source.listen, speaks=True))
    return doors


def _upstream(machine: Host, source: Source) -> SourceAddress:
    parts = urlsplit(source.upstream)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        addresses: list[Address] | Unseen = machine.addresses(host)
    except Unseen as error:
        addresses = error
    return SourceAddress(source, host, port, addresses)
