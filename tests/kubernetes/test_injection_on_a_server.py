"""What a real API server makes of the engine `policy`: the pods that the webhook would make of the
golden files, in any order with other policies, and within the Pod Security Standards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.kubernetes.admission.vocabulary import POD_SECURITY
from tests.deploy.kubernetes.admission.goldens import VALUES
from tests.deploy.kubernetes.admission.governed_pods import Pod, changed, plain_pod
from tests.kubernetes.api_server import ApiServer, Refused
from tests.kubernetes.golden_pods import GoldenPod, fragment, golden_pods, values
from tests.kubernetes.rendered import rendered
from tests.support.waiting import until

ENABLED = {"sluice/inject": "enabled"}
POLICIES = "/apis/admissionregistration.k8s.io/v1"
BEFORE = "is invalid|violates PodSecurity"
"""What the API server refuses before it asks the policies."""
_TOKEN = re.compile(r"kube-api-access-[a-z0-9]+")


def policies(server: ApiServer, settings: str) -> None:
    """Install both policies, and wait until they are in force."""
    server.namespace("ready", **ENABLED)
    for only in ("mutating-policy.yaml", "validating-policy.yaml"):
        for manifest in rendered("injection.engine=policy", *values(settings), only=only):
            server.apply(manifest)
    digest = f"sha256:{fragment(settings).digest[:16]}"

    def in_force() -> bool:
        try:
            pod = server.create_pod("ready", plain_pod())
        except Refused:
            return False
        return digest in pod["metadata"].get("annotations", {}).get("sluice/status", "")

    until("both policies are in force", in_force)
    refused = changed(plain_pod(), {"/spec/hostNetwork": True})
    until("pods are refused", lambda: _answer(server, "ready", refused)[1])


@pytest.fixture(autouse=True)
def _removed(api_server: ApiServer) -> Iterator[None]:
    """Leave no policy to the next test."""
    yield
    for kind in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"):
        for item in api_server.call("GET", f"{POLICIES}/{kind}")["items"]:
            api_server.call("DELETE", f"{POLICIES}/{kind}/{item['metadata']['name']}")
    plain = api_server.namespace("plain")
    until("no policy mutates", lambda: "initContainers" not in _spec(api_server, plain))
    governed = api_server.namespace("ready", **ENABLED)
    until(
        "none of ours", lambda: "sidecar-missing" in _answer(api_server, governed, plain_pod())[1]
    )


def _answer(server: ApiServer, namespace: str, pod: Pod) -> tuple[Any, str]:
    """The stored pod without what differs each time, or why it is refused."""
    try:
        stored = server.create_pod(namespace, pod)
    except Refused as refused:
        return None, str(refused)
    same = _TOKEN.sub("kube-api-access-x", json.dumps(stored))
    kept = json.loads(same)
    # The volume of the API server's token comes before ours or after, as the pod arrived.
    kept["spec"]["volumes"].sort(key=lambda each: each["name"])
    labels = kept["metadata"].get("labels"), kept["metadata"].get("annotations")
    return (kept["spec"], labels), ""


def _home(server: ApiServer, golden: GoldenPod) -> str:
    """A namespace with the labels of the golden pod's, and the pod's account."""
    label = golden.namespace.labels.get("sluice/inject", "none")
    level = golden.namespace.pod_security
    name = f"{label}-{level}".lower()
    server.namespace(name, **{"sluice/inject": label, POD_SECURITY: level})
    spec = golden.pod["spec"]
    server.account(name, spec.get("serviceAccountName") or spec.get("serviceAccount") or "default")
    return name


@pytest.mark.parametrize("settings", VALUES)
def test_golden_files_give_the_same_pods_on_a_server(api_server: ApiServer, settings: str) -> None:
    policies(api_server, settings)
    for golden in golden_pods():
        if golden.settings != settings:
            continue
        home = _home(api_server, golden)
        named = {"apiVersion": "v1", "kind": "Pod"}
        given, why = _answer(api_server, home, _named(golden.pod) | named)
        if golden.admitted:
            made, also = _answer(api_server, home, _named(golden.result) | named)
            assert (given, _parts(why)) == (made, _parts(also)), golden.case.name
            assert not why or re.search(BEFORE, why), (golden.case.name, why)
        else:
            rules = "|".join(golden.rules)
            expected = rf"\(({rules})\)$|is invalid|violates PodSecurity|a mirror pod may not"
            assert re.search(expected, why), golden.case.name


def _parts(why: str) -> list[str]:
    # The API server names invalid annotations in any order.
    return sorted(re.split(r"[\[\],] ?", why))


def _named(pod: Pod) -> Pod:
    # A template of pods has no name of its own.
    name = pod["metadata"].get("name") or "pod"
    return changed(pod, {"/metadata/name": name, "/metadata/namespace": None})


def test_another_policy_that_puts_its_container_first_is_followed_by_ours(
    api_server: ApiServer,
) -> None:
    policies(api_server, "explicit")
    rest = "has(object.spec.initContainers) && object.spec.initContainers.exists(c, c.name == 'a')"
    container = "{'name': dyn('a'), 'image': dyn('a')}"
    path = "has(object.spec.initContainers) ? '/spec/initContainers/0' : '/spec/initContainers'"
    value = f"has(object.spec.initContainers) ? dyn({container}) : dyn([{container}])"
    first = f"[JSONPatch{{op: 'add', path: {path}, value: {value}}}]"
    # Its name comes before ours, and after: policies run in the order of their names.
    for name in ("a-first", "z-first"):
        other(api_server, name, f"{rest} ? [] : {first}")
    plain = api_server.namespace("plain")
    until("the other policies are in force", lambda: "initContainers" in _spec(api_server, plain))
    spec = _spec(api_server, "ready")
    assert [each["name"] for each in spec["initContainers"]] == ["sluice-proxy", "a"]
    environment = spec["initContainers"][1]["env"]
    assert "HTTP_PROXY" in {each["name"] for each in environment}


def _spec(server: ApiServer, namespace: str) -> Any:
    return server.create_pod(namespace, plain_pod())["spec"]


def other(server: ApiServer, name: str, expression: str) -> None:
    """A mutating policy of someone else."""
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    server.apply({**api, "kind": "MutatingAdmissionPolicy", "spec": spec})
    server.apply({**api, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": name}})


def test_the_sidecar_meets_the_standard_restricted(api_server: ApiServer) -> None:
    policies(api_server, "explicit")
    server = api_server
    server.namespace("tight", **ENABLED, **{POD_SECURITY: "restricted"})
    pod = changed(
        plain_pod(),
        {
            "/spec/containers/0/securityContext/capabilities": {"drop": ["ALL"]},
            "/spec/containers/0/securityContext/runAsNonRoot": True,
            "/spec/containers/0/securityContext/seccompProfile": {"type": "RuntimeDefault"},
        },
    )
    given, why = _answer(server, "tight", pod)
    assert not why
    assert given[0]["initContainers"][0]["name"] == "sluice-proxy"
    assert "violates PodSecurity" in _answer(server, "tight", plain_pod())[1]


def test_a_limit_range_does_not_keep_pods_from_starting(api_server: ApiServer) -> None:
    policies(api_server, "explicit")
    limits = {
        "type": "Container",
        "default": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "2Gi"},
        "defaultRequest": {"cpu": "100m"},
    }
    api_server.namespace("limited", **ENABLED)
    api_server.apply(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "limits", "namespace": "limited"},
            "spec": {"limits": [limits]},
        }
    )

    def spec() -> Any:
        return _spec(api_server, "limited")

    until("the range is in force", lambda: "limits" in spec()["containers"][0]["resources"])
    assert spec()["initContainers"][0]["resources"]["limits"]["cpu"] == "1"
