"""What there is to look at: the settings, who the agent and the sidecar are, what listens, which
packet-filter rules hold. Looked at once, so that all checks see the same. Judges nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from policies.ground.listen_address import Listen
from sidecar.doctor.host import Address, Machine, Socket, Unseen
from sidecar.doctor.iptables import Rules
from sidecar.settings.model import Settings, Source


class Door(NamedTuple):
    """A port of the sidecar's. `speaks` is whether what comes in by it is taken for the agent's,
    without a key."""

    name: str
    listen: Listen
    speaks: bool


class Upstream(NamedTuple):
    """Where a source really is. `addresses` is why they are not known where they are not."""

    source: Source
    host: str
    port: int
    addresses: list[Address] | Unseen


@dataclass(frozen=True, slots=True)
class Scene:
    """`agent_uid` is None where nobody said it; `uids` are those whose process listens at the
    sidecar's own address, empty where none does."""

    settings: Settings
    file: Path
    machine: Machine
    agent_uid: int | None
    sockets: list[Socket] | Unseen
    uids: frozenset[int]
    rules: dict[int, Rules | Unseen]
    """By IP version, of those that are in use here."""
    doors: tuple[Door, ...]
    upstreams: tuple[Upstream, ...]

    @property
    def transparent(self) -> Listen | None:
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


def look(settings: Settings, file: Path, machine: Machine, agent_uid: int | None) -> Scene:
    """`agent_uid` None: this process's own, unless that is root's."""
    if agent_uid is None:
        agent_uid = machine.uid() or None
    try:
        sockets: list[Socket] | Unseen = machine.listening()
    except Unseen as error:
        sockets = error
    listening = [] if isinstance(sockets, Unseen) else sockets
    return Scene(
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


def _versions(machine: Machine) -> tuple[int, ...]:
    return (4, 6) if machine.has_ipv6() else (4,)


def _is_at(found: Socket, listen: Listen) -> bool:
    if found.port != listen.port:
        return False
    return (
        found.address.is_unspecified
        or str(found.address) == listen.host
        or (listen.host == "localhost" and found.address.is_loopback)
    )


def _rules(machine: Machine, version: int) -> Rules | Unseen:
    try:
        return machine.rules(version)
    except Unseen as error:
        return error


def _transparent(settings: Settings) -> Listen | None:
    # The settings of this version have no such key yet; where they have, it is looked at.
    return getattr(settings, "transparent", None)


def _doors(settings: Settings) -> list[Door]:
    doors = [Door("`listen`", settings.listen, speaks=False)]
    if settings.forward_proxy is not None:
        doors.append(Door("`forward_proxy`", settings.forward_proxy, speaks=True))
    transparent = _transparent(settings)
    if transparent is not None:
        doors.append(Door("`transparent`", transparent, speaks=True))
    for source in settings.sources:
        if source.listen is not None:
            doors.append(Door(f"source `{source.alias}`", source.listen, speaks=True))
    return doors


def _upstream(machine: Machine, source: Source) -> Upstream:
    parts = urlsplit(source.upstream)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        addresses: list[Address] | Unseen = machine.addresses(host)
    except Unseen as error:
        addresses = error
    return Upstream(source, host, port, addresses)
