"""Checks that admission injects the sidecar, and refuses a pod without it, in every governed
namespace. Objects are recognised by the label of their selectors, not by their names."""

from __future__ import annotations

import json
from collections.abc import Iterator

from deploy.kubernetes.doctor.snapshot import (
    LABEL,
    Cluster,
    Json,
    at,
    name,
    objects,
    selects,
    texts,
)
from policies.ground.doctor_finding import DoctorFinding, Severity

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
WEBHOOK, ENGINE = "MutatingWebhookConfiguration", "MutatingAdmissionPolicy"
INSTALL = "install the chart again: helm upgrade"


def injection(cluster: Cluster) -> Iterator[DoctorFinding]:
    """Check that pods get a sidecar at all."""
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
    """Check that a pod without our sidecar is refused."""
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
