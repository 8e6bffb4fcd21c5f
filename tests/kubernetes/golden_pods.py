"""The pods of injection's golden files, each with what the webhook says about it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from deploy.kubernetes.admission import template
from deploy.kubernetes.admission.injection import apply, review
from deploy.kubernetes.admission.kubernetes_yaml import load, split
from deploy.kubernetes.admission.manifests import namespace_labels, workloads
from deploy.kubernetes.admission.template import Fragment
from deploy.kubernetes.admission.vocabulary import Namespace, Outcome, Verdict
from tests.deploy.kubernetes.admission.goldens import TAG, VALUES, Case, cases
from tests.kubernetes.rendered import one, rendered

Pod = dict[str, Any]


def values(settings: str) -> tuple[str, ...]:
    """The chart's values behind the fragment that a golden file names."""
    return (*VALUES[settings], TAG)


@functools.cache
def fragment(settings: str) -> Fragment:
    """That fragment, as the chart renders it."""
    manifest = one(rendered(*values(settings), only="injection-configmap.yaml"), "ConfigMap")
    return template.read(manifest["data"][template.KEY], settings)


@dataclass(frozen=True)
class GoldenPod:
    """One pod of a golden file, as the API server hands it to admission: without nulls."""

    case: Case
    pod: Pod
    namespace: Namespace

    @property
    def settings(self) -> str:
        return self.case.settings.stem

    @functools.cached_property
    def verdict(self) -> Verdict:
        return review(self.pod, self.namespace, fragment(self.settings))

    @property
    def admitted(self) -> bool:
        return self.verdict.outcome is not Outcome.refused

    @property
    def rules(self) -> list[str]:
        """The rules that the webhook says are broken."""
        return [each.rule for each in self.verdict.refusals]

    @property
    def result(self) -> Pod:
        """The pod as the webhook's patch leaves it."""
        return apply(self.pod, self.verdict.patch)


@functools.cache
def golden_pods() -> tuple[GoldenPod, ...]:
    """All that the API server could hand to admission: it refuses malformed ones itself."""
    found = [pod for case in cases() for pod in _pods(case)]
    return tuple(pod for pod in found if not {"malformed", "account"} & set(pod.rules))


def _pods(case: Case) -> list[GoldenPod]:
    documents = [load(text) for text in split(case.input)]
    labels = {name: each for document in documents for name, each in namespace_labels(document)}
    found = []
    for workload in (each for document in documents for each in workloads(document)):
        name = workload.namespace or case.namespace.name
        namespace = Namespace(name, labels.get(name, case.namespace.labels))
        pod = _without_nulls(workload.pod)
        found.append(GoldenPod(case, {"metadata": {}, **pod}, namespace))
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
