"""Reads the check doors, each a mapping in the list `doors`, and compares them with the sources and
with each other. Knows no other key."""

import re
from collections.abc import Sequence
from typing import Any

from policies.definitions.definition import shown
from policies.definitions.forms import matching
from policies.definitions.records import Section, declared
from policies.ground.addresses import ListenAddress
from sidecar.config.forms import DOOR_TLS, FILLED
from sidecar.settings.model import KINDS, SidecarSettings, Source
from sidecar.settings.sections import Door, DoorAgent, DoorHeaders

# A door's name is part of its path, and the `source_type` of its events.
_NAME = matching(
    re.compile(r"[a-z0-9_-]{1,32}\Z"), "must be 1 to 32 of a-z, 0-9, `_` and `-`", "is required"
)
_HEADER = matching(
    re.compile(r"[A-Za-z0-9!#$%&'*+.^`|~-]{1,64}\Z"), "is not the name of a header, without `_`"
)
_RESERVED = frozenset((*KINDS, "api", "sdk", "langchain", "authzen"))
"""Values of `source_type` that already have a meaning, so no door may have them."""
_OTHERWISE_READ = frozenset(
    (
        "authorization",
        "baggage",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "x-api-key",
        "x-sluice-sensitivity",
    )
)
"""Headers that already have another meaning, so no door may read them."""


def _door(section: Section, values: dict[str, Any]) -> Door:
    door = Door(**values)
    if door.name in _RESERVED:
        section.complain("name", f"`{door.name}` means something else as `source_type`")
    if not section.complained("protocol"):
        _check_protocol(section, door)
    if door.listen_tls is not None and door.listen is None and not section.complained("listen"):
        section.complain("listen_tls", "needs a `listen` of the door's own")
    return door


def _check_protocol(section: Section, door: Door) -> None:
    if section.has("request_from") and door.protocol != "forward_auth":
        section.complain("request_from", "applies only to the protocol `forward_auth`")
    needs_listen = door.protocol == "envoy_grpc" and door.listen is None
    if needs_listen and not section.complained("listen"):
        section.complain("listen", "is required with the protocol `envoy_grpc`")


def _headers(section: Section, values: dict[str, Any]) -> DoorHeaders:
    headers = DoorHeaders(**values)
    seen: dict[str, str] = {}
    for key in ("user", "session", "task"):
        name = getattr(headers, key)
        other = seen.setdefault(name.lower(), key)
        if other != key:
            section.complain(key, f"`{name}` is already the header of `{other}`")
        elif name.lower() in _OTHERWISE_READ:
            section.complain(key, f"`{name}` is read as something else; choose another header")
    return headers


DOOR = declared(
    Door,
    _door,
    name=_NAME,
    source=FILLED,
    listen_tls=DOOR_TLS,
    agent=declared(DoorAgent),
    headers=declared(DoorHeaders, _headers, user=_HEADER, session=_HEADER, task=_HEADER),
)


def check_doors(top: Section, settings: SidecarSettings) -> None:
    """Complain about doors that share a name, that lead to no source that can be judged, or at
    which anyone could act as the agent."""
    sources = {source.alias: source for source in settings.sources}
    names: dict[str, int] = {}
    for index, door in enumerate(settings.doors):
        where = f"doors[{index}]"
        first = names.setdefault(door.name, index)
        if first != index:
            said = f"`{door.name}` is already the name of doors[{first}]; choose another"
            top.complain(f"{where}.name", said)
        fault = _source_fault(door, sources.get(door.source))
        if fault and door.source:
            top.complain(f"{where}.source", fault)
        for fault in _key_faults(door, settings):
            top.complain(f"{where}.key", fault)


def _source_fault(door: Door, source: Source | None) -> str | None:
    if source is None:
        return f"{shown(door.source)} is not the alias of a source"
    if source.kind == "tcp":
        return f"`{door.source}` is of the kind `tcp`, whose requests can't be read"
    return None


def _key_faults(door: Door, settings: SidecarSettings) -> Sequence[str]:
    if door.key != "none":
        return ()
    faults = []
    if door.agent is None:
        faults.append("`none` needs `agent`: without a key, nothing else says who speaks")
    if settings.agent is None and settings.enrol is None:
        faults.append("`none` needs `agent.key_file` in the settings: it is judged with that key")
    if not _is_closed(door, settings.listen):
        faults.append(
            "`none` needs `listen` on loopback, or a `client_ca` in `listen_tls`: anyone who "
            "reaches the door speaks as its agent"
        )
    return faults


def _is_closed(door: Door, shared: ListenAddress) -> bool:
    """Return whether the door can be reached only by programs on this host, or by clients with a
    certificate."""
    if door.listen is None:
        return shared.loopback
    return door.listen.loopback or (
        door.listen_tls is not None and door.listen_tls.client_ca is not None
    )
