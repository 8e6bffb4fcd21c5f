"""Why a pod may not run in a governed namespace. Pure: knows neither HTTP nor the API server.

The webhook, `sluice inject --check` and the ValidatingAdmissionPolicy give the same verdict. The
rules are in `refusing/rules.py`; README.md lists them.
"""

from __future__ import annotations

from control_api.admission.refusing.pod_view import PodView, form_of
from control_api.admission.refusing.rules import RULES
from control_api.admission.template import Fragment
from control_api.admission.vocabulary import Governance, Json, Namespace, Operation, Refusal


def refusals(
    pod: Json,
    fragment: Fragment,
    namespace: Namespace,
    operation: Operation = "CREATE",
    old: Json | None = None,
) -> list[Refusal]:
    """Every rule that `pod` breaks, in order; empty if it may run.

    `pod` is judged as it would be stored: after injection. `old` is the pod before an update.
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
