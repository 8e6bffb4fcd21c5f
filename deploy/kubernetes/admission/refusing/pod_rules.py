"""The rules about a pod itself: they refuse pods that could take the sidecar's identity, read its
process, or run where the sidecar can't.

The rules about the identity also hold for a pod that opted out of the sidecar: without a sidecar,
it may not have a sidecar's identity either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from deploy.kubernetes.admission.refusing.pod_view import (
    PodView,
    inject_label,
    items,
    mapping,
    name_of,
    objects,
    option_annotations,
)
from deploy.kubernetes.admission.settings import fits
from deploy.kubernetes.admission.vocabulary import OPTIONS, Governance, Json

AUDIENCE: Final = "sluice"
"""The audience of the service account tokens with which sidecars enrol at the control API."""
AGENT_KEYS: Final = "sluice-agent-"
"""The prefix of the names of Secrets that hold an agent's keys."""


def tokens(view: PodView) -> Iterator[str]:
    """Yield the volumes with a token for enrolment, which only the sidecar may have: anyone who
    reads it can act as the agent."""
    for volume in view.author_volumes:
        for source in objects(mapping(volume, "projected"), "sources"):
            if mapping(source, "serviceAccountToken").get("audience") == AUDIENCE:
                yield name_of(volume)
                break


def secret_volumes(view: PodView) -> Iterator[str]:
    """Yield the volumes that hold a Secret with an agent's keys."""
    for volume in view.author_volumes:
        sources = objects(mapping(volume, "projected"), "sources")
        driver = mapping(volume, "csi", "nodePublishSecretRef").get("name")
        if (
            _agents(mapping(volume, "secret").get("secretName"))
            or _agents(driver)
            or any(_agents(mapping(source, "secret").get("name")) for source in sources)
        ):
            yield name_of(volume)


def secret_variables(view: PodView) -> Iterator[str]:
    """Yield the containers with an environment variable from a Secret with an agent's keys."""
    for container in view.author_containers:
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
    """Yield the volumes that mount the node's files: the tokens and keys of all pods on the node
    are among them."""
    return (name_of(each) for each in view.author_volumes if "hostPath" in each)


def host_aliases(view: PodView) -> Iterator[str]:
    """Yield the addresses to which the pod's author maps host names. The sidecar would believe the
    mapping, and send its token to that address, or take a forbidden source for an allowed one."""
    for alias in objects(view.spec, "hostAliases"):
        yield str(alias.get("ip", ""))


def dns(view: PodView) -> Iterator[str]:
    """Yield the fields that replace the cluster's DNS or the pod's host name. The sidecar trusts
    these names, as it would trust `hostAliases`."""
    config = mapping(view.spec, "dnsConfig")
    if view.spec.get("dnsPolicy") == "None":
        yield "dnsPolicy"
    for field in ("nameservers", "searches"):
        if items(config, field):
            yield f"dnsConfig.{field}"
    if view.spec.get("hostnameOverride"):
        yield "hostnameOverride"


def opt_outs(view: PodView) -> Iterator[str]:
    """Yield the namespace if the pod declines the sidecar, although the namespace requires it for
    every pod."""
    declined = inject_label(view.pod) == "disabled"
    if declined and view.namespace.governance is Governance.ENABLED:
        yield view.namespace.name


def options(view: PodView) -> Iterator[str]:
    """Yield the annotations that set an option which the chart's values don't allow."""
    for key in sorted(option_annotations(view.pod)):
        if key.removeprefix(OPTIONS) not in view.fragment.options:
            yield key


def option_values(view: PodView) -> Iterator[str]:
    """Yield the annotations whose value is not valid for their option. The value would reach
    Sluice's containers."""
    given = option_annotations(view.pod)
    for option in sorted(view.fragment.options):
        key = f"{OPTIONS}{option}"
        if key in given and not fits(option, given[key]):
            yield key


def restricted(view: PodView) -> Iterator[str]:
    """Yield the namespace if its Pod Security Standard forbids the init container that the
    transparent mode needs."""
    if view.transparent and view.namespace.pod_security == "restricted":
        yield view.namespace.name


MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of mirror pods, by which a kubelet shows a static pod in the API. The API server
lets no update change it."""
_SYSTEMS: Final = ("kubernetes.io/os", "beta.kubernetes.io/os")


def windows(view: PodView) -> Iterator[str]:
    """Yield the fields that request Windows nodes: the sidecar's image is for Linux."""
    if mapping(view.spec, "os").get("name") == "windows":
        yield "os.name"
    selector = mapping(view.spec, "nodeSelector")
    for key in _SYSTEMS:
        if selector.get(key) == "windows":
            yield key


def mirrors(view: PodView) -> Iterator[str]:
    """Yield the annotation that marks the pod as the mirror of a static pod. The kubelet runs that
    pod from a file, so it would run without the injected sidecar."""
    if MIRROR in mapping(view.pod, "metadata", "annotations"):
        yield MIRROR


# Container runtimes accept any case, and some the prefix.
CAPABILITY: Final = re.compile(
    r"^(cap_)?(all|net_admin|net_raw|sys_admin|sys_ptrace|sys_module|bpf)\Z", re.IGNORECASE
)
SETUID: Final = re.compile(r"^(cap_)?setuid\Z", re.IGNORECASE)
POD: Final = "spec.securityContext"
"""The name that a message gives to the security context of the whole pod."""


def users(view: PodView) -> Iterator[str]:
    """Yield the parts of the pod that run as the sidecar's user. They could read the sidecar's
    memory, and in transparent mode their connections would not be redirected."""
    if view.security.get("runAsUser") == view.fragment.user:
        yield POD
    for container in view.author_containers:
        if _security(container).get("runAsUser") == view.fragment.user:
            yield name_of(container)


def groups(view: PodView) -> Iterator[str]:
    """Yield the parts of the pod that run with the sidecar's group, by which they could read its
    files."""
    group = view.fragment.group
    security = view.security
    if group in (security.get("runAsGroup"), security.get("fsGroup")) or group in items(
        security, "supplementalGroups"
    ):
        yield POD
    for container in view.author_containers:
        if _security(container).get("runAsGroup") == group:
            yield name_of(container)


def unset_users(view: PodView) -> Iterator[str]:
    """Yield the containers whose user is set only by their image, in transparent mode: it could be
    the sidecar's user, or root."""
    if view.transparent:
        for container in view.author_containers:
            if _user(view, container) is None:
                yield name_of(container)


def root_users(view: PodView) -> Iterator[str]:
    """Yield the containers that run as root, in transparent mode. With the capability SETUID, which
    runtimes grant by default, root can become the sidecar's user, whose connections are not
    redirected."""
    if view.transparent:
        for container in view.author_containers:
            if _user(view, container) == 0:
                yield name_of(container)


def escalations(view: PodView) -> Iterator[str]:
    """Yield the containers in which a set-user-id program could make a process root, in transparent
    mode."""
    if view.transparent:
        for container in view.author_containers:
            if _security(container).get("allowPrivilegeEscalation") is not False:
                yield name_of(container)


def privileged(view: PodView) -> Iterator[str]:
    """Yield the containers that are privileged: they can do anything on the node, and so bypass the
    sidecar."""
    for container in view.author_containers:
        if _security(container).get("privileged") is True:
            yield name_of(container)


def capabilities(view: PodView) -> Iterator[str]:
    """Yield the containers that request a capability with which the sidecar can be bypassed or its
    memory read."""
    for container in view.author_containers:
        added = items(mapping(_security(container), "capabilities"), "add")
        if any(isinstance(each, str) and CAPABILITY.match(each) for each in added):
            yield name_of(container)


def kept_capabilities(view: PodView) -> Iterator[str]:
    """Yield the containers that keep the capabilities SETUID or NET_RAW, in transparent mode.
    Runtimes grant these by default, and a program with file capabilities gets them as any user,
    even with `allowPrivilegeEscalation: false`, because the runtime had them when it started the
    program (capabilities(7), `no_new_privs`). It could then become the sidecar's user, or send
    packets that no rule sees."""
    if view.transparent:
        for container in view.author_containers:
            held = mapping(_security(container), "capabilities")
            added = (each for each in items(held, "add") if isinstance(each, str))
            if "ALL" not in items(held, "drop") or any(map(SETUID.match, added)):
                yield name_of(container)


def proc_mounts(view: PodView) -> Iterator[str]:
    """Yield the containers that see `/proc` without the masks that runtimes apply by default."""
    for container in view.author_containers:
        if _security(container).get("procMount", "Default") != "Default":
            yield name_of(container)


def host_processes(view: PodView) -> Iterator[str]:
    """Yield the Windows containers that run as processes of the node, outside any container."""
    if _host_process(view.security):
        yield POD
    for container in view.author_containers:
        if _host_process(_security(container)):
            yield name_of(container)


def namespaces(view: PodView) -> Iterator[str]:
    """Yield the fields by which the pod shares a Linux namespace with the node, or its containers
    share their processes with each other."""
    for field in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
        if view.spec.get(field) is True:
            yield field


def ephemeral(view: PodView) -> Iterator[str]:
    """Yield the ephemeral containers, which are added to a running pod for debugging: they can run
    as any user."""
    return (name_of(each) for each in objects(view.spec, "ephemeralContainers"))


def _security(container: Json) -> Json:
    return mapping(container, "securityContext")


def _user(view: PodView, container: Json) -> Any:
    own = _security(container).get("runAsUser")
    return view.security.get("runAsUser") if own is None else own


def _host_process(security: Json) -> bool:
    return mapping(security, "windowsOptions").get("hostProcess") is True
