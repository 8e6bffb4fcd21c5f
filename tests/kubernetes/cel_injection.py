"""Evaluates the chart's policy `sluice-inject` without an API server, by a CEL library.

The library does not know Kubernetes' type `JSONPatch`, which is read as a map here.
"""

from __future__ import annotations

import re
from typing import Any

import cel

from deploy.kubernetes.admission.injection import apply
from deploy.kubernetes.admission.vocabulary import Namespace
from tests.kubernetes.cel_policy import Pod, Variables
from tests.kubernetes.rendered import one, rendered

_PATCH = re.compile(r'JSONPatch\{op: ("\w+"), (path|from): ')


class MutatingPolicy:
    """The policy `sluice-inject`."""

    def __init__(self, *values: str) -> None:
        manifests = rendered("injection.engine=policy", *values, only="mutating-policy.yaml")
        spec = one(manifests, "MutatingAdmissionPolicy")["spec"]
        self._conditions = [cel.compile(each["expression"]) for each in spec["matchConditions"]]
        self._variables = Variables(spec)
        self._mutations = [
            cel.compile(_readable(each["jsonPatch"]["expression"])) for each in spec["mutations"]
        ]

    def operations(self, pod: Pod, namespace: Namespace) -> list[dict[str, Any]]:
        """The JSON Patch that all mutations together make."""
        context = self._variables.context(pod, namespace, "CREATE", None)
        if not all(each.execute(context) for each in self._conditions):
            return []
        found: list[dict[str, Any]] = []
        for mutation in self._mutations:
            operations = mutation.execute(context)
            pod = apply(pod, operations)
            context.add_variable("object", pod)
            found += operations
        return found


def _readable(expression: str) -> str:
    written, count = _PATCH.subn(r'{"op": \1, "\2": ', expression)
    assert count == expression.count("JSONPatch{")
    return written.replace(", value: ", ', "value": ').replace(", path: ", ', "path": ')
