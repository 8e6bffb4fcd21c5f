"""Checks which connections the NetworkPolicies let through beside the sidecars: to gRPC twins, from
ungoverned namespaces to the sources, and from governed pods to anywhere.

A network plugin need not enforce the policies: a cluster whose plugin ignores them looks the same
from here.
"""

from __future__ import annotations

from collections.abc import Iterator

from deploy.kubernetes.doctor.namespaces import listed
from deploy.kubernetes.doctor.snapshot import (
    Cluster,
    Endpoint,
    isolating,
    name,
    own_labels,
    passes,
    pod_endpoint,
)
from deploy.kubernetes.doctor.sources import (
    DataSource,
    UnreadableYaml,
    endpoints,
    fragment,
    sources,
)
from policies.ground.doctor_finding import DoctorFinding, Severity

GRPC_PORTS = {"qdrant": 6334, "weaviate": 50051, "milvus": 19530}
"""The port on which a data source of this kind also answers gRPC, which no sidecar can read."""
_OF_THE_CLUSTER = ("kube-system", "kube-public", "kube-node-lease")
_ELSEWHERE = Endpoint("", None)
_HTTPS = 443


def egress(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Find governed namespaces whose pods may connect to anything outside the cluster."""
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
    """Find ConfigMaps with sources that no sidecar can read."""
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
    """Find gRPC ports of sources that governed pods can connect to."""
    for where, source in _sources(cluster):
        port = GRPC_PORTS.get(source.kind)
        if port is None:
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
                "it answers there what its HTTP port answers, and the sidecar can't read it",
                "admit only the HTTP port, in the source's namespace or for egress from this one",
            )


def open_sources(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Find sources in the cluster that pods of ungoverned namespaces can connect to."""
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
                f"source `{source.alias}` of `{where}` accepts connections from ungoverned "
                f"namespaces: {listed(reaching)}",
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
