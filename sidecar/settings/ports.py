"""Lists the ports that a sidecar opens, and what each serves to whom. Opens none."""

from collections.abc import Iterator
from typing import NamedTuple

from policies.ground.addresses import ListenAddress
from sidecar.settings.model import SidecarSettings
from sidecar.settings.sections import Door


class Port(NamedTuple):
    """One of the sidecar's ports. `keyless` means that requests to it count as the agent's without
    presenting a key; `certified` means that only clients with a certificate are served. `serves`
    describes for people what the port offers."""

    name: str
    listen: ListenAddress
    serves: str
    keyless: bool = False
    certified: bool = False


def ports_of(settings: SidecarSettings) -> Iterator[Port]:
    """Yield every port that the settings open. If sources share a port, it is listed for each of
    them."""
    shared = [door.name for door in settings.doors if door.listen is None]
    asked = "decisions, with a key" + "".join(f"; check door `{name}`" for name in shared)
    numbers = "health" if settings.metrics_listen else "health and metrics"
    tls = _tls(settings.listen_tls)
    yield Port("`listen`", settings.listen, f"{asked}; {numbers} without one{tls}")
    if settings.metrics_listen is not None:
        yield Port("`metrics_listen`", settings.metrics_listen, "metrics, without a key")
    if settings.quit_listen is not None:
        yield Port("`quit_listen`", settings.quit_listen, "stops the sidecar, without a key")
    if settings.forward_proxy is not None:
        serves = "the agent's HTTP_PROXY, without a key"
        yield Port("`forward_proxy`", settings.forward_proxy, serves, keyless=True)
    if settings.transparent is not None:
        serves = "the agent's redirected connections, without a key"
        yield Port("`transparent`", settings.transparent, serves, keyless=True)
    for source in settings.sources:
        if source.listen is not None:
            serves = f"{source.kind} at {source.upstream}, without a key{_tls(source.listen_tls)}"
            yield Port(f"source `{source.alias}`", source.listen, serves, keyless=True)
        if source.grpc_listen is not None:
            name = f"`grpc_listen` of source `{source.alias}`"
            serves = f"{source.kind} at {source.grpc_url}, without a key{_tls(source.listen_tls)}"
            yield Port(name, source.grpc_listen, serves, keyless=True)
    for door in settings.doors:
        if door.listen is not None:
            yield _door(door, door.listen)


def _door(door: Door, listen: ListenAddress) -> Port:
    certified = door.listen_tls is not None and door.listen_tls.client_ca is not None
    key = "without a key" if door.key == "none" else "with a key"
    clients = ", for clients with a certificate of its `client_ca`" if certified else ""
    serves = f"{door.protocol} for source `{door.source}`, {key}{_tls(door.listen_tls)}{clients}"
    return Port(f"door `{door.name}`", listen, serves, door.key == "none", certified)


def _tls(pair: object) -> str:
    return "" if pair is None else ", by TLS"
