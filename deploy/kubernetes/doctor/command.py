"""The command `sluice doctor --cluster`: reads the objects of a cluster once, runs the checks in
order, and prints the findings as text or JSON. A finding names its check by the name of the check's
function.

The objects are read with `kubectl get`, with the rights of the user's context, or from a file with
the JSON that kubectl printed. Reads no Secret, and changes nothing.

Exit code 0 without findings, 1 with findings, 2 for unusable arguments, or a cluster or file that
can't be read.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from deploy.commands.client import output
from deploy.commands.client.output import safe
from deploy.kubernetes.doctor.namespaces import (
    egress,
    grpc_twins,
    old_sidecars,
    open_sources,
    privileges,
    sources_unreadable,
    unlabelled,
    without_sidecar,
)
from deploy.kubernetes.doctor.rights import injection, refusal, rights
from deploy.kubernetes.doctor.snapshot import Cluster, Json, at, name, objects
from deploy.kubernetes.doctor.sources import INJECTION, is_sources
from policies.ground.doctor_finding import DoctorFinding, Severity, as_lines, ordered


def as_text(findings: Sequence[DoctorFinding]) -> str:
    """Format the findings for a terminal. Names in a cluster have many authors, so control
    characters are shown as escapes."""
    if not findings:
        return "found nothing that can pass the governed namespaces by"
    return as_lines(findings, safe)


def as_json(findings: Sequence[DoctorFinding]) -> str:
    """Format the findings as JSON: `{findings: [{check, severity, seen, why, do}]}`."""
    rows = [
        {
            "check": each.check,
            "severity": each.severity.value,
            "seen": each.seen,
            "why": each.why,
            "do": each.do,
        }
        for each in findings
    ]
    return output.as_json({"findings": rows})


SECONDS = 120


class Kind(NamedTuple):
    """A kind of Kubernetes object to read, and the name of its resource for kubectl. An `optional`
    kind does not exist in every cluster."""

    kind: str
    resource: str
    optional: bool = False


_ADMISSION, _RIGHTS = "admissionregistration.k8s.io", "rbac.authorization.k8s.io"
KINDS = (
    Kind("Namespace", "namespaces"),
    Kind("Pod", "pods"),
    Kind("ConfigMap", "configmaps"),
    Kind("Service", "services"),
    Kind("NetworkPolicy", "networkpolicies.networking.k8s.io"),
    Kind("MutatingWebhookConfiguration", f"mutatingwebhookconfigurations.{_ADMISSION}"),
    Kind("ValidatingAdmissionPolicy", f"validatingadmissionpolicies.{_ADMISSION}"),
    Kind("ValidatingAdmissionPolicyBinding", f"validatingadmissionpolicybindings.{_ADMISSION}"),
    Kind("MutatingAdmissionPolicy", f"mutatingadmissionpolicies.{_ADMISSION}", optional=True),
    Kind(
        "MutatingAdmissionPolicyBinding",
        f"mutatingadmissionpolicybindings.{_ADMISSION}",
        optional=True,
    ),
    Kind("ClusterRole", f"clusterroles.{_RIGHTS}"),
    Kind("ClusterRoleBinding", f"clusterrolebindings.{_RIGHTS}"),
    Kind("Role", f"roles.{_RIGHTS}"),
    Kind("RoleBinding", f"rolebindings.{_RIGHTS}"),
)


class CollectError(Exception):
    """the objects can't be read at all; the message says why"""


def from_file(path: Path) -> Cluster:
    """Read a snapshot from a file with one List, or with a JSON array of Lists. Raises
    `CollectError`."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CollectError(f"{path}: {error}") from error
    lists = found if isinstance(found, list) else [found]
    items = [item for each in lists for item in objects(each, "items")]
    if not items:
        raise CollectError(f"{path}: no objects; expected what `kubectl get … -o json` prints")
    return Cluster.of(items)


def from_kubectl(context: str | None) -> Cluster:
    """Read a snapshot with kubectl, from the context `context` or the current one. Kinds that the
    user may not read are noted as unread. Raises `CollectError` if kubectl is missing, or if almost
    nothing can be read."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise CollectError("kubectl is not in PATH; install it, or read a file with --from FILE")
    items: list[Json] = []
    unread: dict[str, str] = {}
    for kind in KINDS:
        try:
            items += _kept(kind, _get(kubectl, kind, context))
        except CollectError as error:
            unread[kind.kind] = str(error)
    if len(unread) >= len(KINDS) - 1:
        raise CollectError(next(iter(unread.values())))
    return Cluster.of(items, unread=unread)


def registered(path: Path) -> frozenset[tuple[str, str]]:
    """Return the service accounts of registered agents, each as namespace and name, from a file
    with the output of `sluice agents list --all --json`. Raises `CollectError`."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CollectError(f"{path}: {error}") from error
    rows = objects({"rows": found}, "rows") or objects(found, "items")
    workloads = (str(at(row, "workload") or "") for row in rows)
    return frozenset(_account(each) for each in workloads if ":system:serviceaccount:" in each)


def _account(workload: str) -> tuple[str, str]:
    # `<issuer>:system:serviceaccount:<namespace>:<name>`; an issuer may contain colons.
    owner, _, account = workload.rpartition(":system:serviceaccount:")[2].partition(":")
    return owner, account


def _get(kubectl: str, kind: Kind, context: str | None) -> Any:
    command = [kubectl, "get", kind.resource, "--all-namespaces", "--output=json"]
    command += [f"--context={context}"] if context else []
    try:
        ended = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CollectError(str(error)) from error
    if ended.returncode:
        said = ended.stderr.decode(errors="replace").strip()
        if kind.optional and "doesn't have a resource type" in said:
            return {}
        raise CollectError(said.splitlines()[-1] if said else f"kubectl: {ended.returncode}")
    try:
        return json.loads(ended.stdout)
    except ValueError as error:
        raise CollectError(f"kubectl printed no JSON: {error}") from error


def _kept(kind: Kind, found: Any) -> Iterator[Json]:
    for item in objects(found, "items"):
        # Other ConfigMaps are no concern of ours.
        if kind.kind != "ConfigMap" or name(item) == INJECTION or is_sources(item):
            yield {"kind": kind.kind, **item}


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
    """Run all checks on a snapshot. Returns the findings, the most severe first."""
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


def main(words: list[str]) -> int:
    """Run the command with the arguments that follow `sluice doctor`, and return the exit code."""
    arguments = _parser().parse_args(words)
    try:
        cluster = (
            from_kubectl(arguments.context)
            if arguments.source is None
            else from_file(arguments.source)
        )
        if arguments.agents is not None:
            cluster = replace(cluster, registered=registered(arguments.agents))
    except CollectError as error:
        print(f"sluice doctor: {error}", file=sys.stderr)
        return 2
    findings = examine(cluster)
    print((as_json if arguments.json else as_text)(findings))
    return 1 if findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice doctor --cluster",
        description="Finds what could pass the governed namespaces of a Kubernetes cluster by. "
        "Reads with kubectl, changes nothing, and reads no Secret.",
    )
    parser.add_argument("--cluster", action="store_true", required=True, help="check a cluster")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--context", help="the context of kubectl's configuration")
    source.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="read the objects from a file: what `kubectl get … -o json` printed",
    )
    parser.add_argument(
        "--agents",
        type=Path,
        metavar="FILE",
        help="the output of `sluice agents list --all --json`, to find registered agents that run "
        "in ungoverned namespaces",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return parser
