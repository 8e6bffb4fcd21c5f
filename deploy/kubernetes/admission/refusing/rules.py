"""Lists all rules in order, and applies them: tells why a pod may not run in a governed namespace.

The webhook, `sluice inject --check` and the ValidatingAdmissionPolicy give the same verdict. The
chart writes the same table in CEL (`templates/_refusals.tpl`); one test compares the names and
messages, and another the pods that are refused. README.md lists the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from deploy.kubernetes.admission.refusing import pod_rules, sidecar_rules
from deploy.kubernetes.admission.refusing.pod_view import PodView, form_of
from deploy.kubernetes.admission.template import Fragment
from deploy.kubernetes.admission.vocabulary import Governance, Json, Namespace, Operation, Refusal


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule that a pod must keep. A pod that breaks it is refused."""

    name: str
    offenders: Callable[[PodView], Iterable[str]]
    """A function that yields the names of the parts that break the rule; nothing if the pod keeps
    it."""
    message: str
    """The text for the pod's author. `{}` stands for the first part that breaks the rule."""
    opted_out: bool = False
    """True if the rule also holds for a pod that declined the sidecar with its namespace's
    permission."""


# INVARIANT: what is wrong with the namespace, the node or the sidecar comes first, as the API
# server reports the first refusal alone, and such a pod breaks other rules as a consequence: for
# `hostNetwork`, the API server itself sets a `hostPort` in the sidecar.
RULES: Final = (
    Rule(
        "opt-out",
        pod_rules.opt_outs,
        "the label `sluice/inject: disabled` has no effect in namespace `{}`: remove it, or ask for"
        " the namespace's label to be `optional`",
    ),
    Rule(
        "restricted",
        pod_rules.restricted,
        "namespace `{}` enforces the Pod Security Standard `restricted`, which forbids the init"
        " container of the mode `transparent`: use the mode `explicit`, or another namespace",
    ),
    Rule(
        "windows",
        pod_rules.windows,
        "`{}` asks for Windows nodes, and the sidecar runs on Linux only: put the pod in a"
        " namespace that is not governed",
    ),
    Rule(
        "mirror",
        pod_rules.mirrors,
        "`{}` marks a static pod, which can't be governed, as the kubelet starts it from a file:"
        " remove the file from the node, or put the pod in a namespace that is not governed",
    ),
    Rule(
        "host-namespace",
        pod_rules.namespaces,
        "`{}` opens the sidecar's network or processes to others: remove it",
    ),
    Rule(
        "sidecar-missing",
        sidecar_rules.missing,
        "the pod has no `{}`: create it again once the injector is available, or add it by"
        " `sluice inject`; a pod from before the namespace's label must be recreated",
    ),
    Rule(
        "sidecar-order",
        sidecar_rules.displaced,
        "`{}` must come before the pod's own containers: what starts before it is not governed",
    ),
    Rule(
        "sidecar-altered",
        sidecar_rules.altered,
        "`{}` is not as Sluice injects it: leave it out of the manifest, and keep other webhooks"
        " from changing it",
    ),
    Rule(
        "volumes",
        sidecar_rules.altered_volumes,
        "volume `{}` is missing or not as Sluice injects it: leave it out of the manifest",
    ),
    Rule(
        "names",
        sidecar_rules.reserved_names,
        "the name of container `{}` is reserved for Sluice: give it another",
        opted_out=True,
    ),
    Rule(
        "mounts",
        sidecar_rules.foreign_mounts,
        "container `{}` mounts a volume of the sidecar: remove the mount",
    ),
    Rule(
        "count",
        sidecar_rules.too_many_containers,
        "the pod has {} containers, over the limit of 200: make several pods of it",
    ),
    Rule(
        "ports",
        sidecar_rules.ports,
        "container `{}` claims one of the ports 8710 to 8712, which are the sidecar's: choose"
        " another",
    ),
    Rule(
        "token",
        pod_rules.tokens,
        "volume `{}` holds a token of the audience `sluice`, by which only sidecars enrol: use"
        " another audience",
        opted_out=True,
    ),
    Rule(
        "secret-volume",
        pod_rules.secret_volumes,
        "volume `{}` holds a Secret `sluice-agent-…`, which only the sidecar may read: remove it",
        opted_out=True,
    ),
    Rule(
        "secret-variable",
        pod_rules.secret_variables,
        "the environment of container `{}` holds a Secret `sluice-agent-…`, which only the sidecar"
        " may read: remove it",
        opted_out=True,
    ),
    Rule(
        "host-path",
        pod_rules.host_paths,
        "volume `{}` is a `hostPath`, which shows the tokens and keys of other pods: use a"
        " PersistentVolumeClaim",
    ),
    Rule(
        "host-alias",
        pod_rules.host_aliases,
        "`hostAliases` names `{}`, and the sidecar would believe it: use a Service or the cluster's"
        " DNS",
    ),
    Rule(
        "dns",
        pod_rules.dns,
        "`{}` replaces the cluster's DNS, which the sidecar relies on: remove it",
    ),
    Rule(
        "user",
        pod_rules.users,
        "`{}` runs as the sidecar's user: choose another `runAsUser`",
    ),
    Rule(
        "group",
        pod_rules.groups,
        "`{}` has the sidecar's group: choose another in `runAsGroup`, `fsGroup` and"
        " `supplementalGroups`",
    ),
    Rule(
        "user-unset",
        pod_rules.unset_users,
        "container `{}` leaves its user to the image: set `runAsUser`, which the mode `transparent`"
        " needs",
    ),
    Rule(
        "root",
        pod_rules.root_users,
        "container `{}` runs as root, which can become the sidecar's user: set another `runAsUser`",
    ),
    Rule(
        "escalation",
        pod_rules.escalations,
        "container `{}` may become root, and so the sidecar's user: set"
        " `allowPrivilegeEscalation: false`",
    ),
    Rule(
        "privileged",
        pod_rules.privileged,
        "container `{}` is privileged: remove `privileged`",
    ),
    Rule(
        "capability",
        pod_rules.capabilities,
        "container `{}` asks for a capability by which the sidecar can be passed by: remove"
        " `capabilities.add`",
    ),
    Rule(
        "capability-kept",
        pod_rules.kept_capabilities,
        "container `{}` keeps capabilities by which it can become the sidecar's user: set"
        " `capabilities.drop: [ALL]`, and add no SETUID",
    ),
    Rule(
        "proc-mount",
        pod_rules.proc_mounts,
        "container `{}` unmasks `/proc`: remove `procMount`",
    ),
    Rule(
        "host-process",
        pod_rules.host_processes,
        "`{}` asks for a process of the node: remove `hostProcess`",
    ),
    Rule(
        "ephemeral",
        pod_rules.ephemeral,
        "container `{}` is ephemeral, and could run as the sidecar's user: debug a copy of the pod"
        " in a namespace that is not governed",
    ),
    Rule(
        "option",
        pod_rules.options,
        "annotation `{}` is not allowed: ask for the option in the chart's `injection.options`",
    ),
    Rule(
        "option-value",
        pod_rules.option_values,
        "the value of annotation `{}` has another form: `log-level` is debug, info, warning or"
        " error; `native-sidecar` true or false; `skip-outbound-ports` at most 32 ports or ranges"
        " from 1 to 65535, such as `5432,8080-8090`; `skip-subnets` at most 32 networks of /8 or"
        " narrower, /32 for IPv6, such as `10.20.0.0/16,fd00:7::/48`, and none of 192.0.2.0/24 and"
        " 2001:db8::/32",
    ),
)


def refusals(
    pod: Json,
    fragment: Fragment,
    namespace: Namespace,
    operation: Operation = "CREATE",
    old: Json | None = None,
) -> list[Refusal]:
    """Return a refusal for each rule that `pod` breaks, in order; empty if the pod may run.

    `pod` must be as it would be stored: after injection. `old` is the pod before an update.
    """
    if namespace.governance is Governance.NONE:
        return []
    view = PodView(pod, form_of(pod, fragment), namespace, operation, old or {})
    if view.unchanged:
        return []
    found = []
    for rule in RULES:
        if view.opted_out and not rule.opted_out:
            continue
        first = next(iter(rule.offenders(view)), None)
        if first is not None:
            found.append(Refusal(rule.name, rule.message.format(first)))
    return found
