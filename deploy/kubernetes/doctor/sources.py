"""Reads the configuration of a namespace's sidecars: the fragment that is injected into pods, and
the data sources in ConfigMaps. Other people wrote this YAML, so it may be damaged or hostile. Knows
nothing of NetworkPolicies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import yaml

from deploy.kubernetes.doctor.snapshot import (
    PROXY,
    Cluster,
    Endpoint,
    Json,
    at,
    labels,
    name,
    namespace,
    objects,
    own_labels,
    selects,
)

INJECTION = "sluice-injection"
SOURCES = "sluice-sources"
SETTINGS = "SLUICE_SIDECAR_SETTINGS"
MAX_YAML_CHARS = 1_100_000
"""The most characters of YAML that are parsed: the API server takes ConfigMaps of at most 1 MiB."""
_ADDRESSES = ("upstream", "grpc")
_DEFAULT_PORTS = {"http": 80, "https": 443}


class DataSource(NamedTuple):
    """A data source that the sidecars of a namespace lead to: its kind, and the address in its
    `upstream` or `grpc`."""

    alias: str
    kind: str
    host: str
    port: int
    ports: tuple[int, ...]
    """The ports of all its addresses."""


class UnreadableYaml(ValueError):
    """a ConfigMap holds what no sidecar can read"""


def parsed(text: object) -> object:
    """Parse untrusted YAML into plain data. Raises `UnreadableYaml`."""
    try:
        if not isinstance(text, str) or len(text) > MAX_YAML_CHARS:
            raise UnreadableYaml("no text, or too long")
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UnreadableYaml(str(error).splitlines()[0] if str(error) else "too deep") from error


def fragment(cluster: Cluster) -> Json:
    """Return the fragment: the parts that are injected into pods. Empty if the chart's ConfigMap is
    absent or unreadable."""
    for each in cluster.all("ConfigMap"):
        if name(each) == INJECTION:
            try:
                found = parsed(at(each, "data", "injection.yaml"))
            except UnreadableYaml:
                return {}
            return found if isinstance(found, dict) else {}
    return {}


def injected_image(found: Json) -> str | None:
    """Return the image of the sidecar that a fragment injects; None if it names none."""
    for each in objects(found, "initContainers"):
        if each.get("name") == PROXY:
            image = each.get("image")
            return image if isinstance(image, str) else None
    return None


def sources(cluster: Cluster, where: str) -> list[DataSource]:
    """Return the data sources of the sidecars in the namespace `where`. Raises `UnreadableYaml`."""
    maps = [each for each in cluster.all("ConfigMap", where) if is_sources(each)]
    lists = [parsed(at(each, "data", "sources.yaml")) for each in maps]
    if not any(name(each) == SOURCES for each in maps):
        # Accounts without a ConfigMap of their own get the chart's default.
        lists.append(_defaults(fragment(cluster)))
    return [source for each in lists for source in _sources(each)]


def is_sources(config_map: Json) -> bool:
    """Return whether a ConfigMap lists data sources, of a namespace or of one service account."""
    return name(config_map) == SOURCES or name(config_map).startswith(f"{SOURCES}-")


def _defaults(found: Json) -> object:
    for container in objects(found, "initContainers"):
        for variable in objects(container, "env"):
            if variable.get("name") == SETTINGS:
                return at(parsed(variable.get("value")), "sources")
    return None


def _sources(value: object) -> Iterator[DataSource]:
    # The file is the list itself, or a mapping with it.
    found = value if isinstance(value, list) else at(value, "sources")
    for each in objects({"found": found}, "found"):
        addresses = dict.fromkeys(filter(None, (_address(each.get(key)) for key in _ADDRESSES)))
        ports = tuple(port for _, port in addresses)
        for host, port in addresses:
            yield DataSource(str(each.get("alias")), str(each.get("kind")), host, port, ports)


def _address(url: object) -> tuple[str, int] | None:
    """Return the host and port of a source's URL; None if it has none, or a damaged one, with which
    no sidecar starts."""
    try:
        parts = urlsplit(str(url))
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname and port else None


def endpoints(cluster: Cluster, source: DataSource, where: str) -> list[Endpoint]:
    """Return the pods behind a data source, found through the Service that a sidecar in the
    namespace `where` would reach by the source's host name. If there is no such Service, return one
    address outside the cluster."""
    found = [
        Endpoint(namespace(service), own_labels(pod))
        for service in cluster.all("Service")
        if _is_named(service, source.host, where) and labels(service, "spec", "selector")
        for pod in cluster.pods(namespace(service))
        if selects({"matchLabels": labels(service, "spec", "selector")}, own_labels(pod))
    ]
    return found or [Endpoint("", None)]


def _is_named(service: Json, host: str, where: str) -> bool:
    if host in (at(service, "spec", "clusterIP"), at(service, "spec", "externalName")):
        return True
    words = host.split(".")
    # `svc`, `svc.namespace`, `svc.namespace.svc`, and with the cluster's domain behind.
    named, owner = words[0], words[1] if len(words) > 1 else where
    return (name(service), namespace(service)) == (named, owner) and words[2:3] in ([], ["svc"])
