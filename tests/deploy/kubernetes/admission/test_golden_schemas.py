"""The golden pods against the API's own schemas, of every version that we support."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from deploy.kubernetes.admission.kubernetes_yaml import load, split
from deploy.kubernetes.admission.manifests import workloads
from tests.deploy.kubernetes.admission.goldens import cases

VERSIONS = [f"1.{minor}" for minor in range(29, 37)]


def golden_pods() -> list[dict[str, Any]]:
    """The pods of all outputs, those in templates too."""
    texts = [text for case in cases() for kind, text in [case.expected()] if kind == "output.yaml"]
    return [each.pod for text in texts for part in split(text) for each in workloads(load(part))]


def as_list(pods: list[dict[str, Any]]) -> dict[str, Any]:
    # One list, as each validation reads megabytes of schemas.
    items = [{"apiVersion": "v1", "kind": "Pod", **each} for each in pods]
    return {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items}


@pytest.mark.deep(
    stands_in="tests/deploy/kubernetes/admission/test_goldens.py::test_the_patch_gives_the_expected_pods"
)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_api_s_schema_accepts_the_golden_pods(version: str) -> None:
    found = golden_pods()
    assert len(found) >= 50
    kubernetes_validate.validate(as_list(found), version, strict=True)


def test_the_api_s_schema_refuses_a_wrong_pod() -> None:
    wrong = golden_pods()[0]
    wrong["spec"]["initContainers"][0]["restartPolicies"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="restartPolicies"):
        kubernetes_validate.validate(as_list([wrong]), VERSIONS[0], strict=True)
