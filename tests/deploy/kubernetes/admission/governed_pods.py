"""Pods as a governed namespace stores them, and changes to them, for whatever judges pods: the
rules in Python, the policies of the chart in CEL, and a real API server.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

from deploy.kubernetes.admission.template import Fragment
from deploy.kubernetes.admission.vocabulary import Namespace

Pod = dict[str, Any]
ENABLED = Namespace("governed", {"sluice/inject": "enabled"})
OPTIONAL = Namespace("optional", {"sluice/inject": "optional"})
RESTRICTED = Namespace(
    "restricted",
    {"sluice/inject": "enabled", "pod-security.kubernetes.io/enforce": "restricted"},
)
_OWN = {"initContainers": "init_containers", "containers": "containers"}
SAFE = {
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
"""The security context that the mode `transparent` asks for."""


def plain_pod(**spec: Any) -> Pod:
    """A pod as its author writes it, fit for both modes."""
    container = {"name": "agent", "image": "agent:1", "securityContext": copy.deepcopy(SAFE)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "agent"},
        "spec": {"containers": [container], **spec},
    }


def governed_pod(fragment: Fragment, **spec: Any) -> Pod:
    """The same with the sidecar, as the API server stores it: as an ordinary container if the
    fragment lets the pod ask for one."""
    pod = plain_pod(**spec)
    ordinary = bool(fragment.containers)
    if ordinary:
        pod["metadata"]["annotations"] = {"config.sluice/native-sidecar": "false"}
    account = pod["spec"].get("serviceAccountName", "default")
    own = fragment.for_account(account, native=not ordinary)
    held = pod["spec"]
    for kind in ("initContainers", "containers"):
        held[kind] = copy.deepcopy(list(getattr(own, _OWN[kind]))) + held.get(kind, [])
    held["volumes"] = held.get("volumes", []) + copy.deepcopy(list(own.volumes))
    return pod


def changed(pod: Pod, changes: dict[str, Any]) -> Pod:
    """A copy of `pod` with values set by JSON pointer: parents are made, `-` appends."""
    pod = copy.deepcopy(pod)
    for pointer, value in changes.items():
        keys = [each.replace("~1", "/") for each in pointer.split("/")[1:]]
        holder: Any = pod
        for key, following in itertools.pairwise(keys):
            empty: Any = [] if following == "-" or following.isdigit() else {}
            holder = holder[int(key)] if isinstance(holder, list) else holder.setdefault(key, empty)
        if not isinstance(holder, list):
            holder[keys[-1]] = copy.deepcopy(value)
        elif keys[-1] == "-":
            holder.append(copy.deepcopy(value))
        else:
            holder[int(keys[-1])] = copy.deepcopy(value)
    return pod
