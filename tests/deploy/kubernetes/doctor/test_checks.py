"""Each change to a sound cluster is found, by the check that is meant to, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deploy.kubernetes.doctor.command import CHECKS, examine
from deploy.kubernetes.doctor.snapshot import Cluster
from tests.architecture.tree import ROOT
from tests.deploy.kubernetes.doctor.objects import (
    AGENTS,
    OTHERS,
    SOURCES,
    STORES,
    agent_pod,
    binding,
    cluster,
    item,
    ordinary_pod,
    role,
)

Items = list[dict[str, Any]]
Change = Callable[[Items], object]
LOANS = {"kind": "ServiceAccount", "name": "loans", "namespace": AGENTS}


def one(items: Items, kind: str, name: str) -> dict[str, Any]:
    [found] = [each for each in items if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def labelled(name: str, **labels: str) -> Change:
    return lambda items: one(items, "Namespace", name)["metadata"].update(
        labels={key.replace("__", "/"): value for key, value in labels.items()}
    )


def without(kind: str, name: str) -> Change:
    return lambda items: items.remove(one(items, kind, name))


def with_(*added: dict[str, Any]) -> Change:
    return lambda items: items.extend(added)


def spec(kind: str, name: str, **changed: Any) -> Change:
    return lambda items: one(items, kind, name)["spec"].update(changed)


def agent(**changed: Any) -> Change:
    """The agent's container with these keys in its security context."""
    return lambda items: one(items, "Pod", "agent-1")["spec"]["containers"][0][
        "securityContext"
    ].update(changed)


def plain_pod(name: str, where: str = AGENTS, **more: Any) -> dict[str, Any]:
    return item("Pod", name, where, spec={"containers": [{"name": "x"}]}, **more)


def several(*changes: Change) -> Change:
    return lambda items: [change(items) for change in changes]


POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
CASES: dict[str, tuple[Change, list[tuple[str, str, str]]]] = {
    "nothing": (lambda items: None, []),
    "a misspelt label": (
        labelled(OTHERS, sluice__inject="true"),
        [("unlabelled", "high", "`sluice/inject: true`, which means nothing")],
    ),
    "sources where nothing is governed": (
        with_(item("ConfigMap", "sluice-sources-till", OTHERS)),
        [("unlabelled", "high", "namespace `shop` is not governed: it has sluice-sources-till")],
    ),
    "a pod older than the label": (
        with_(plain_pod("old")),
        [("without_sidecar", "high", "have no sidecar: old")],
    ),
    "a sidecar that ends does not count": (
        lambda items: one(items, "Pod", "agent-1")["spec"]["initContainers"][1].pop(
            "restartPolicy"
        ),
        [("without_sidecar", "high", "have no sidecar: agent-1")],
    ),
    "a sidecar that is an ordinary container": (with_(ordinary_pod("job", "false")), []),
    "one that its pod did not ask for": (
        with_(ordinary_pod("job", "true")),
        [("without_sidecar", "high", "have no sidecar: job")],
    ),
    "a pod that has ended": (with_({**plain_pod("done"), "status": {"phase": "Succeeded"}}), []),
    "a pod that declines, where it may": (
        several(
            labelled(AGENTS, sluice__inject="optional"),
            with_(plain_pod("web", labels={"sluice/inject": "disabled"})),
        ),
        [("without_sidecar", "medium", "decline the sidecar by their label: web")],
    ),
    "a pod that declines, where it may not": (
        with_(plain_pod("web", labels={"sluice/inject": "disabled"})),
        [("without_sidecar", "high", "have no sidecar: web")],
    ),
    "a privileged agent": (agent(privileged=True), [("privileges", "high", "is privileged")]),
    "raw sockets": (
        agent(capabilities={"add": ["NET_RAW", "NET_BIND_SERVICE"], "drop": ["ALL"]}),
        [("privileges", "high", "container `agent` has NET_RAW")],
    ),
    "an agent with a runtime's default capabilities": (
        agent(capabilities={}),
        [("privileges", "high", "keeps default capabilities, such as SETUID and NET_RAW")],
    ),
    "an agent that is root": (agent(runAsUser=0), [("privileges", "high", "may run as root")]),
    "an agent that is the sidecar": (
        agent(runAsUser=20102),
        [("privileges", "high", "runs as the sidecar's user or group")],
    ),
    "an ephemeral container": (
        spec("Pod", "agent-1", ephemeralContainers=[{"name": "debug", "securityContext": {}}]),
        [("privileges", "high", "an ephemeral container was added")],
    ),
    "processes in sight of each other": (
        spec("Pod", "agent-1", shareProcessNamespace=True),
        [("privileges", "high", "shareProcessNamespace is set")],
    ),
    "no webhook": (
        without("MutatingWebhookConfiguration", "sluice-webhook"),
        [("injection", "medium", "nothing injects sidecars")],
    ),
    "a policy instead of the webhook": (
        several(
            without("MutatingWebhookConfiguration", "sluice-webhook"),
            with_(item("MutatingAdmissionPolicy", "sluice", spec={"x": "sluice/inject"})),
        ),
        [],
    ),
    "a webhook without a certificate": (
        lambda items: one(items, "MutatingWebhookConfiguration", "sluice-webhook")["webhooks"][0][
            "clientConfig"
        ].update(caBundle=""),
        [("injection", "medium", "no caBundle: enabled.inject.sluice")],
    ),
    "no policy": (without(POLICY, "sluice-refuse"), [("refusal", "high", "no Validating")]),
    "no binding": (
        without(BINDING, "sluice-refuse"),
        [("refusal", "high", "has no binding with the action Deny")],
    ),
    "a binding that only warns": (
        spec(BINDING, "sluice-refuse", validationActions=["Warn", "Audit"]),
        [("refusal", "high", "no binding with the action Deny; found: sluice-refuse")],
    ),
    "a policy that fails open": (
        spec(POLICY, "sluice-refuse", failurePolicy="Ignore"),
        [("refusal", "high", "has the failurePolicy `Ignore`")],
    ),
    "a namespace that the binding leaves out": (
        spec(
            BINDING,
            "sluice-refuse",
            matchResources={
                "namespaceSelector": {
                    "matchExpressions": [
                        {
                            "key": "kubernetes.io/metadata.name",
                            "operator": "NotIn",
                            "values": [AGENTS],
                        }
                    ]
                }
            },
        ),
        [("refusal", "high", "excludes the governed namespace `agents`")],
    ),
    "no policy for egress": (
        without("NetworkPolicy", "egress"),
        [("egress", "medium", "no NetworkPolicy limits where pods of `agents` connect to")],
    ),
    "both sides open to gRPC": (
        several(
            spec("NetworkPolicy", "egress", egress=[{}]),
            spec("NetworkPolicy", "ingress", ingress=[{"from": [{"namespaceSelector": {
                "matchLabels": {"sluice/inject": "enabled"}}}]}]),
        ),
        [("grpc_twins", "high", "keeps pods from port 6334, its gRPC: agent-1")],
    ),
    "gRPC that is judged, and open to every namespace": (
        several(
            spec("NetworkPolicy", "egress", egress=[{}]),
            spec("NetworkPolicy", "ingress", ingress=[
                {"from": [{"namespaceSelector": {}}], "ports": [{"port": 6334}]},
            ]),
            lambda items: one(items, "ConfigMap", "sluice-sources")["data"].update(
                {"sources.yaml": SOURCES.replace('6333"', '6333", grpc: "http://qdrant.stores:6334"')}),
        ),
        [("open_sources", "high", "`agents`, port 6334, accepts connections from ungoverned")],
    ),
    "one side open to gRPC": (spec("NetworkPolicy", "egress", egress=[{}]), []),
    "a range of ports that has the gRPC": (
        several(
            spec("NetworkPolicy", "egress", egress=[{"ports": [{"port": 6000, "endPort": 7000}]}]),
            spec("NetworkPolicy", "ingress", ingress=[{"from": [{"namespaceSelector": {
                "matchLabels": {"sluice/inject": "enabled"}}}], "ports": [{"port": 6334}]}]),
        ),
        [("grpc_twins", "high", "6334")],
    ),
    "no policy at the source": (
        without("NetworkPolicy", "ingress"),
        [("open_sources", "high", "accepts connections from ungoverned namespaces: shop")],
    ),
    "a source open to every namespace": (
        spec("NetworkPolicy", "ingress",
             ingress=[{"from": [{"namespaceSelector": {}}], "ports": [{"port": 6333}]}]),
        [("open_sources", "high", "ungoverned namespaces: shop")],
    ),
    "a source with a second policy that opens it": (
        with_(item("NetworkPolicy", "more", STORES, spec={"podSelector": {}, "ingress": [
            {"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "till"}}}]},
        ]})),
        [("open_sources", "high", "ungoverned namespaces: shop")],
    ),
    "an older sidecar": (
        lambda items: one(items, "Pod", "agent-1")["spec"]["initContainers"][1].update(image="s:0"),
        [("old_sidecars", "low", "run the sidecar `s:0`, not `sluice/sidecar:0.1.0`: agent-1")],
    ),
    "a pod from before the mode was changed": (
        lambda items: one(items, "Pod", "agent-1")["spec"]["initContainers"].pop(0),
        [("old_sidecars", "high", "have a sidecar, but no rules that lead to it: agent-1")],
    ),
    "sources that are no YAML": (
        lambda items: one(items, "ConfigMap", "sluice-sources")["data"].update(
            {"sources.yaml": "[" * 100_000}
        ),
        [("sources_unreadable", "unknown", "the sources of `agents` can't be read")],
    ),
    "an agent that may change its sources": (
        with_(
            role("Role", "own", AGENTS, ("", "configmaps", "patch")),
            binding("own", AGENTS, LOANS, "Role"),
        ),
        [("rights", "high", "`agents/loans` may, in `agents`: change `sluice-sources`")],
    ),
    "an agent that may connect through the API server": (
        with_(
            role("Role", "proxy", OTHERS, ("", "services/proxy", "get")),
            binding("proxy", OTHERS, LOANS, "Role"),
        ),
        [("rights", "high", f"in `{OTHERS}`: connect to Services through the API server")],
    ),
    "an operator who may do so": (
        with_(
            role("ClusterRole", "proxy", None, ("", "pods/portforward", "create")),
            binding("proxy", None, {"kind": "User", "name": "ann"}),
        ),
        [],
    ),
    "everyone may run commands": (
        with_(
            role("ClusterRole", "exec", None, ("", "pods/exec", "create")),
            binding("exec", None, {"kind": "Group", "name": "system:authenticated"}),
        ),
        [("rights", "high", "in every governed namespace: run commands in pods")],
    ),
    "an operator": (
        with_(
            role("ClusterRole", "ops", None, ("", "namespaces", "patch"), ("", "*", "*")),
            binding("ops", None, {"kind": "Group", "name": "operators"}),
        ),
        [("rights", "low", "Group `operators` may, in every governed namespace: change `sluice-")],
    ),
    "rights elsewhere": (
        with_(
            role("Role", "own", OTHERS, ("", "*", "*")),
            binding("own", OTHERS, {"kind": "User", "name": "ann"}, "Role"),
        ),
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(CASES))
def test_each_dangerous_change_is_found(case: str) -> None:
    change, expected = CASES[case]
    items = cluster()
    change(items)
    found = examine(Cluster.of(items))
    assert [(each.check, each.severity.value) for each in found] == [each[:2] for each in expected]
    for each, (_, _, says) in zip(found, expected, strict=True):
        assert says in each.seen


def test_in_the_mode_explicit_free_egress_is_worse() -> None:
    items = cluster()
    without("NetworkPolicy", "egress")(items)
    one(items, "ConfigMap", "sluice-injection")["data"]["injection.yaml"] = "mode: explicit"
    found = {each.check: each for each in examine(Cluster.of(items))}
    assert found["egress"].severity.value == "high"
    assert "HTTP_PROXY" in found["egress"].why


def test_a_registered_agent_in_an_ungoverned_namespace_is_found() -> None:
    items = cluster()
    items.append(item("Pod", "till-1", OTHERS, spec={"serviceAccountName": "till"}))
    known = frozenset({(OTHERS, "till"), (AGENTS, "loans")})
    [found] = examine(Cluster.of(items, registered=known))
    assert "registered agents run there: till-1" in found.seen


def test_an_unreadable_kind_of_object_is_a_finding() -> None:
    items = [each for each in cluster() if "Role" not in each["kind"]]
    [found] = examine(Cluster.of(items, unread={"ClusterRole": "forbidden"}))
    assert (found.check, found.severity.value) == ("unread", "unknown")


def test_a_cluster_that_governs_nothing_is_not_sound() -> None:
    found = {each.check: each.seen for each in examine(Cluster.of([]))}
    assert found["unlabelled"] == "no namespace is governed"


HOSTILE: list[Any] = [None, 7, "x", [], {}, [None], [[]], {"spec": 3}, {"a": {"b": []}}]


@pytest.mark.parametrize("value", [None, 7, "x", [None], {"a": {"b": []}}])
def test_an_object_with_no_valid_member_does_not_crash_the_check(value: Any) -> None:
    for number, each in enumerate(cluster()):
        items = cluster()
        kept = {"kind", "metadata"} if number % 2 else {"kind"}
        items[number] = {key: each[key] if key in kept else value for key in each}
        examine(Cluster.of(items))
    pod = agent_pod()
    examine(Cluster.of([*cluster(), {**pod, "spec": dict.fromkeys(pod["spec"], value)}]))


@pytest.mark.deep(stands_in="test_an_object_with_no_valid_member_does_not_crash_the_check")
@pytest.mark.parametrize("value", HOSTILE)
def test_objects_of_any_shape_do_not_crash_the_check(value: Any) -> None:
    for number, each in enumerate(cluster()):
        for key in each:
            items = cluster()
            if key not in ("kind", "metadata"):
                items[number][key] = value
            examine(Cluster.of(items))
    pod = agent_pod()
    for key in pod["spec"]:
        changed = {**pod, "spec": {**pod["spec"], key: value}}
        examine(Cluster.of([*cluster(), changed]))


def test_the_readme_lists_every_check() -> None:
    text = (ROOT / "deploy/kubernetes/doctor/README.md").read_text()
    assert not [each.__name__ for each in CHECKS if f"| `{each.__name__}` |" not in text]
