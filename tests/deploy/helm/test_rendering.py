"""Every combination of the chart's choices renders objects that Kubernetes knows."""

from __future__ import annotations

import json
import re
from typing import Any

import kubernetes_validate
import pytest

from tests.deploy.helm.chart import (
    CHART,
    CHOICES,
    DEV,
    NEWEST,
    OLDEST,
    ROOT,
    Choice,
    Manifest,
    find,
    helm,
    pods,
    rendered,
)

# What other projects define: their schemas are in the cluster, if they are installed.
FOREIGN = {"Certificate", "ServiceMonitor", "PodMonitor", "PrometheusRule"}
# A beta in 1.36's predecessors: the schemas of its stable version begin there.
SINCE = {"MutatingAdmissionPolicy": 1.36, "ValidatingAdmissionPolicy": 1.30}
VERSIONS = (OLDEST, NEWEST)


def shape(value: Any) -> Any:
    """The value without its long texts, such as expressions and checksums: a schema sees no more of
    them than that they are texts."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return "…" if isinstance(value, str) and len(value) > 60 else value


def unique() -> dict[str, tuple[Choice, Manifest]]:
    """Each object that any combination renders, once for each shape."""
    return {
        json.dumps([choice.engine, shape(each)], sort_keys=True): (choice, each)
        for choice in CHOICES
        for each in choice.manifests
    }


def valid_for(manifest: Manifest, version: str) -> bool:
    if "beta" in manifest["apiVersion"]:
        return version == OLDEST
    kind = manifest["kind"].removesuffix("Binding")
    return float(version) >= SINCE.get(kind, 1.0)


def test_the_chart_passes_the_strict_lint_with_its_defaults() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.deep(stands_in="test_the_chart_passes_the_strict_lint_with_its_defaults")
def test_the_chart_passes_the_strict_lint() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), "--values", str(DEV))


@pytest.mark.deep(
    stands_in="tests/deploy/helm/test_security.py::test_every_object_is_valid_on_the_version_it_is_for"
)
def test_every_rendered_object_is_valid_on_every_version() -> None:
    every = unique()
    assert len(every) > 60
    faults = []
    for choice, manifest in every.values():
        if manifest["kind"] in FOREIGN:
            continue
        for version in (NEWEST,) if choice.engine == "policy" else VERSIONS:
            if not valid_for(manifest, version):
                continue
            try:
                kubernetes_validate.validate(manifest, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                name = manifest["metadata"]["name"]
                faults.append(f"{version} {manifest['kind']} {name}: {error.message} ({choice})")
    assert not faults


@pytest.mark.parametrize("choice", CHOICES, ids="-".join)
def test_every_object_has_a_name_a_place_and_our_labels(choice: Choice) -> None:
    seen = set()
    for each in choice.manifests:
        meta = each["metadata"]
        identity = (each["kind"], meta.get("namespace"), meta["name"])
        assert identity not in seen
        seen.add(identity)
        labels = meta["labels"]
        assert labels["app.kubernetes.io/name"] == "sluice"
        assert labels["app.kubernetes.io/part-of"] == "sluice"
        assert labels["app.kubernetes.io/instance"] == "sluice"
        assert re.fullmatch(r"[a-z-]+", labels["app.kubernetes.io/component"])
        assert meta["name"] == "sluice" or meta["name"].startswith("sluice-")
    workload = ("StatefulSet" if choice.size == "dev" else "Deployment", "sluice-control")
    assert workload in {(kind, name) for kind, _, name in seen}
    webhooks = {kind for kind, _, _ in seen} & {"MutatingWebhookConfiguration"}
    assert bool(webhooks) == (choice.engine == "webhook")
    assert any(kind == "Certificate" for kind, _, _ in seen) == (
        choice.engine == "webhook" and choice.certificates == "cert-manager"
    )


def test_selectors_select_their_pods() -> None:
    for choice in (Choice(), Choice(size="dev")):
        manifests = choice.manifests
        labels = {
            each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
            for each in manifests
            if each["kind"] in ("Deployment", "StatefulSet")
        }
        for each in manifests:
            if each["kind"] in ("Service", "PodDisruptionBudget", "Deployment", "StatefulSet"):
                selector = each["spec"]["selector"]
                wanted = selector.get("matchLabels", selector)
                assert wanted.items() <= labels[each["metadata"]["name"]].items()
        # No pod is selected by two.
        components = [each["app.kubernetes.io/component"] for each in labels.values()]
        assert len(components) == len(set(components))


def test_chart_and_project_have_one_version() -> None:
    version = re.search(r'__version__ = "(.+)"', (ROOT / "policies" / "__init__.py").read_text())
    assert version is not None
    chart = (CHART / "Chart.yaml").read_text()
    assert re.findall(r"^(?:appV|v)ersion: (.+)$", chart, re.MULTILINE) == [version[1]] * 2


def test_a_digest_replaces_the_tag() -> None:
    digest = "sha256:" + "a" * 64
    images = {"control": {"repository": "registry.example/sluice", "digest": digest}}
    found = {
        container["image"]
        for _, spec in pods(rendered({"images": images}))
        for container in spec["containers"]
    }
    assert found == {f"registry.example/sluice@{digest}"}


def test_every_port_is_opened_for_both_ip_versions() -> None:
    manifests = rendered(
        Choice(size="dev", certificates="cert-manager", identity="secret").values, DEV
    )
    listening = {
        each["name"]: each["value"]
        for _, spec in pods(manifests)
        for container in spec["containers"]
        for each in container.get("env", [])
        if each["name"].endswith("_LISTEN")
    }
    assert len(listening) >= 4
    assert {each.partition(":")[0] for each in listening.values()} == {"*"}
    fragment = find(manifests, "ConfigMap", "sluice-injection")["data"]["injection.yaml"]
    own = re.findall(r"\b(?:listen|metrics_listen): *\"?([^\s\",]+)", fragment)
    assert own
    assert not [each for each in own if each.startswith(("0.0.0.0", "127."))]
