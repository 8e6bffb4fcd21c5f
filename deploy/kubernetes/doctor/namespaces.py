"""Checks that every namespace with agents is governed, that every pod in a governed namespace has a
sidecar, and that no container of such a pod has rights with which it can bypass the sidecar.
Admission refuses pods with such rights, but a pod that started earlier still runs.

Also checks which connections the NetworkPolicies allow that bypass the sidecars: to the gRPC ports
of sources, from ungoverned namespaces to the sources, and from governed pods to anywhere. A network
plugin need not enforce these policies: a cluster whose plugin ignores them looks the same from
here.
"""

from __future__ import annotations

from collections.abc import Iterator

from deploy.kubernetes.doctor.snapshot import (
    GOVERNED,
    INIT,
    LABEL,
    PROXY,
    SYSTEM,
    Cluster,
    Endpoint,
    Json,
    account,
    at,
    containers,
    isolating,
    name,
    namespace,
    objects,
    own_labels,
    passes,
    pod_endpoint,
    sidecar,
    texts,
)
from deploy.kubernetes.doctor.sources import (
    DataSource,
    UnreadableYaml,
    endpoints,
    fragment,
    injected_image,
    is_sources,
    sources,
)
from policies.ground.doctor_finding import DoctorFinding, Severity

_SHOWN = 5
"""The most names that a sentence lists."""


def unlabelled(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Find namespaces with agents, or prepared for agents, whose label does not make them
    governed."""
    for each in cluster.all("Namespace"):
        where, value = name(each), own_labels(each).get(LABEL)
        if value in GOVERNED or where == SYSTEM:
            continue
        if value is not None:
            yield DoctorFinding(
                Severity.HIGH,
                f"namespace `{where}` has the label `{LABEL}: {value}`, which means nothing",
                "its pods get no sidecar, and none is refused",
                f"set the label to {' or '.join(GOVERNED)}",
            )
            continue
        signs = list(_signs(cluster, where))
        if signs:
            yield DoctorFinding(
                Severity.HIGH,
                f"namespace `{where}` is not governed: {'; '.join(signs)}",
                "agents there read without a sidecar, or could remove the one that they have",
                f"kubectl label namespace {where} {LABEL}=enabled, then restart its workloads",
            )


def _signs(cluster: Cluster, where: str) -> Iterator[str]:
    """Yield the signs that agents run in a namespace, or are meant to run there."""
    known = cluster.registered or frozenset()
    agents = [name(pod) for pod in cluster.pods(where) if (where, account(pod)) in known]
    if agents:
        yield f"registered agents run there: {listed(agents)}"
    injected = [
        name(pod)
        for pod in cluster.pods(where)
        if any(container.get("name") == PROXY for container in containers(pod))
    ]
    if injected:
        yield f"pods have a sidecar: {listed(injected)}"
    maps = [name(each) for each in cluster.all("ConfigMap", where) if is_sources(each)]
    if maps:
        yield f"it has {listed(maps)}"


def without_sidecar(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Find pods in governed namespaces that have no sidecar, because their label declines it or
    because they are older than the namespace's label."""
    for where in cluster.governed():
        missing: list[str] = []
        declined: list[str] = []
        for pod in cluster.pods(where):
            if sidecar(pod) is None:
                optional = cluster.governance(where) == "optional"
                disabled = own_labels(pod).get(LABEL) == "disabled"
                (declined if optional and disabled else missing).append(name(pod))
        if missing:
            yield DoctorFinding(
                Severity.HIGH,
                f"pods in the governed namespace `{where}` have no sidecar: {listed(missing)}",
                "they started before the namespace had its label, or while nothing refused them",
                f"restart them: kubectl --namespace {where} rollout restart deployment",
            )
        if declined:
            yield DoctorFinding(
                Severity.MEDIUM,
                f"pods in `{where}` decline the sidecar by their label: {listed(declined)}",
                "nothing that they read is judged; the namespace's label permits that",
                f"set the namespace's label `{LABEL}` to enabled, if these are agents",
            )


def old_sidecars(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Find sidecars that run another image than pods would get today, or that were injected before
    the mode was changed to transparent."""
    found = fragment(cluster)
    wanted = injected_image(found)
    if wanted is None:
        if cluster.governed() and "ConfigMap" not in cluster.unread:
            yield DoctorFinding(
                Severity.UNKNOWN,
                "the ConfigMap `sluice-injection` is missing, or can't be read",
                "sidecars can't be compared with what pods would get today",
                "check that the chart is installed",
            )
        return
    for where in cluster.governed():
        images: dict[str, list[str]] = {}
        for pod in cluster.pods(where):
            running = sidecar(pod)
            if running is not None and running.get("image") != wanted:
                images.setdefault(str(running.get("image")), []).append(name(pod))
        for image, pods in sorted(images.items()):
            yield DoctorFinding(
                Severity.LOW,
                f"pods in `{where}` run the sidecar `{image}`, not `{wanted}`: {listed(pods)}",
                "corrections of the newer version are not in force there",
                f"restart them: kubectl --namespace {where} rollout restart deployment",
            )
        yield from _unredirected(cluster, where, found)


def _unredirected(cluster: Cluster, where: str, found: Json) -> Iterator[DoctorFinding]:
    if found.get("mode") != "transparent":
        return
    pods = [
        name(pod)
        for pod in cluster.pods(where)
        if sidecar(pod) is not None
        and not any(each.get("name") == "sluice-init" for each in containers(pod))
    ]
    if pods:
        yield DoctorFinding(
            Severity.HIGH,
            f"pods in `{where}` have a sidecar, but no rules that lead to it: {listed(pods)}",
            "they were injected in the mode `explicit`, so that agents choose their own way",
            f"restart them: kubectl --namespace {where} rollout restart deployment",
        )


def listed(names: list[str]) -> str:
    """Return the first few names in alphabetical order and the number of the others, for a
    sentence."""
    more = len(names) - _SHOWN
    return ", ".join(sorted(names)[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def described(pod: Json) -> str:
    """Return a pod's name with its namespace, as `namespace/name`."""
    return f"{namespace(pod)}/{at(pod, 'metadata', 'name')}"


SIDECAR_ID = 20102
HARMLESS = frozenset({"NET_BIND_SERVICE"})
_SHARED = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")


def privileges(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Find governed pods with rights with which they can bypass the sidecar or read its keys."""
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


GRPC_PORTS = {"qdrant": 6334, "weaviate": 50051}
"""The default port on which a data source of each kind also speaks gRPC."""
_OF_THE_CLUSTER = ("kube-system", "kube-public", "kube-node-lease")
_ELSEWHERE = Endpoint("", None)
_HTTPS = 443


def egress(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Find governed namespaces whose pods may connect to any address outside the cluster."""
    if "NetworkPolicy" in cluster.unread:
        return
    explicit = fragment(cluster).get("mode") != "transparent"
    for where in cluster.governed():
        free = [
            name(pod)
            for pod in cluster.pods(where)
            if not isolating(cluster, pod_endpoint(pod), "Egress")
        ]
        if free:
            yield DoctorFinding(
                Severity.HIGH if explicit else Severity.MEDIUM,
                f"no NetworkPolicy limits where pods of `{where}` connect to: {listed(free)}",
                "an agent that ignores HTTP_PROXY reaches everything"
                if explicit
                else "only the rules inside the pod stop a connection that passes the sidecar",
                "add a policy for egress that selects all its pods (sidecar/redirect/README.md)",
            )


def sources_unreadable(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Find ConfigMaps with data sources that a sidecar can't parse."""
    for where in cluster.governed():
        try:
            sources(cluster, where)
        except UnreadableYaml as error:
            yield DoctorFinding(
                Severity.UNKNOWN,
                f"the sources of `{where}` can't be read: {error}",
                "ways to these sources were not examined, and no sidecar starts with them",
                "correct the ConfigMap (`sluice sidecar --check` finds what is wrong)",
            )


def grpc_twins(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Find data sources whose gRPC port governed pods can connect to, though their sidecars judge
    no calls to it, so that they bypass the sidecar."""
    for where, source in _sources(cluster):
        port = GRPC_PORTS.get(source.kind)
        if port is None or port in source.ports:
            continue
        reaching = {
            name(pod)
            for to in endpoints(cluster, source, where)
            for pod in cluster.pods(where)
            if passes(cluster, pod_endpoint(pod), to, port)
        }
        if reaching:
            yield DoctorFinding(
                Severity.HIGH,
                f"source `{source.alias}` of `{where}`: no NetworkPolicy keeps pods from port "
                f"{port}, its gRPC: {listed(sorted(reaching))}",
                "it answers there what its HTTP port answers, and no sidecar judges it",
                "set the source's `grpc`; or admit only the HTTP port, in the source's namespace "
                "or for egress from this one",
            )


def open_sources(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Find data sources in the cluster that pods of ungoverned namespaces can connect to."""
    governed = cluster.governed()
    for where, source in _sources(cluster):
        behind = [each for each in endpoints(cluster, source, where) if each.labels is not None]
        others = [
            name(each)
            for each in cluster.all("Namespace")
            if name(each) not in (*governed, *_OF_THE_CLUSTER, *(to.namespace for to in behind))
        ]
        reaching = [
            other
            for other in others
            if any(passes(cluster, sender, to, source.port)
                   for to in behind for sender in _senders(cluster, other))
        ]  # fmt: skip
        if reaching:
            yield DoctorFinding(
                Severity.HIGH,
                f"source `{source.alias}` of `{where}`, port {source.port}, accepts connections "
                f"from ungoverned namespaces: {listed(reaching)}",
                "a pod there reads without a sidecar",
                "add a policy for ingress to the source that admits only governed namespaces",
            )


def _senders(cluster: Cluster, where: str) -> list[Endpoint]:
    # A namespace without pods may have some tomorrow, with any labels.
    found = [Endpoint(where, own_labels(pod)) for pod in cluster.pods(where)]
    return found or [Endpoint(where, {})]


def _sources(cluster: Cluster) -> Iterator[tuple[str, DataSource]]:
    if "NetworkPolicy" in cluster.unread:
        return
    for where in cluster.governed():
        try:
            found = sources(cluster, where)
        except UnreadableYaml:
            continue  # `sources_unreadable` reports it
        for source in dict.fromkeys(found):
            yield where, source
