"""The kustomize bases are what the chart renders, and build."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.kustomize.__main__ import BASES, KUBERNETES, main
from tests import servers
from tests.deploy.helm.chart import ROOT, find, rendered

FOLDER = ROOT / "deploy" / "kustomize"
BUILDS = [path.parent for path in sorted(FOLDER.rglob("kustomization.yaml"))]


def built(folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [str(servers.need("kubectl")), "kustomize", str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader))


def test_the_bases_equal_what_the_chart_renders(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--helm", str(servers.need("helm"))]) == 0, capsys.readouterr().out


def test_a_stale_base_is_found(tmp_path: Path) -> None:
    helm = tmp_path / "helm"
    helm.write_text("#!/bin/sh\necho 'kind: Other'\n")
    helm.chmod(0o755)
    assert main(["--check", "--helm", str(helm)]) == 1


@pytest.mark.parametrize("folder", BUILDS, ids=lambda each: str(each.relative_to(FOLDER)))
def test_every_folder_builds_valid_objects(folder: Path) -> None:
    manifests = built(folder)
    for each in manifests:
        if "AdmissionPolicy" not in each["kind"]:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
    kinds = {each["kind"] for each in manifests}
    assert "Namespace" in kinds
    if folder.name in BASES:
        # The jobs that a release of Helm runs as hooks are there.
        assert "Job" in kinds
        annotations = [each["metadata"].get("annotations", {}) for each in manifests]
        assert not [each for each in annotations if any("helm.sh" in key for key in each)]
    assert not [each for each in manifests if each["kind"] == "Secret" and "data" in each]


def test_the_overlay_replaces_replicas_and_images() -> None:
    manifests = built(FOLDER / "overlays" / "three-replicas")
    control = find(manifests, "Deployment", "sluice-control")["spec"]
    assert control["replicas"] == 3
    [container] = control["template"]["spec"]["containers"]
    assert container["image"].startswith("registry.example/sluice/control@sha256:")


def test_the_governed_namespace_equals_what_the_chart_renders() -> None:
    source = {"name": "kb", "namespace": "data", "podLabels": {"app": "chroma"}, "ports": [8000]}
    values = {"networkPolicies": {"governed": ["agents"], "sources": [source]}}
    ours = find(built(FOLDER / "governed"), "NetworkPolicy", "sluice-governed")
    assert ours["metadata"]["namespace"] == "agents"
    assert ours["spec"] == find(rendered(values), "NetworkPolicy", "sluice-governed")["spec"]
