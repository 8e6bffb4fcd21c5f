"""Evaluates the chart's policy `sluice-refuse` without an API server, by a CEL library.

The library knows none of Kubernetes' own functions, so the policies keep to CEL that both accept,
and to `split`, which is added here. What the API server makes of them is tested on a real one.
"""

from __future__ import annotations

from typing import Any

import cel

from deploy.kubernetes.admission.vocabulary import LABEL, Namespace
from tests.kubernetes.rendered import one, rendered

Pod = dict[str, Any]


class Variables:
    """A policy's variables, evaluated in their order."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._programs = [
            (each["name"], cel.compile(each["expression"])) for each in spec.get("variables", [])
        ]

    def context(self, pod: Pod, namespace: Namespace, operation: str, old: Pod | None) -> Any:
        labels = dict(namespace.labels)
        context = cel.Context()
        context.add_function("split", str.split)
        context.add_variable("object", pod)
        context.add_variable("oldObject", old)
        context.add_variable("request", {"operation": operation})
        context.add_variable(
            "namespaceObject", {"metadata": {"name": namespace.name, "labels": labels}}
        )
        values: dict[str, Any] = {}
        context.add_variable("variables", values)
        for name, program in self._programs:
            values[name] = program.execute(context)
            # No rule reads what another one found.
            if not name.startswith("rule"):
                context.add_variable("variables", values)
        context.add_variable("variables", values)
        return context


class ValidatingPolicy:
    """The policy `sluice-refuse`."""

    def __init__(self, *values: str) -> None:
        manifests = rendered(*values, only="validating-policy.yaml")
        self.spec = one(manifests, "ValidatingAdmissionPolicy")["spec"]
        self._variables = Variables(self.spec)
        self._validations = [
            (cel.compile(each["expression"]), cel.compile(each["messageExpression"]))
            for each in self.spec["validations"]
        ]

    def messages(
        self, pod: Pod, namespace: Namespace, operation: str = "CREATE", old: Pod | None = None
    ) -> list[str]:
        """What each validation that fails says."""
        if namespace.labels.get(LABEL) not in ("enabled", "optional"):
            return []  # the policy's namespace selector
        context = self._variables.context(pod, namespace, operation, old)
        failed = [text for holds, text in self._validations if holds.execute(context) is not True]
        return [str(text.execute(context)) for text in failed]
