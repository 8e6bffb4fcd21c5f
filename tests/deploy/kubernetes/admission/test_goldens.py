"""Every golden file, by the command, by the pure function and through an AdmissionReview."""

from __future__ import annotations

import base64
from copy import deepcopy
from functools import cache
from typing import Any

import jsonpatch
import orjson
import pytest

from deploy.kubernetes.admission.injection import review
from deploy.kubernetes.admission.kubernetes_yaml import load, split
from deploy.kubernetes.admission.manifests import workloads
from deploy.kubernetes.admission.review import answer, parse
from deploy.kubernetes.admission.template import PACKAGED
from deploy.kubernetes.admission.vocabulary import Namespace, Outcome, Verdict
from policies import __version__
from tests.deploy.kubernetes.admission.goldens import (
    FOLDER,
    KINDS,
    TAG,
    VALUES,
    Case,
    cases,
    rendered,
)
from tests.servers import need

CASES = {case.name: case for case in cases()}
INJECTED = [path.name.removesuffix(".output.yaml") for path in sorted(FOLDER.glob("*.output.yaml"))]


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@cache
def pods(text: str) -> list[dict[str, Any]]:
    """The pods and templates in manifests, in order."""
    return [each.pod for part in split(text) for each in workloads(load(part))]


def test_the_command_writes_the_expected_output(case: Case) -> None:
    assert case.command() == case.expected()


def test_the_patch_gives_the_expected_pods(case: Case) -> None:
    kind, expected = case.expected()
    before = pods(case.input)
    findings = case.findings
    assert len(before) == len(findings)
    if kind == "refused.txt":
        refused = [each for each in findings if each.verdict.outcome is Outcome.refused]
        assert refused
        assert not any(each.verdict.patch for each in refused)
        return
    after = before if kind == "skipped.txt" else pods(expected)
    for pod, finding, wanted in zip(before, findings, after, strict=True):
        operations = finding.verdict.patch
        assert {each["op"] for each in operations} <= {"add", "move"}
        assert jsonpatch.apply_patch(pod, operations) == wanted


def test_an_admission_review_carries_the_same(case: Case) -> None:
    for pod, finding in zip(pods(case.input), case.findings, strict=True):
        asked = parse(_review(pod), "application/json")
        assert asked.pod is not None
        verdict = finding.verdict
        response = orjson.loads(answer(asked.uid, verdict))["response"]
        assert response["allowed"] == (verdict.outcome is not Outcome.refused)
        if not response["allowed"]:
            for refusal in verdict.refusals:
                assert refusal.message in response["status"]["message"]
        elif verdict.patch:
            operations = orjson.loads(base64.b64decode(response["patch"]))
            assert jsonpatch.apply_patch(asked.pod, operations) == jsonpatch.apply_patch(
                pod, verdict.patch
            )


@pytest.mark.parametrize("name", INJECTED)
def test_a_second_review_changes_nothing(name: str) -> None:
    case = CASES[name]
    _, expected = case.expected()
    for pod, finding in zip(pods(expected), case.findings, strict=True):
        if finding.verdict.outcome in (Outcome.injected, Outcome.unchanged):
            before = deepcopy(pod)
            again = review(pod, case.namespace, case.fragment)
            assert (again.outcome, again.patch) == (Outcome.unchanged, ())
            assert pod == before


def test_every_file_belongs_to_a_case() -> None:
    wanted = {f"{name}.input.yaml" for name in CASES}
    for name in CASES:
        found = [kind for kind in KINDS if (FOLDER / f"{name}.{kind}").exists()]
        assert len(found) == 1, (name, found)
        wanted.add(f"{name}.{found[0]}")
    assert {path.name for path in FOLDER.iterdir()} == wanted | {"settings"}
    assert {path.stem for path in (FOLDER / "settings").iterdir()} == set(VALUES)


def test_there_are_enough_cases_and_each_has_a_reason() -> None:
    assert len(CASES) >= 60
    for each in CASES.values():
        assert set(each.header) <= {"why", "settings", "namespace-label", "pod-security"}
        assert each.header["why"]


@pytest.mark.parametrize("name", VALUES)
def test_the_chart_renders_the_fragments(name: str) -> None:
    need("helm")
    assert rendered(name, TAG) == (FOLDER / f"settings/{name}.yaml").read_text()


def test_the_packaged_fragment_is_the_charts_default() -> None:
    need("helm")
    assert rendered("explicit") == PACKAGED.read_text()


def test_the_status_shows_version_and_digest() -> None:
    case = CASES["pod-smallest"]
    (finding,) = case.findings
    assert case.expected()[1].count(f"sha256:{case.fragment.digest[:16]}") == 1
    assert any('"version":"golden"' in str(each) for each in finding.verdict.patch)
    assert __version__ != "golden"


def test_a_namespace_without_the_label_is_left_alone() -> None:
    case = CASES["pod-smallest"]
    (pod,) = pods(case.input)
    for labels in ({}, {"sluice/inject": "disabled"}, {"sluice/inject": "Enabled"}):
        verdict = review(pod, Namespace("agents", labels), case.fragment)
        assert isinstance(verdict, Verdict)
        assert verdict.skip_reason.value == "not_governed"


def _review(pod: dict[str, Any]) -> bytes:
    return orjson.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "operation": "CREATE",
                "namespace": "default",
                "object": pod,
            },
        }
    )
