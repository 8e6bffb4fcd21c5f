"""Refuses pods that could take the sidecar's token or keys. Also holds for a pod that opted out: it
has no sidecar, so it may not have a sidecar's identity either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from control_api.admission.refusing.pod_view import PodView, items, mapping, name_of, objects
from control_api.admission.vocabulary import Json

AUDIENCE: Final = "sluice"
"""The audience of the tokens by which sidecars enrol."""
AGENT_KEYS: Final = "sluice-agent-"
"""How the names of the Secrets with an agent's keys begin."""


def tokens(view: PodView) -> Iterator[str]:
    """Volumes that hold a token for enrolment: who reads it becomes the agent."""
    for volume in view.foreign_volumes:
        for source in objects(mapping(volume, "projected"), "sources"):
            if mapping(source, "serviceAccountToken").get("audience") == AUDIENCE:
                yield name_of(volume)
                break


def secret_volumes(view: PodView) -> Iterator[str]:
    """Volumes that hold an agent's keys."""
    for volume in view.foreign_volumes:
        sources = objects(mapping(volume, "projected"), "sources")
        driver = mapping(volume, "csi", "nodePublishSecretRef").get("name")
        if (
            _agents(mapping(volume, "secret").get("secretName"))
            or _agents(driver)
            or any(_agents(mapping(source, "secret").get("name")) for source in sources)
        ):
            yield name_of(volume)


def secret_variables(view: PodView) -> Iterator[str]:
    """Containers whose environment holds an agent's keys."""
    for container in view.foreign:
        if any(map(_variable, objects(container, "env"))) or any(
            _agents(mapping(source, "secretRef").get("name"))
            for source in objects(container, "envFrom")
        ):
            yield name_of(container)


def _variable(variable: Json) -> bool:
    return _agents(mapping(variable, "valueFrom", "secretKeyRef").get("name"))


def _agents(name: object) -> bool:
    return isinstance(name, str) and name.startswith(AGENT_KEYS)


def host_paths(view: PodView) -> Iterator[str]:
    """Volumes that show the node's files: the tokens and keys of all its pods are among them."""
    return (name_of(each) for each in view.foreign_volumes if "hostPath" in each)


def host_aliases(view: PodView) -> Iterator[str]:
    """Names that the pod's author points at an address of their choice. The sidecar would believe
    them, and send its token there, or take a forbidden source for an allowed one."""
    for alias in objects(view.spec, "hostAliases"):
        yield str(alias.get("ip", ""))


def dns(view: PodView) -> Iterator[str]:
    """The fields that replace the cluster's DNS, which the sidecar trusts as above."""
    config = mapping(view.spec, "dnsConfig")
    if view.spec.get("dnsPolicy") == "None":
        yield "dnsPolicy"
    for field in ("nameservers", "searches"):
        if items(config, field):
            yield f"dnsConfig.{field}"
    if view.spec.get("hostnameOverride"):
        yield "hostnameOverride"
