"""The webhook's settings: defaults, and every complaint at once."""

from __future__ import annotations

from dataclasses import fields

import pytest

from deploy.kubernetes.admission.settings import WebhookSettings, names, read
from policies.ground.settings import SettingsError, sentences

CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def complaints(**environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(environ)
    return caught.value.complaints


def test_no_setting_is_required_inside_a_cluster() -> None:
    settings = read({**CLUSTER, "HOSTNAME": "sluice-webhook-5d9-x7k"})
    assert settings.api_server == "https://10.96.0.1:443"
    assert settings.pod == "sluice-webhook-5d9-x7k"
    assert (settings.listen.port, settings.health_listen.port) == (8443, 8701)


def test_the_api_server_may_have_an_ipv6_address() -> None:
    assert read({"KUBERNETES_SERVICE_HOST": "fd00::1"}).api_server == "https://[fd00::1]:443"


def test_without_certificates_and_events_no_api_server_is_needed() -> None:
    environ = {"SLUICE_WEBHOOK_CERTIFICATES": "files", "SLUICE_WEBHOOK_EVENTS": "0"}
    assert read(environ).api_server == ""
    assert complaints(SLUICE_WEBHOOK_CERTIFICATES="files")[0].startswith(
        "SLUICE_WEBHOOK_API_SERVER: is needed"
    )


def test_every_fault_of_the_settings_is_reported_at_once() -> None:
    found = complaints(
        **CLUSTER,
        SLUICE_WEBHOOK_LISTEN="8443",
        SLUICE_WEBHOOK_CERTIFICATES="letsencrypt",
        SLUICE_WEBHOOK_SECRET="../other",
        SLUICE_WEBHOOK_LEAF_HOURS="169",
        SLUICE_WEBHOOK_API_SERVER="http://10.0.0.1",
        SLUICE_WEBHOOK_LISTN="0.0.0.0:1",
    )
    assert [each.partition(":")[0] for each in found] == [
        "SLUICE_WEBHOOK_LISTEN",
        "SLUICE_WEBHOOK_CERTIFICATES",
        "SLUICE_WEBHOOK_SECRET",
        "SLUICE_WEBHOOK_LEAF_HOURS",
        "SLUICE_WEBHOOK_API_SERVER",
        "SLUICE_WEBHOOK_LISTN",
    ]
    assert found[-1].endswith("did you mean SLUICE_WEBHOOK_LISTEN?")


def test_variables_that_kubernetes_sets_for_a_service_are_ignored() -> None:
    read(
        {
            **CLUSTER,
            "SLUICE_WEBHOOK_SERVICE_HOST": "10.96.12.1",
            "SLUICE_WEBHOOK_SERVICE_PORT_HTTPS": "443",
            "SLUICE_WEBHOOK_PORT": "tcp://10.96.12.1:443",
            "SLUICE_WEBHOOK_PORT_443_TCP_ADDR": "10.96.12.1",
            "SLUICE_WEBHOOK_ALLOW": "10.0.0.0/8",
        }
    )


def test_each_setting_has_a_sentence_and_a_name_of_its_own() -> None:
    told = sentences(WebhookSettings)
    assert told.keys() == {field.name for field in fields(WebhookSettings)}
    assert not [each for each in told.values() if not each.endswith(".")]
    assert len(set(names())) == len(names())
