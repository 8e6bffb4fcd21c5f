"""The value `control.consoleUrl`: the one host under which the console answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from control_api.security.console_settings import ConsoleAddress
from control_api.settings import read
from tests.control_api.console.reader import Visitor
from tests.deploy.helm.chart import CHART, NAMESPACE, Values, find, helm, rendered
from tests.support.control_api import running_control_api

URL = "https://sluice.example"
TLS: Values = {"tls": {"secretName": "tls"}}
NAME = "SLUICE_CONSOLE_URL"


def environment(control: Values) -> dict[str, str]:
    """The control API's settings that have a plain value."""
    deployment = find(rendered({"control": control}), "Deployment", "sluice-control")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def notes(control: Values) -> str:
    """What `helm install` prints."""
    fixed = ("install", "sluice", str(CHART), "--namespace", NAMESPACE, "--dry-run=client")
    return helm(*fixed, values={"control": control}).partition("NOTES:")[2]


@pytest.mark.deep(stands_in="test_the_service_gets_the_host_of_the_value")
def test_the_console_answers_under_the_host_of_the_value(tmp_path: Path) -> None:
    assert NAME not in environment({})
    given = environment({"consoleUrl": URL})[NAME]
    assert given == URL
    with running_control_api(tmp_path, SLUICE_CONSOLE_URL=given) as api:
        form, path = {"key": api.admin_key}, "/console/sign-in"
        assert Visitor(api).post(path, form, follow=False, Origin=URL).status == 303
        elsewhere = Visitor(api, host="sluice-control.sluice-system:8700")
        assert elsewhere.post(path, form).status == 403
        assert not elsewhere.cookies


def test_the_service_gets_the_host_of_the_value() -> None:
    told = environment({"consoleUrl": URL})
    assert told[NAME] == URL
    console = read({NAME: told[NAME]}).console_url
    assert console == URL
    assert ConsoleAddress.given(console).host == "sluice.example"


@pytest.mark.parametrize(
    ("control", "said"),
    [
        ({"consoleUrl": URL}, f"The console is at {URL}/console."),
        ({"consoleUrl": URL, **TLS}, f"The console is at {URL}/console."),
        ({"environment": {NAME: URL}, **TLS}, f"The console is at {URL}/console."),
        (TLS, "WARNING: `control.consoleUrl` is not set, so the console refuses"),
        ({}, "The console has no address for others: set `control.consoleUrl`"),
    ],
)
def test_the_notes_of_an_installation_name_its_console(control: Values, said: str) -> None:
    printed = notes(control)
    assert said in printed
    lines = ("The console is at", "refuses every sign-in", "no address for others")
    assert sum(line in printed for line in lines) == 1
    # The certificate names no 127.0.0.1: by TLS, the commands run in the pods alone.
    assert ("port-forward service" in printed) == ("tls" not in control)
    assert "https://127.0.0.1" not in printed
    in_pod = "exec deployment/sluice-control -- sluice agents list\n"
    assert (in_pod in printed) == ("tls" in control)
