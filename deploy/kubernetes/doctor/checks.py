"""The list of checks, in order. A finding names its check by the name of the function."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from deploy.kubernetes.doctor.admission import injection, refusal
from deploy.kubernetes.doctor.namespaces import old_sidecars, unlabelled, without_sidecar
from deploy.kubernetes.doctor.pods import privileges
from deploy.kubernetes.doctor.rights import rights
from deploy.kubernetes.doctor.routes import egress, grpc_twins, open_sources, sources_unreadable
from deploy.kubernetes.doctor.snapshot import Cluster
from policies.ground.doctor_finding import DoctorFinding, Severity, ordered

Check = Callable[[Cluster], Iterable[DoctorFinding]]

CHECKS: tuple[Check, ...] = (
    unlabelled,
    without_sidecar,
    privileges,
    injection,
    refusal,
    egress,
    grpc_twins,
    open_sources,
    sources_unreadable,
    old_sidecars,
    rights,
)


def examine(cluster: Cluster) -> list[DoctorFinding]:
    """Run all checks. Returns the findings, the most severe first."""
    unread = [
        DoctorFinding(
            Severity.UNKNOWN,
            f"{kind} objects can't be read: {reason}",
            "what they allow was not examined",
            "run this as a user that may list them in all namespaces",
            "unread",
        )
        for kind, reason in cluster.unread.items()
    ]
    if not cluster.governed():
        unread.append(
            DoctorFinding(
                Severity.UNKNOWN,
                "no namespace is governed",
                "there is nothing to pass by; agents in this cluster are not governed at all",
                "kubectl label namespace NAME sluice/inject=enabled",
                "unlabelled",
            )
        )
    found = (found._replace(check=check.__name__) for check in CHECKS for found in check(cluster))
    return ordered([*unread, *found])
