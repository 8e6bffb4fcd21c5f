"""What a real API server makes of the golden files: it accepts them strictly, and what it stores is
still what we would inject, with its defaults and the mounted token."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.kubernetes.admission.injection import apply, review
from deploy.kubernetes.admission.kubernetes_yaml import load, split
from deploy.kubernetes.admission.manifests import workloads
from deploy.kubernetes.admission.vocabulary import Namespace, Outcome
from tests.deploy.kubernetes.admission.goldens import Case, cases, fragment
from tests.kubernetes.api_server import ApiServer, Refused

OUTPUTS = [case for case in cases() if case.expected()[0] == "output.yaml"]
ENABLED = Namespace("goldens", {"sluice/inject": "enabled"})


@pytest.fixture
def server(api_server: ApiServer) -> ApiServer:
    # Without our labels: here the API itself judges, and none of our policies.
    api_server.namespace("goldens")
    api_server.account("goldens", "loans")
    return api_server


def manifests(case: Case) -> list[dict[str, Any]]:
    """The manifests with a pod that was injected, those in Lists too."""
    found = []
    for text in split(case.expected()[1]):
        value = load(text)
        for each in value["items"] if value and value.get("kind") == "List" else [value]:
            if any("sluice-proxy" in str(workload.pod) for workload in workloads(each)):
                found.append(each)
    return found


def stored(server: ApiServer, manifest: dict[str, Any]) -> Any:
    """The manifest as the API server would store it."""
    metadata = {**manifest.get("metadata", {}), "namespace": "goldens"}
    if not metadata.get("name") and not metadata.get("generateName"):
        metadata["name"] = "agent"
    placed = {**manifest, "metadata": metadata}
    query = {"fieldValidation": "Strict", "dryRun": "All"}
    return server.call("POST", server.path_of(placed), placed, **query)


# Its annotations have names that only a file can have: they show how a path is escaped.
INVALID = "annotation-names-with-slash-and-tilde"
VALID = [case for case in OUTPUTS if case.name != INVALID]


@pytest.mark.parametrize("case", VALID, ids=lambda case: case.name)
def test_a_stored_pod_equals_the_injected_one(server: ApiServer, case: Case) -> None:
    for manifest in manifests(case):
        (workload,) = workloads(stored(server, manifest))
        again = review(workload.pod, ENABLED, case.fragment)
        assert (again.outcome, again.message, again.patch) == (Outcome.unchanged, "", ())


def test_the_invalid_case_is_invalid_for_its_annotations_alone(server: ApiServer) -> None:
    (manifest,) = manifests(Case(INVALID))
    # The API server names them in any order.
    either = r"metadata\.annotations: [^:]*: \"(~|example\.com/a~1b)\": [^\"]*"
    with pytest.raises(Refused, match=rf"^[^:]*: \[{either}, {either}\]$"):
        stored(server, manifest)


def compliant() -> dict[str, Any]:
    """A pod that keeps the Pod Security Standard `restricted`."""
    security = {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    agent = {"name": "agent", "image": "agents.example/loans:1.4", "securityContext": security}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent"}}
    return {**pod, "spec": {"containers": [agent]}}


@pytest.mark.parametrize("standard", ["baseline", "restricted"])
def test_explicit_mode_keeps_the_pod_security_standards(
    api_server: ApiServer, standard: str
) -> None:
    api_server.namespace(standard, **{"pod-security.kubernetes.io/enforce": standard})
    pod = compliant()
    explicit = apply(pod, review(pod, ENABLED, fragment("explicit")).patch)
    api_server.create_pod(standard, explicit)
    # The other mode doesn't, which is why `restricted` is a rule.
    transparent = apply(pod, review(pod, ENABLED, fragment("transparent")).patch)
    with pytest.raises(Refused, match="NET_ADMIN"):
        api_server.create_pod(standard, transparent)
