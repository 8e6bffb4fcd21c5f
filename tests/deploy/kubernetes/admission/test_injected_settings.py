"""The settings in the fragment are those of a sidecar, whatever the chart's values: it reads them
from the variable that its container is started with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes.admission.template import read
from policies.ground.keys import make_key
from sidecar.config.file import read_variable
from sidecar.settings.model import SidecarSettings
from sidecar.settings.sections import ActionRule, AuthzenSettings
from tests.deploy.kubernetes.admission.goldens import VALUES, rendered
from tests.servers import need
from tests.support.certificates import authority

SOURCE = (
    "alias=kb",
    "kind=chroma",
    "upstream=http://chroma.data:8000",
    "sensitivity=medium",
)


@pytest.fixture(autouse=True)
def helm() -> None:
    need("helm")


def settings(text: str, **replaced: str) -> SidecarSettings:
    """As the container would read them. `replaced` are texts for paths that exist in pods alone."""
    return settings_of(read(text, "rendered").init_containers[-1], **replaced)


def settings_of(container: Any, **replaced: str) -> SidecarSettings:
    name = container["args"][container["args"].index("--config-env") + 1]
    environ = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    for path, other in replaced.items():
        environ[name] = environ[name].replace(path, other)
    return read_variable(name, environ, "pod-1")


@pytest.mark.parametrize("name", VALUES)
def test_a_sidecar_accepts_what_the_chart_renders(name: str) -> None:
    found = settings(rendered(name))
    assert found.enrol is not None
    assert str(found.listen) == "*:8710"
    explicit = "transparent" not in name
    proxy = found.forward_proxy if explicit else found.transparent
    assert str(proxy) == f"127.0.0.1:{8711 if explicit else 8712}"
    assert found.sources == ()
    assert found.authzen == AuthzenSettings()
    assert found.control.startswith("http://")


@pytest.mark.deep(
    stands_in="tests/deploy/kubernetes/admission/test_goldens.py::test_the_chart_renders_the_fragments"
)
def test_only_an_ordinary_container_can_be_stopped_by_a_request() -> None:
    text = rendered("ordinary")  # with `quitEndpoint`
    assert settings(text).quit_listen is None
    assert str(settings_of(read(text, "").containers[0]).quit_listen) == "127.0.0.1:8714"
    (off,) = read(rendered("ordinary-transparent"), "").containers
    assert settings_of(off).quit_listen is None


@pytest.mark.deep(
    stands_in="tests/deploy/kubernetes/admission/test_goldens.py::test_the_chart_renders_the_fragments"
)
def test_an_ordinary_container_differs_only_in_how_it_starts_and_ends() -> None:
    for name in ("ordinary", "ordinary-transparent"):
        fragment = read(rendered(name, "injection.quitEndpoint=false"), "rendered")
        native = dict(fragment.init_containers[-1])
        ordinary = dict(fragment.containers[0])
        hook = ordinary.pop("lifecycle")["postStart"]["exec"]["command"]
        assert hook == ["sluice", "wait", "--port", "8710", "--seconds", "120"]
        assert native.pop("restartPolicy") == "Always"
        assert native.pop("startupProbe")["failureThreshold"] == 120
        assert ordinary == native


def test_sources_and_the_authority_of_the_values_are_accepted() -> None:
    pem = authority().path.read_text()
    text = rendered(
        "explicit",
        "control.tls.secretName=tls",
        f"control.tls.ca={pem}",
        *(f"defaultSources[0].{each}" for each in SOURCE),
        "authzen.role_property=acting_as",
        "authzen.actions[0].name=delete",
        "authzen.actions[0].when.soft=true",
        "authzen.actions[0].task=delete_soft",
    )
    found = settings(text)
    assert found.authzen.role_property == "acting_as"
    assert found.authzen.actions == (ActionRule("delete", {"soft": True}, "delete_soft"),)
    assert found.control.startswith("https://")
    assert found.control_tls.ca == pem
    [source] = found.sources
    assert (source.alias, source.kind, source.sensitivity) == ("kb", "chroma", "medium")
    assert "chroma.data" in str(source.upstream)


@pytest.mark.deep(stands_in="test_sources_and_the_authority_of_the_values_are_accepted")
def test_the_rules_for_authzen_are_those_of_the_values() -> None:
    text = rendered(
        "explicit",
        "authzen.role_property=acting_as",
        "authzen.actions[0].name=delete",
        "authzen.actions[0].when.soft=true",
        "authzen.actions[0].task=delete_soft",
    )
    found = settings(text).authzen
    assert found.role_property == "acting_as"
    assert found.actions == (ActionRule("delete", {"soft": True}, "delete_soft"),)
    assert settings(rendered("explicit")).authzen == AuthzenSettings()


def test_the_secret_of_an_agent_is_accepted(tmp_path: Path) -> None:
    for name in ("sidecar.key", "agent.key"):
        (tmp_path / name).write_text(make_key(b"k" * 32))
    (tmp_path / "agent.yaml").write_text("id: agt_loans\nrole: underwriter\n")
    text = rendered("transparent", "identity=secret")
    found = settings(text, **{"/etc/sluice/agent/": f"{tmp_path}/"})
    assert found.enrol is None
    assert found.agent is not None
    assert (found.agent.id, found.agent.role) == ("agt_loans", "underwriter")
