"""The rendered commands, settings, keys and probes work with the real services."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from control_api.settings import read
from control_api.tenants.bootstrap import fresh_keys
from deploy.kubernetes.admission.settings import read as read_webhook
from tests.deploy.helm.chart import DEV, Choice, Manifest, find, rendered
from tests.deploy.helm.container import Container
from tests.support.certificates import authority
from tests.support.postgres import owned, serving
from tests.support.waiting import until

AUTHORITY = authority("chart")
TRUST = AUTHORITY.client()
# What the kubelet projects. No API server answers here; the control API starts all the same.
ACCOUNT = {"api-server": {"ca.crt": AUTHORITY.path.read_bytes(), "token": b"token"}}
POLICY = """\
policies:
  - name: support-reads
    agent_role: support
    allowed_sources: [handbook]
    denied_sources: []
    max_sensitivity: high
"""


def pod(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    spec: Manifest = find(manifests, kind, name)["spec"]["template"]["spec"]
    return spec


def status(address: str) -> int:
    try:
        with urllib.request.urlopen(address, timeout=10, context=TRUST) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def answers(address: str) -> bool:
    return status(address) == 200


def asked(container: Container, key: str, path: str) -> Any:
    address = container.probe("readinessProbe").replace("/health/ready", path)
    request = urllib.request.Request(address, headers={"X-API-Key": key})
    with urllib.request.urlopen(request, timeout=30, context=TRUST) as answer:
        return json.load(answer)


@contextmanager
def ready(container: Container, **changed: str) -> Iterator[Container]:
    process = container.start(**changed)
    try:

        def up() -> bool:
            assert process.poll() is None, container.said()
            return status(container.probe("readinessProbe")) == 200

        until("the container is ready", up)
        for probe in ("startupProbe", "livenessProbe"):
            until(f"{probe} succeeds", partial(answers, container.probe(probe)))
        yield container
    finally:
        process.terminate()
        code = process.wait(60)
    assert code == 0, container.said()


def secrets_of(keys: dict[str, bytes], url: str = "") -> dict[str, str]:
    return {
        "sluice-keys/superadmin.key": keys["superadmin.key"].decode(),
        "sluice-database/url": serving(url),
        "sluice-database/migrate-url": owned(url),
    }


def test_each_container_of_the_chart_finds_its_settings_and_files(tmp_path: Path) -> None:
    keys, text = fresh_keys(os.urandom), AUTHORITY.path.read_text()
    tls = {"secretName": "sluice-tls", "ca": text}
    control = {
        "tls": tls,
        "piiMasking": True,
        "policies": {"default/demo/support.yaml": POLICY},
        "databaseCa": {"configMapName": "rds-bundle", "key": "global-bundle.pem"},
        "redisCa": {"secretName": "redis-tls"},
    }
    pair = AUTHORITY.issue("127.0.0.1")
    volumes = {
        "keys": keys,
        "tls": {"tls.crt": pair.certificate.read_bytes(), "tls.key": pair.key.read_bytes()},
        **{name: {"ca.crt": text.encode()} for name in ("ca", "database-ca", "redis-ca")},
        **ACCOUNT,
    }
    address = "postgresql+asyncpg://{}:p@db/sluice"
    secrets = {
        "sluice-keys/superadmin.key": keys["superadmin.key"].decode(),
        "sluice-database/url": address.format("sluice"),
        "sluice-database/migrate-url": address.format("owner"),
    }
    whole = rendered({"control": control})
    small = rendered({**Choice(size="dev").values, "control": control}, DEV)
    config = find(small, "ConfigMap", "sluice-policies")["data"]
    [policies] = [
        each["configMap"]["items"]
        for each in pod(small, "StatefulSet", "sluice-control")["volumes"]
        if each["name"] == "policies"
    ]
    volumes["policies"] = {each["path"]: config[each["key"]].encode() for each in policies}
    found = {}
    serving_pod = pod(whole, "Deployment", "sluice-control")
    for number, spec in enumerate(
        (
            pod(whole, "Job", "sluice-migrate"),
            serving_pod,
            pod(small, "StatefulSet", "sluice-control"),
            find(whole, "Pod", "sluice-test")["spec"],
        )
    ):
        container = Container(spec, tmp_path / str(number), volumes, secrets)
        # Every path that it is told is one of a volume, and what is read from there is there.
        for path in container.paths():
            assert path.is_relative_to(tmp_path), path
            assert path.exists() or path.suffix not in (".crt", ".key"), path
        found[number] = container.environ
    certified = Choice(certificates="cert-manager").manifests
    fragment = find(certified, "ConfigMap", "sluice-injection")["data"]["injection.yaml"]
    spec = pod(certified, "Deployment", "sluice-webhook")
    injecting = {"injection": {"injection.yaml": fragment.encode()}, "tls": volumes["tls"]}
    webhook = Container(spec, tmp_path / "webhook", injecting, {})
    assert all(path.exists() for path in webhook.paths())
    # No API server is here.
    serving_tls = read_webhook({**webhook.environ, "SLUICE_WEBHOOK_EVENTS": "0"})
    assert serving_tls.listen.port == webhook.ports[8443]
    assert (serving_tls.certificates, (serving_tls.tls_dir / "tls.crt").exists()) == ("files", True)
    migrate, production, dev = (read({**found[number]}) for number in range(3))
    # An operator's commands, in the service's pod and in that of `helm test`.
    for number in (1, 2, 3):
        assert found[number]["SLUICE_URL"].startswith("https://")
        assert Path(found[number]["SLUICE_CA"]).read_text() == text
    check_authorities(pod(whole, "Job", "sluice-migrate"), serving_pod)
    for number in (0, 1):
        assert Path(found[number]["PGSSLROOTCERT"]).read_text() == text
    assert migrate.database_url == address.format("sluice")
    assert found[0]["SLUICE_MIGRATE_DATABASE_URL"] == address.format("owner")
    assert production.database_url == address.format("sluice")
    assert production.pii_masking
    for settings in (production, dev):
        assert settings.policy_dir is not None
        assert (settings.policy_dir / "default/demo/support.yaml").read_text() == POLICY
        assert settings.tls is not None


def check_authorities(migrate: Manifest, control: Manifest) -> None:
    """Each that connects to the database has its authority, and the service also that of Redis."""
    bundle = {"name": "rds-bundle", "items": [{"key": "global-bundle.pem", "path": "ca.crt"}]}
    for spec in (migrate, control):
        assert {"name": "database-ca", "configMap": bundle} in spec["volumes"]
        mounts = spec["containers"][0]["volumeMounts"]
        assert {each["name"] for each in mounts} == {each["name"] for each in spec["volumes"]}
    mount = {"name": "redis-ca", "mountPath": "/etc/sluice/redis-ca", "readOnly": True}
    assert mount in control["containers"][0]["volumeMounts"]
    [redis] = [each["secret"] for each in control["volumes"] if each["name"] == "redis-ca"]
    assert redis["secretName"] == "redis-tls"
    assert redis["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


@pytest.mark.deep(stands_in="test_each_container_of_the_chart_finds_its_settings_and_files")
def test_production_migrates_and_serves_on_postgresql(postgres_url: str, tmp_path: Path) -> None:
    keys = fresh_keys(os.urandom)
    values = {"control": {"piiMasking": True, "rateLimit": 50}}
    manifests, secrets = rendered(values), secrets_of(keys, postgres_url)
    migrate = Container(pod(manifests, "Job", "sluice-migrate"), tmp_path / "job", {}, secrets)
    assert migrate.run() == 0, migrate.said()
    spec = pod(manifests, "Deployment", "sluice-control")
    # Two replicas, which share nothing but the database and the Secret.
    one, two = (
        Container(spec, tmp_path / name, {"keys": keys, **ACCOUNT}, secrets)
        for name in ("one", "two")
    )
    admin = keys["admin.key"].decode()
    with ready(one), ready(two):
        for replica in (one, two):
            [key] = asked(replica, admin, "/v1/keys")
            assert key["name"] == "first admin"
        superadmin = keys["superadmin.key"].decode()
        assert [each["tenant_id"] for each in asked(one, superadmin, "/v1/admin/tenants")] == [
            "default"
        ]
        metrics = f"http://127.0.0.1:{one.ports[8701]}/metrics"
        assert status(metrics) == 200
        # The upgrade's job meets a schema that is current.
        assert migrate.run() == 0, migrate.said()
        # An operator's `kubectl exec`: the address and the key are there.
        url = one.probe("readinessProbe").removesuffix("/health/ready")
        assert one.start("agents", "list", SLUICE_URL=url).wait(60) == 0, one.said()


@pytest.mark.deep(stands_in="test_each_container_of_the_chart_finds_its_settings_and_files")
def test_dev_serves_on_sqlite_with_policies_and_tls_of_the_values(tmp_path: Path) -> None:
    keys = fresh_keys(os.urandom)
    policies = {
        "default/demo/support.yaml": POLICY,
        "default/demo/support_test.yaml": "tests: []",
        "default/guardrails.yaml": "guardrails: [{name: no-payroll, never: {sources: [payroll]}}]",
    }
    control_values = {"policies": policies, "tls": {"secretName": "sluice-tls"}}
    values = {**Choice(size="dev").values, "control": control_values}
    manifests = rendered(values, DEV)
    config = find(manifests, "ConfigMap", "sluice-policies")["data"]
    spec = pod(manifests, "StatefulSet", "sluice-control")
    [volume] = [each for each in spec["volumes"] if each["name"] == "policies"]
    files = {each["path"]: config[each["key"]].encode() for each in volume["configMap"]["items"]}
    pair = AUTHORITY.issue("127.0.0.1")
    tls = {"tls.crt": pair.certificate.read_bytes(), "tls.key": pair.key.read_bytes()}
    volumes = {"keys": keys, "policies": files, "tls": tls, **ACCOUNT}
    control = Container(spec, tmp_path, volumes, secrets_of(keys))
    with ready(control):
        [policy] = asked(control, keys["admin.key"].decode(), "/v1/policies")
        assert policy["name"] == "support-reads"
        [guardrail] = asked(control, keys["admin.key"].decode(), "/v1/guardrails")
        assert guardrail["file"] == "default/guardrails.yaml"
    assert "no effect" not in control.said()


def test_the_test_pod_lists_the_agents(tmp_path: Path) -> None:
    pods = rendered({})
    test = find(pods, "Pod", "sluice-test")["spec"]
    container = Container(test, tmp_path, {"keys": fresh_keys(os.urandom)}, {})
    assert container.run(SLUICE_URL="http://127.0.0.1:9") == 1
    assert "127.0.0.1:9" in container.said()


@pytest.mark.deep(stands_in="test_each_container_of_the_chart_finds_its_settings_and_files")
def test_the_webhook_serves_with_certificates_from_files(tmp_path: Path) -> None:
    manifests = Choice(certificates="cert-manager").manifests
    pair = AUTHORITY.issue("127.0.0.1")
    fragment = find(manifests, "ConfigMap", "sluice-injection")["data"]["injection.yaml"]
    volumes = {
        "injection": {"injection.yaml": fragment.encode()},
        "tls": {"tls.crt": pair.certificate.read_bytes(), "tls.key": pair.key.read_bytes()},
    }
    spec = pod(manifests, "Deployment", "sluice-webhook")
    webhook = Container(spec, tmp_path, volumes, {})
    with ready(webhook, SLUICE_WEBHOOK_EVENTS="0", SLUICE_WEBHOOK_DRAIN_SECONDS="0"):
        [configuration] = [m for m in manifests if m["kind"] == "MutatingWebhookConfiguration"]
        for each in configuration["webhooks"]:
            path = each["clientConfig"]["service"]["path"]
            # A GET is no review, so the answer says whether the path is one.
            assert status(f"https://127.0.0.1:{webhook.ports[8443]}{path}") == 405
        assert status(f"http://127.0.0.1:{webhook.ports[8701]}/metrics") == 200


def test_the_test_pod_trusts_the_authority_of_the_values(tmp_path: Path) -> None:
    tls = {"secretName": "sluice-tls", "ca": AUTHORITY.path.read_text()}
    manifests = rendered({"control": {"tls": tls}})
    authority = find(manifests, "ConfigMap", "sluice-control-ca")["data"]
    spec = find(manifests, "Pod", "sluice-test")["spec"]
    volumes = {"keys": fresh_keys(os.urandom), "ca": {"ca.crt": authority["ca.crt"].encode()}}
    container = Container(spec, tmp_path, volumes, {})
    assert container.environ["SLUICE_URL"].startswith("https://")
    # It reads the authority and the key before it finds that no control API is there.
    assert container.run(SLUICE_URL="https://127.0.0.1:9") == 1
    assert "127.0.0.1:9" in container.said()
