"""Checks that no container of a governed pod has rights by which it passes its sidecar. Admission
refuses these pods; one that started earlier still runs."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.kubernetes.doctor.namespaces import described
from deploy.kubernetes.doctor.snapshot import (
    INIT,
    PROXY,
    Cluster,
    Json,
    at,
    containers,
    objects,
    sidecar,
    texts,
)
from deploy.kubernetes.doctor.sources import fragment
from policies.ground.doctor_finding import DoctorFinding, Severity

SIDECAR_ID = 20102
HARMLESS = frozenset({"NET_BIND_SERVICE"})
_SHARED = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")


def privileges(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Governed pods with rights that go past the sidecar, or to its keys."""
    transparent = fragment(cluster).get("mode") == "transparent"
    for where in cluster.governed():
        for pod in cluster.pods(where):
            if sidecar(pod) is None:
                continue  # `without_sidecar` reports it
            reasons = [*_of_pod(pod), *_of_containers(pod, transparent=transparent)]
            if reasons:
                yield DoctorFinding(
                    Severity.HIGH,
                    f"pod `{described(pod)}`: {'; '.join(dict.fromkeys(reasons))}",
                    "its processes can bypass the sidecar, become its user, or read its keys",
                    "remove that from the workload, and restart it; admission refuses it from now",
                )


def _of_pod(pod: Json) -> Iterator[str]:
    for key in _SHARED:
        if at(pod, "spec", key) is True:
            yield f"{key} is set"
    if objects(pod, "spec", "ephemeralContainers"):
        yield "an ephemeral container was added"


def _of_containers(pod: Json, *, transparent: bool) -> Iterator[str]:
    context = at(pod, "spec", "securityContext")
    if SIDECAR_ID in (at(context, "supplementalGroups") or []):
        yield f"the supplemental group {SIDECAR_ID} is the sidecar's"
    for each in containers(pod):
        if each.get("name") in (INIT, PROXY):
            continue
        title, own = f"container `{each.get('name')}`", at(each, "securityContext")
        if at(own, "privileged") is True:
            yield f"{title} is privileged"
        added = set(texts(own, "capabilities", "add")) - HARMLESS
        if added:
            yield f"{title} has {', '.join(sorted(added))}"
        user = at(own, "runAsUser")
        user = at(context, "runAsUser") if user is None else user
        group = at(own, "runAsGroup")
        group = at(context, "runAsGroup") if group is None else group
        if SIDECAR_ID in (user, group):
            yield f"{title} runs as the sidecar's user or group"
        if transparent and user in (None, 0):
            yield f"{title} may run as root, which can become the sidecar's user"
        # A program with file capabilities keeps what the runtime grants by default, as any user.
        if transparent and "ALL" not in texts(own, "capabilities", "drop"):
            yield f"{title} keeps default capabilities, such as SETUID and NET_RAW"
