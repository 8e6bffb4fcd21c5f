"""Reads the objects that the checks need: with `kubectl get`, as the user's context may, or from a
file with the JSON that kubectl printed. Reads no Secret, and changes nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from deploy.kubernetes.doctor.snapshot import Cluster, Json, at, name, objects
from deploy.kubernetes.doctor.sources import INJECTION, is_sources

SECONDS = 120


class Kind(NamedTuple):
    """A kind of objects, and its name for kubectl. An `optional` one is not in every cluster."""

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
    """The objects in a file: one List, or several in a JSON array. Raises `CollectError`."""
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
    """What kubectl can read. Raises `CollectError` without kubectl or an answer."""
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
    """The service accounts in the output of `sluice agents list --all --json`. Raises
    `CollectError`."""
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
