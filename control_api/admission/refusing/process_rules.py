"""Refuses pods whose processes could become the sidecar's user, look into its process, or change
the rules that redirect connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from control_api.admission.refusing.pod_view import PodView, items, mapping, name_of, objects
from control_api.admission.vocabulary import Json

# Container runtimes accept any case, and some the prefix.
CAPABILITY: Final = re.compile(
    r"^(cap_)?(all|net_admin|net_raw|sys_admin|sys_ptrace|sys_module|bpf)\Z", re.IGNORECASE
)
SETUID: Final = re.compile(r"^(cap_)?setuid\Z", re.IGNORECASE)
POD: Final = "spec.securityContext"
"""How a message names the pod's own security context."""


def users(view: PodView) -> Iterator[str]:
    """What runs as the sidecar's user: it reads the sidecar's memory, and in transparent mode its
    connections are not redirected."""
    if view.security.get("runAsUser") == view.fragment.user:
        yield POD
    for container in view.foreign:
        if _security(container).get("runAsUser") == view.fragment.user:
            yield name_of(container)


def groups(view: PodView) -> Iterator[str]:
    """What runs with the sidecar's group."""
    group = view.fragment.group
    security = view.security
    if group in (security.get("runAsGroup"), security.get("fsGroup")) or group in items(
        security, "supplementalGroups"
    ):
        yield POD
    for container in view.foreign:
        if _security(container).get("runAsGroup") == group:
            yield name_of(container)


def unset_users(view: PodView) -> Iterator[str]:
    """Containers whose image decides the user: it can be the sidecar's, or root."""
    if view.transparent:
        for container in view.foreign:
            if _user(view, container) is None:
                yield name_of(container)


def root_users(view: PodView) -> Iterator[str]:
    """Containers that run as root: with the capability SETUID, which runtimes grant by default,
    root becomes the sidecar's user, whose connections are not redirected."""
    if view.transparent:
        for container in view.foreign:
            if _user(view, container) == 0:
                yield name_of(container)


def escalations(view: PodView) -> Iterator[str]:
    """Containers in which a set-user-id program makes a process root."""
    if view.transparent:
        for container in view.foreign:
            if _security(container).get("allowPrivilegeEscalation") is not False:
                yield name_of(container)


def privileged(view: PodView) -> Iterator[str]:
    """Privileged containers."""
    for container in view.foreign:
        if _security(container).get("privileged") is True:
            yield name_of(container)


def capabilities(view: PodView) -> Iterator[str]:
    """Containers that ask for a capability by which the sidecar is passed or read."""
    for container in view.foreign:
        added = items(mapping(_security(container), "capabilities"), "add")
        if any(isinstance(each, str) and CAPABILITY.match(each) for each in added):
            yield name_of(container)


def kept_capabilities(view: PodView) -> Iterator[str]:
    """Containers that keep SETUID or NET_RAW, which runtimes grant by default: a program with file
    capabilities gets them as any user, even with `allowPrivilegeEscalation: false`, because the
    runtime had them when it started the program (capabilities(7), `no_new_privs`). It then becomes
    the sidecar's user, or sends packets that no rule sees."""
    if view.transparent:
        for container in view.foreign:
            held = mapping(_security(container), "capabilities")
            added = (each for each in items(held, "add") if isinstance(each, str))
            if "ALL" not in items(held, "drop") or any(map(SETUID.match, added)):
                yield name_of(container)


def proc_mounts(view: PodView) -> Iterator[str]:
    """Containers that see `/proc` without its masks."""
    for container in view.foreign:
        if _security(container).get("procMount", "Default") != "Default":
            yield name_of(container)


def host_processes(view: PodView) -> Iterator[str]:
    """Windows containers that run as processes of the node."""
    if _host_process(view.security):
        yield POD
    for container in view.foreign:
        if _host_process(_security(container)):
            yield name_of(container)


def namespaces(view: PodView) -> Iterator[str]:
    """The namespaces that the pod shares with the node, or its containers with each other."""
    for field in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
        if view.spec.get(field) is True:
            yield field


def ephemeral(view: PodView) -> Iterator[str]:
    """Containers that were added for debugging: they run as any user."""
    return (name_of(each) for each in objects(view.spec, "ephemeralContainers"))


def _security(container: Json) -> Json:
    return mapping(container, "securityContext")


def _user(view: PodView, container: Json) -> Any:
    own = _security(container).get("runAsUser")
    return view.security.get("runAsUser") if own is None else own


def _host_process(security: Json) -> bool:
    return mapping(security, "windowsOptions").get("hostProcess") is True
