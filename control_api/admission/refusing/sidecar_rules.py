"""Refuses pods whose sidecar is not exactly ours. Each function returns the names of what offends,
in the order in which the CEL of the chart returns them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from control_api.admission.refusing.pod_view import (
    PORTS,
    PodView,
    mapping,
    name_of,
    named,
    objects,
)
from control_api.admission.refusing.resemblance import same_container, same_volume

MAX_CONTAINERS: Final = 200
"""Beside ours. A pod with more would be injected in part."""


_KINDS: Final = ("initContainers", "containers")


def missing(view: PodView) -> Iterator[str]:
    """Our containers that the pod does not have."""
    for kind in _KINDS:
        have = [each.get("name") for each in objects(view.spec, kind)]
        yield from (name for name in view.own_names(kind) if name not in have)


def displaced(view: PodView) -> Iterator[str]:
    """Our containers that do not start first: what starts before them is not governed."""
    for kind in _KINDS:
        have = [each.get("name") for each in objects(view.spec, kind)]
        for place, name in enumerate(view.own_names(kind)):
            if name in have and (place >= len(have) or have[place] != name):
                yield name


def altered(view: PodView) -> Iterator[str]:
    """Our containers, in their place, that are not as we would inject them. After an upgrade of the
    chart, an update may leave the older sidecar of a running pod as it was."""
    for kind in _KINDS:
        have = objects(view.spec, kind)
        before = objects(mapping(view.old, "spec"), kind)
        for place, template in enumerate(view.own(kind)):
            if place >= len(have) or have[place].get("name") != template["name"]:
                continue
            unchanged = place < len(before) and have[place] == before[place]
            if not (unchanged or same_container(have[place], template)):
                yield template["name"]


def volumes(view: PodView) -> Iterator[str]:
    """Our volumes that are missing or altered. Those of a running pod can't be changed."""
    if view.operation == "UPDATE":
        return
    have = objects(view.spec, "volumes")
    for template in view.fragment.volumes:
        # By name first: to compare each of 98,000 volumes took most of the review's second.
        if not any(
            each.get("name") == template["name"] and same_volume(each, template) for each in have
        ):
            yield template["name"]


def names(view: PodView) -> Iterator[str]:
    """Containers that are named like ours and are not in our place."""
    for kind in reversed(_KINDS):
        allowed = () if view.opted_out else tuple(view.own_names(kind))
        yield from named(objects(view.spec, kind), allowed=allowed)


def mounts(view: PodView) -> Iterator[str]:
    """Containers of the pod's author that mount a volume of ours: its token, keys or records."""
    ours = tuple(view.fragment.volume_names)
    for container in view.foreign:
        if any(each.get("name") in ours for each in objects(container, "volumeMounts")):
            yield name_of(container)


def count(view: PodView) -> Iterator[str]:
    """How many containers there are, if the policy that injects would not reach all of them."""
    if len(view.foreign) > MAX_CONTAINERS:
        yield str(len(view.foreign))


def ports(view: PodView) -> Iterator[str]:
    """Containers that claim a port of the sidecar, in the pod or on the node."""
    reserved = PORTS
    for container in view.foreign:
        for port in objects(container, "ports"):
            if port.get("containerPort") in reserved or port.get("hostPort") in reserved:
                yield name_of(container)
                break
