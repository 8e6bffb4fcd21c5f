"""Checks who may change the parts that governance depends on: the sources and the pods of a
governed namespace, its NetworkPolicies, its label, and the admission policies. Also checks whether
agents may connect through the API server, which bypasses the sidecar.

Also checks that admission injects the sidecar, and refuses a pod without it, in every governed
namespace. The webhook and the policies are recognised by the label in their selectors, not by their
names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from deploy.kubernetes.doctor.snapshot import (
    LABEL,
    Cluster,
    Json,
    at,
    name,
    namespace,
    objects,
    selects,
    texts,
)
from policies.ground.doctor_finding import DoctorFinding, Severity


class Right(NamedTuple):
    """A permission to look for in RBAC rules: `verbs` on a `resource` of the API group `group`. If
    `named` is given, only rules count that cover the object of that name."""

    title: str
    group: str
    resource: str
    verbs: frozenset[str]
    named: str = ""


_WRITE = frozenset({"create", "update", "patch", "delete"})
_CHANGE = frozenset({"update", "patch"})
RIGHTS = (
    Right("change `sluice-sources`", "", "configmaps", _WRITE, "sluice-sources"),
    Right("run commands in pods", "", "pods/exec", frozenset({"create", "get"})),
    Right("add ephemeral containers", "", "pods/ephemeralcontainers", _CHANGE),
    Right("change NetworkPolicies", "networking.k8s.io", "networkpolicies", _WRITE),
    Right("make tokens of service accounts", "", "serviceaccounts/token", frozenset({"create"})),
)
"""The permissions to look for in each governed namespace."""
CLUSTER_RIGHTS = (
    Right("change the labels of namespaces", "", "namespaces", _CHANGE),
    Right(
        "change validating admission policies",
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        _WRITE,
    ),
    Right(
        "change bindings of admission policies",
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        _WRITE,
    ),
)
"""The permissions to look for in cluster-wide bindings, since they affect all governed
namespaces."""
_CONNECT = frozenset({"get", "create", "update", "patch", "delete"})
AGENT_RIGHTS = (
    Right("connect to Services through the API server", "", "services/proxy", _CONNECT),
    Right("connect to pods through the API server", "", "pods/proxy", _CONNECT),
    Right("forward ports of pods", "", "pods/portforward", frozenset({"create", "get"})),
    Right("connect to nodes through the API server", "", "nodes/proxy", _CONNECT),
)
"""The permissions that agents themselves should not have in any namespace, since a data source may
be there: through the API server they reach it without their sidecar in mode `transparent`."""

EVERYONE = frozenset({"system:authenticated", "system:unauthenticated", "system:serviceaccounts"})


def rights(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Find subjects that may change the parts that governance depends on. The cluster's own
    components are left out."""
    if {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} & cluster.unread.keys():
        return
    governed = cluster.governed()
    if not governed:
        return
    found: dict[tuple[str, str, bool], dict[str, None]] = {}
    for binding, where in _bindings(cluster):
        role_rules = list(_rules(cluster, binding))
        places = governed if where is None else [where] if where in governed else []
        allowed = [each.title for each in RIGHTS if _allows(role_rules, each)] if places else []
        if where is None:
            allowed += [each.title for each in CLUSTER_RIGHTS if _allows(role_rules, each)]
        ways = [each.title for each in AGENT_RIGHTS if _allows(role_rules, each)]
        for subject in objects(binding, "subjects"):
            is_agent = _is_governed(subject, governed)
            titles = [*allowed, *(ways if is_agent else [])]
            if titles and not _is_component(subject):
                key = (_subject(subject), where or "", is_agent)
                found.setdefault(key, {}).update(dict.fromkeys(titles))
    for (who, owner, dangerous), seen in found.items():
        place = f"in `{owner}`" if owner else "in every governed namespace"
        yield DoctorFinding(
            Severity.HIGH if dangerous else Severity.LOW,
            f"{who} may, {place}: {', '.join(seen)}",
            "agents run with these rights, and can undo or pass what governs them"
            if dangerous
            else "who has these rights can lead an agent past its sidecar",
            "bind a role without them" if dangerous else "check that these are operators",
        )


def _bindings(cluster: Cluster) -> Iterator[tuple[Json, str | None]]:
    for each in cluster.all("ClusterRoleBinding"):
        yield each, None
    for each in cluster.all("RoleBinding"):
        yield each, namespace(each)


def _rules(cluster: Cluster, binding: Json) -> Iterator[Json]:
    kind, wanted = at(binding, "roleRef", "kind"), at(binding, "roleRef", "name")
    where = namespace(binding) if kind == "Role" else None
    for role in cluster.all(str(kind), where):
        if name(role) == wanted:
            yield from objects(role, "rules")


def _allows(rules: list[Json], right: Right) -> bool:
    return any(
        _covers(texts(rule, "apiGroups"), right.group)
        and _covers(texts(rule, "resources"), right.resource)
        and ("*" in texts(rule, "verbs") or right.verbs & set(texts(rule, "verbs")))
        # A rule for other names can't touch ours; `create` is never limited by a name.
        and (not right.named or not texts(rule, "resourceNames")
             or any(each.startswith(right.named) for each in texts(rule, "resourceNames")))
        for rule in rules
    )  # fmt: skip


def _covers(given: list[str], wanted: str) -> bool:
    _, slash, part = wanted.partition("/")
    return "*" in given or wanted in given or (bool(slash) and f"*/{part}" in given)


def _is_component(subject: Json) -> bool:
    """Return whether a subject is a component of the cluster or of Sluice, which has to be trusted
    anyway."""
    called = str(subject.get("name"))
    if subject.get("kind") == "ServiceAccount":
        return subject.get("namespace") in ("kube-system", "sluice-system")
    return called == "system:masters" or (
        called.startswith("system:")
        and called not in EVERYONE
        and not called.startswith("system:serviceaccounts:")
    )


def _is_governed(subject: Json, governed: list[str]) -> bool:
    """Return whether the subject of a binding includes agents: service accounts of governed
    namespaces."""
    called = str(subject.get("name"))
    if subject.get("kind") == "ServiceAccount":
        return subject.get("namespace") in governed
    return called in EVERYONE or called.removeprefix("system:serviceaccounts:") in governed


def _subject(subject: Json) -> str:
    owner = subject.get("namespace")
    called = f"{owner}/{subject.get('name')}" if owner else subject.get("name")
    return f"{subject.get('kind')} `{called}`"


POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
WEBHOOK, ENGINE = "MutatingWebhookConfiguration", "MutatingAdmissionPolicy"
INSTALL = "install the chart again: helm upgrade"


def injection(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Find reasons why pods would get no sidecar: nothing injects it, or the API server can't
    verify the webhook."""
    if {WEBHOOK, ENGINE} & cluster.unread.keys():
        return
    webhooks = [
        each
        for configuration in cluster.all(WEBHOOK)
        for each in objects(configuration, "webhooks")
        if _mentions_label(each)
    ]
    if not webhooks and not any(_mentions_label(each) for each in cluster.all(ENGINE)):
        yield DoctorFinding(
            Severity.MEDIUM,
            "nothing injects sidecars: no webhook and no MutatingAdmissionPolicy selects by "
            f"`{LABEL}`",
            "pods in governed namespaces get no sidecar; the validating policy refuses them",
            INSTALL,
        )
    unverified = [
        str(each.get("name"))
        for each in webhooks
        if at(each, "clientConfig", "service") and not at(each, "clientConfig", "caBundle")
    ]
    if unverified:
        yield DoctorFinding(
            Severity.MEDIUM,
            f"webhooks have no caBundle: {', '.join(unverified)}",
            "the API server can't verify them, so that no pod gets a sidecar, and each is refused",
            "read the webhook's log; with your own Secret, set `webhook.caBundle`",
        )


def refusal(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Find reasons why a pod without a sidecar would be admitted: the admission policy is missing,
    too weak, or not bound to every governed namespace."""
    if {POLICY, BINDING} & cluster.unread.keys():
        return
    # Not the one that refuses commands inside the sidecar, which judges no pod.
    policies = [
        each for each in cluster.all(POLICY) if _mentions_label(each) and _judges_pods(each)
    ]
    if not policies:
        yield DoctorFinding(
            Severity.HIGH,
            f"no {POLICY} selects by `{LABEL}`",
            "while the webhook is away, pods start without a sidecar; and a pod may ask for rights "
            "by which it passes the sidecar",
            INSTALL,
        )
    for policy in policies:
        yield from _weaknesses(cluster, policy)


def _weaknesses(cluster: Cluster, policy: Json) -> Iterator[DoctorFinding]:
    called = f"{POLICY} `{name(policy)}`"
    if at(policy, "spec", "failurePolicy") not in (None, "Fail"):
        yield DoctorFinding(
            Severity.HIGH,
            f"{called} has the failurePolicy `{at(policy, 'spec', 'failurePolicy')}`",
            "a pod that makes an expression fail is admitted",
            "set it to Fail",
        )
    rules = objects(policy, "spec", "matchConstraints", "resourceRules")
    if not any("pods/ephemeralcontainers" in texts(rule, "resources") for rule in rules):
        yield DoctorFinding(
            Severity.MEDIUM,
            f"{called} does not match pods/ephemeralcontainers",
            "`kubectl debug` adds a container with any user and any rights to a governed pod",
            INSTALL,
        )
    bindings = [
        each for each in cluster.all(BINDING) if at(each, "spec", "policyName") == name(policy)
    ]
    denying = [each for each in bindings if "Deny" in texts(each, "spec", "validationActions")]
    if not denying:
        yield DoctorFinding(
            Severity.HIGH,
            f"{called} has no binding with the action Deny"
            + (f"; found: {', '.join(map(name, bindings))}" if bindings else ""),
            "it refuses nothing",
            INSTALL,
        )
        return
    for where in cluster.governed():
        found = cluster.namespace_labels(where)
        own = at(policy, "spec", "matchConstraints", "namespaceSelector")
        covering = [at(each, "spec", "matchResources", "namespaceSelector") for each in denying]
        if not selects(own, found) or not any(selects(each, found) for each in covering):
            yield DoctorFinding(
                Severity.HIGH,
                f"{called} or its binding excludes the governed namespace `{where}`",
                "pods there are not refused, whatever they are",
                "remove the namespace from `injection.excludedNamespaces`, or its label",
            )


def _judges_pods(policy: Json) -> bool:
    rules = objects(policy, "spec", "matchConstraints", "resourceRules")
    return any({"pods", "*", "*/*"} & set(texts(rule, "resources")) for rule in rules)


def _mentions_label(item: Json) -> bool:
    # Wherever it selects by the label: a namespace selector, an object selector or an expression.
    return LABEL in json.dumps(item)
