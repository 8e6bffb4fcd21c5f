"""What the chart's values change in the fragment."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.kubernetes.admission.kubernetes_yaml import load
from deploy.kubernetes.admission.template import read
from tests.deploy.kubernetes.admission.goldens import VALUES, rendered
from tests.servers import need

MODES = ["explicit", "transparent"]


@pytest.fixture(autouse=True)
def helm() -> None:
    need("helm")


def proxy(text: str) -> dict[str, Any]:
    fragment = read(text, "rendered")
    found = fragment.init_containers[-1]
    assert found["name"] == "sluice-proxy"
    return dict(found)


def settings(text: str) -> Any:
    """The sidecar's settings."""
    (held,) = [each["value"] for each in proxy(text)["env"] if each["name"].endswith("_SETTINGS")]
    return load(held)


def test_https_and_its_authority_reach_the_sidecar() -> None:
    assert settings(rendered("explicit"))["control"].startswith("http://")
    pem = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
    text = rendered("explicit", "control.tls.secretName=tls", f"control.tls.ca={pem}")
    assert settings(text)["control"].startswith("https://")
    assert settings(text)["control_tls"] == {"ca": pem}


@pytest.mark.deep(
    stands_in="tests/deploy/kubernetes/admission/test_injected_settings.py::test_sources_and_the_authority_of_the_values_are_accepted"
)
def test_sources_of_the_values_are_those_of_the_settings() -> None:
    assert settings(rendered("explicit"))["sources"] == []
    names = ("alias=kb", "kind=chroma", "upstream=http://chroma.data:8000", "sensitivity=medium")
    text = rendered("explicit", *(f"defaultSources[0].{each}" for each in names))
    assert settings(text)["sources"] == [dict(each.split("=", 1) for each in names)]


@pytest.mark.parametrize("mode", MODES)
def test_a_secret_replaces_the_token(mode: str) -> None:
    text = rendered(mode, "identity=secret")
    fragment = read(text, "rendered").for_account("loans")
    assert {"sluice-agent"} == fragment.volume_names - {
        "sluice-data",
        "sluice-sources-account",
        "sluice-sources-namespace",
    }
    (volume,) = [each for each in fragment.volumes if each["name"] == "sluice-agent"]
    assert volume["secret"] == {"secretName": "sluice-agent-loans"}
    assert "enrol" not in settings(text)
    assert settings(text)["key_file"] == "/etc/sluice/agent/sidecar.key"


@pytest.mark.deep(
    stands_in="tests/deploy/kubernetes/admission/test_goldens.py::test_the_chart_renders_the_fragments"
)
def test_the_proxy_can_be_killed_by_no_probe_and_has_no_rights() -> None:
    for name in VALUES:
        container = proxy(rendered(name))
        assert "livenessProbe" not in container
        assert "cpu" not in container["resources"]["limits"]
        security = container["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["runAsNonRoot"] is True
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.deep(
    stands_in="tests/deploy/kubernetes/admission/test_goldens.py::test_the_chart_renders_the_fragments"
)
def test_only_allowed_options_reach_the_containers() -> None:
    def fields(text: str) -> set[str]:
        parts = read(text, "rendered").init_containers
        return {
            variable["valueFrom"]["fieldRef"]["fieldPath"]
            for each in parts
            for variable in each.get("env", [])
            if "valueFrom" in variable
        }

    assert fields(rendered("transparent")) == set()
    assert fields(rendered("transparent-options")) == {
        "metadata.annotations['config.sluice/log-level']",
        "metadata.annotations['config.sluice/skip-outbound-ports']",
        "metadata.annotations['config.sluice/skip-subnets']",
    }


def test_the_api_server_is_exempt_unless_set_otherwise() -> None:
    def arguments(*values: str) -> list[str]:
        return list(read(rendered("transparent", *values), "rendered").init_containers[0]["args"])

    name = "kubernetes.default.svc.cluster.test:443"
    direct = arguments("clusterDomain=cluster.test")
    assert direct[-2:] == ["--kubernetes-api", name]
    assert arguments("injection.kubernetesApi=judged") == direct[:-2]


def test_numbers_among_the_resources_become_texts() -> None:
    text = rendered("explicit", "injection.resources.requests.cpu=1")
    assert proxy(text)["resources"]["requests"]["cpu"] == "1"
    assert read(text, "rendered").init_containers
