"""The rules about the injected parts: they refuse pods whose sidecar differs in any field from the
one that Sluice would inject.

Each rule yields the names of the offending parts, in the same order as the CEL of the chart.
`templates/_cel.tpl` of the chart writes the same comparison in CEL; a property test compares the
two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from deploy.kubernetes.admission.refusing.pod_view import (
    PORTS,
    PodView,
    mapping,
    name_of,
    named,
    objects,
)
from deploy.kubernetes.admission.vocabulary import Json

_PROBE: Final[dict[str, Any]] = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}

# What the API server fills in (pkg/apis/core/v1/defaults.go), by the field that holds the object.
# An object in a list stands under the list's field.
DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "container": {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    },
    "securityContext": {"procMount": "Default"},
    "fieldRef": {"apiVersion": "v1"},
    "httpGet": {"scheme": "HTTP"},
    "grpc": {"service": ""},
    "startupProbe": _PROBE,
    "readinessProbe": _PROBE,
    "livenessProbe": _PROBE,
    "ports": {"protocol": "TCP"},
    "secret": {"defaultMode": 420},
    "configMap": {"defaultMode": 420},
    "projected": {"defaultMode": 420},
    "downwardAPI": {"defaultMode": 420},
    "serviceAccountToken": {"expirationSeconds": 3600},
}

ACCOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
ACCOUNT_VOLUME: Final = "kube-api-access-"
PULL_POLICIES: Final = ("Always", "IfNotPresent")


def same_container(actual: object, template: Json) -> bool:
    """Return whether a container equals the one that Sluice would inject, apart from defaults that
    the API server fills in."""
    # What was just injected is the template's own object.
    return actual is template or _same_object(actual, template, "container")


def same_volume(actual: object, template: Json) -> bool:
    """Return whether a volume equals the one that Sluice would inject, apart from defaults that the
    API server fills in."""
    return actual is template or _same_object(actual, template, "volume")


def _same(actual: object, template: object, field: str) -> bool:
    if isinstance(template, dict):
        return _same_object(actual, template, field)
    if isinstance(template, list):
        if not isinstance(actual, list) or len(actual) != len(template):
            return False
        return all(_same(one, other, field) for one, other in zip(actual, template, strict=True))
    # In Python `True == 1`.
    return type(actual) is type(template) and actual == template


def _same_object(actual: object, template: Json, field: str) -> bool:
    if not isinstance(actual, dict):
        return False
    special = _ADDED.get(field, {})
    filled = DEFAULTS.get(field, {})
    for key, value in template.items():
        if key not in special and not (key in actual and _same(actual[key], value, key)):
            return False
    for key, tolerates in special.items():
        if not tolerates(actual.get(key), template.get(key)):
            return False
    return all(
        key in template or key in special or (key in filled and _same(value, filled[key], key))
        for key, value in actual.items()
    )


def _pull_policy(actual: object, template: object) -> bool:
    # The admission plugin AlwaysPullImages sets `Always`.
    return actual is None or actual == template or actual in PULL_POLICIES


def _mounts(actual: object, template: object) -> bool:
    """Return whether the mounts are the injected ones, followed at most by the API token that the
    admission plugin ServiceAccount mounts into every container."""
    found = actual if isinstance(actual, list) else []
    ours = template if isinstance(template, list) else []
    return _same(found[: len(ours)], ours, "volumeMounts") and (
        len(found) == len(ours)
        or (len(found) == len(ours) + 1 and _is_token_mount(found[len(ours)]))
    )


def _is_token_mount(mount: object) -> bool:
    return (
        isinstance(mount, dict)
        and set(mount) == {"name", "readOnly", "mountPath"}
        and isinstance(mount["name"], str)
        and mount["name"].startswith(ACCOUNT_VOLUME)
        and mount["readOnly"] is True
        and mount["mountPath"] == ACCOUNT_PATH
    )


def _resize_policy(actual: object, template: object) -> bool:
    # Filled in from Kubernetes 1.33 on, one item for each resource.
    return actual == template or (
        template is None
        and isinstance(actual, list)
        and all(
            isinstance(each, dict) and each.get("restartPolicy") == "NotRequired" for each in actual
        )
    )


def _resources(actual: object, template: object) -> bool:
    """Return whether the resources are the injected ones, with at most those added that a
    LimitRange sets where the template sets none."""
    found = {} if actual is None else actual
    ours = template if isinstance(template, dict) else {}
    if not isinstance(found, dict) or not set(found) <= {"limits", "requests"}:
        return False
    return all(_includes(found.get(part), ours.get(part)) for part in ("limits", "requests"))


def _includes(found: object, ours: object) -> bool:
    wanted = ours if isinstance(ours, dict) else {}
    have = found if isinstance(found, dict) else {}
    return all(have.get(key) == value for key, value in wanted.items())


_ADDED: Final[dict[str, dict[str, Callable[[object, object], bool]]]] = {
    "container": {
        "imagePullPolicy": _pull_policy,
        "volumeMounts": _mounts,
        "resizePolicy": _resize_policy,
        "resources": _resources,
    }
}


MAX_CONTAINERS: Final = 200
"""The most containers of the pod's author. In a pod with more, the MutatingAdmissionPolicy would
inject only into some."""


_KINDS: Final = ("initContainers", "containers")


def missing(view: PodView) -> Iterator[str]:
    """Yield the names of Sluice's containers that the pod lacks."""
    for kind in _KINDS:
        have = [each.get("name") for each in objects(view.spec, kind)]
        yield from (name for name in view.sluice_names(kind) if name not in have)


def displaced(view: PodView) -> Iterator[str]:
    """Yield the names of Sluice's containers that are not at the beginning of their list: a
    container that starts before them is not governed."""
    for kind in _KINDS:
        have = [each.get("name") for each in objects(view.spec, kind)]
        for place, name in enumerate(view.sluice_names(kind)):
            if name in have and (place >= len(have) or have[place] != name):
                yield name


def altered(view: PodView) -> Iterator[str]:
    """Yield the names of Sluice's containers that differ from those that would be injected. After
    an upgrade of the chart a running pod has an older sidecar; an update of the pod may leave it as
    it was."""
    for kind in _KINDS:
        have = objects(view.spec, kind)
        before = objects(mapping(view.old, "spec"), kind)
        for place, template in enumerate(view.sluice_containers(kind)):
            if place >= len(have) or have[place].get("name") != template["name"]:
                continue
            unchanged = place < len(before) and have[place] == before[place]
            if not (unchanged or same_container(have[place], template)):
                yield template["name"]


def altered_volumes(view: PodView) -> Iterator[str]:
    """Yield the names of Sluice's volumes that are missing or altered. An update is not checked,
    since the volumes of a running pod can't be changed."""
    if view.operation == "UPDATE":
        return
    have = objects(view.spec, "volumes")
    for template in view.fragment.volumes:
        # By name first: to compare each of 98,000 volumes took most of the review's second.
        if not any(
            each.get("name") == template["name"] and same_volume(each, template) for each in have
        ):
            yield template["name"]


def reserved_names(view: PodView) -> Iterator[str]:
    """Yield the containers that have a name of Sluice's, but are not where Sluice's container of
    that name belongs."""
    for kind in reversed(_KINDS):
        allowed = () if view.opted_out else tuple(view.sluice_names(kind))
        yield from named(objects(view.spec, kind), allowed=allowed)


def foreign_mounts(view: PodView) -> Iterator[str]:
    """Yield the containers of the pod's author that mount one of Sluice's volumes, which hold the
    sidecar's token, keys and records."""
    ours = tuple(view.fragment.volume_names)
    for container in view.author_containers:
        if any(each.get("name") in ours for each in objects(container, "volumeMounts")):
            yield name_of(container)


def too_many_containers(view: PodView) -> Iterator[str]:
    """Yield the number of the author's containers, if that is more than the MutatingAdmissionPolicy
    can inject into."""
    if len(view.author_containers) > MAX_CONTAINERS:
        yield str(len(view.author_containers))


def ports(view: PodView) -> Iterator[str]:
    """Yield the author's containers that use a port of the sidecar, in the pod or on the node."""
    reserved = PORTS
    for container in view.author_containers:
        for port in objects(container, "ports"):
            if port.get("containerPort") in reserved or port.get("hostPort") in reserved:
                yield name_of(container)
                break
