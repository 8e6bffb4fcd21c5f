"""Pods that can't have a sidecar, because the kubelet or the API server would not run the result.
What may not run beside the sidecar is decided by `refusals`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from control_api.admission.injection.shape import faults
from control_api.admission.options import OPTIONS, fault
from control_api.admission.refusing.pod_view import account_of
from control_api.admission.template import Fragment
from control_api.admission.vocabulary import OPTIONS as PREFIX
from control_api.admission.vocabulary import Json, Refusal
from policies.definitions.definition import shown

MIRROR = "kubernetes.io/config.mirror"
_OS = ("kubernetes.io/os", "beta.kubernetes.io/os")
# RFC 1123: the API server accepts no other name of a ServiceAccount. It becomes part of the names
# of a ConfigMap and a Secret.
_ACCOUNT = re.compile(r"\A[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")


def obstacles(pod: Json, fragment: Fragment) -> list[Refusal]:
    """Every reason why the pod can't be injected."""
    malformed = [Refusal("malformed", each) for each in faults(pod, _own(fragment))]
    if malformed:
        # The rules below read what was just found to be missing or of another type.
        return malformed
    return list(_obstacles(pod, fragment))


def _own(fragment: Fragment) -> frozenset[str]:
    parts = (*fragment.init_containers, *fragment.volumes, *fragment.environment)
    return frozenset(each["name"] for each in parts)


def _obstacles(pod: Json, fragment: Fragment) -> Iterator[Refusal]:
    if _is_windows(pod["spec"]):
        yield Refusal("windows", "the pod is for Windows nodes, and the sidecar runs on Linux only")
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    if MIRROR in annotations:
        yield Refusal(
            "mirror",
            "a static pod can't be governed, as the kubelet starts it from a file: remove the file"
            " from the node, or put the pod in a namespace that is not governed",
        )
    account = account_of(pod)
    if not _ACCOUNT.match(account):
        yield Refusal("account", f"{shown(account)} is not the name of a ServiceAccount")
    for key in sorted(annotations):
        option = key.removeprefix(PREFIX)
        # An option that is not on the allow-list is refused by `refusals`.
        if key.startswith(PREFIX) and option in OPTIONS and option in fragment.options:
            complaint = fault(option, annotations[key])
            if complaint:
                yield Refusal("option-value", f"annotation `{key}`: {complaint}")


def _is_windows(spec: Json) -> bool:
    # Whatever stands there as another type is the API server's to refuse.
    system, selector = spec.get("os"), spec.get("nodeSelector")
    if isinstance(system, dict) and system.get("name") == "windows":
        return True
    return isinstance(selector, dict) and any(selector.get(key) == "windows" for key in _OS)
