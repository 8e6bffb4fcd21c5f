"""The engine `policy` injects what the engine `webhook` injects, and the validating policy says of
the result what the webhook says: on every golden file."""

from __future__ import annotations

import functools

import pytest

from deploy.kubernetes.admission.injection import apply
from tests.deploy.kubernetes.admission.goldens import VALUES
from tests.kubernetes.cel_injection import MutatingPolicy
from tests.kubernetes.cel_policy import ValidatingPolicy
from tests.kubernetes.golden_pods import GoldenPod, golden_pods, values
from tests.kubernetes.rendered import rendered
from tests.runner import tiers

mutating = functools.cache(lambda settings: MutatingPolicy(*values(settings)))
validating = functools.cache(lambda settings: ValidatingPolicy(*values(settings)))


def test_there_are_golden_files_for_every_setting() -> None:
    assert len(golden_pods()) > 60
    assert {each.settings for each in golden_pods()} == set(VALUES)


def injected(golden: GoldenPod) -> dict[str, object]:
    """The pod as the mutating policy leaves it."""
    if golden.namespace.labels.get("sluice/inject") not in ("enabled", "optional"):
        return golden.pod  # the policy's namespace selector
    operations = mutating(golden.settings).operations(golden.pod, golden.namespace)
    return apply(golden.pod, operations)


@tiers.rotating(0, 5)
@pytest.mark.parametrize("golden", golden_pods(), ids=lambda each: each.case.name)
def test_either_engine_makes_the_same_pod(golden: GoldenPod) -> None:
    pod = injected(golden)
    said = validating(golden.settings).messages(pod, golden.namespace)
    if golden.admitted:
        assert pod == golden.result
        assert said == []
        return
    # The API server reports the first alone. A pod that declines in vain isn't injected here, and
    # so breaks more rules.
    expected = [str(each) for each in golden.verdict.refusals]
    assert said[:1] == expected[:1]
    again = mutating(golden.settings).operations(pod, golden.namespace)
    assert again == [], "a second review changes the pod"


def test_older_clusters_need_the_webhook() -> None:
    with pytest.raises(ValueError, match=r"needs Kubernetes 1\.36 or later"):
        rendered("injection.engine=policy", only="mutating-policy.yaml", kubernetes="1.35.2")
