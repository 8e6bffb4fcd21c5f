"""The values `checkpoints`: where the trail's checkpoints are kept, and who cosigns them."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from control_api.checkpoint_store.location import StoreLocation
from control_api.security.egress import parse_witnesses
from control_api.tenants.bootstrap import fresh_keys
from policies.trail.proofs.signed_note import COSIGNATURE, VerifierKey
from tests.deploy.helm.chart import (
    CHART,
    DEV,
    NAMESPACE,
    NEWEST,
    OLDEST,
    Manifest,
    Refused,
    Values,
    find,
    helm,
    rendered,
    template,
)
from tests.deploy.helm.container import Container
from tests.deploy.helm.test_containers import ACCOUNT, asked, pod, ready, secrets_of
from tests.runner import tiers
from tests.sidecar.protocols.s3.moto_server import running_moto
from tests.support.waiting import until

BUCKET = "s3://trail-1.example/sluice/prod"
# Bytes whose base64 holds `+` and `/`; names that YAML or a shell would change.
WITNESSES = [
    f"{VerifierKey(name, COSIGNATURE, bytes([0xFB, 0xEF, index] * 10 + [0xFF, 0xFE])).text()}@{url}"
    for index, (name, url) in enumerate(
        {
            "witness@audit.example/log": "https://audit.example:8443/sluice",
            "Prüfer-#1:\"'{\\n}": "https://[2001:db8::1]:9443",
            "plain": "https://witness.example",
        }.items()
    )
]


def checkpoints(**given: Any) -> Values:
    return {"checkpoints": given}


def control(manifests: list[Manifest]) -> Manifest:
    stateful = any(each["kind"] == "StatefulSet" for each in manifests)
    return pod(manifests, "StatefulSet" if stateful else "Deployment", "sluice-control")


def environment(manifests: list[Manifest]) -> dict[str, Any]:
    variables = control(manifests)["containers"][0]["env"]
    names = [each["name"] for each in variables]
    assert len(names) == len({*names})
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in variables}


def egress(manifests: list[Manifest], policy: str = "sluice-control") -> list[int]:
    """The ports that are open to every address, but those of names."""
    rules = find(manifests, "NetworkPolicy", policy)["spec"]["egress"]
    return [each["port"] for rule in rules[1:] if "to" not in rule for each in rule["ports"]]


CREDENTIALS = {"endpoint": "http://minio.storage:9000", "credentialsSecret": "trail-bucket"}
STORES: dict[str, Values] = {
    "none": {},
    "bucket": {"store": BUCKET},
    "bucket elsewhere": {"store": BUCKET, "s3": {**CREDENTIALS, "region": "eu-west-1"}},
    "new volume": {"store": "volume", "volume": {"size": "2Gi", "storageClassName": "nfs"}},
    "volume of yours": {"store": "volume", "volume": {"existingClaim": "trail"}},
}
# What the values change: the rest is validated in `test_rendering`.
CHANGED = {"sluice-checkpoints", "sluice-control"}


@tiers.sampled("store")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("files", [(), (DEV,)], ids=["production", "dev"])
def test_every_combination_renders_valid_objects(store: str, files: tuple[Path, ...]) -> None:
    values = checkpoints(**STORES[store], witnesses=WITNESSES, quorum=2)
    manifests = rendered(values, *files, version=OLDEST)
    changed = [each for each in manifests if each["metadata"]["name"] in CHANGED]
    assert len(changed) >= 5
    for each, version in itertools.product(changed, (OLDEST, NEWEST)):
        kubernetes_validate.validate(each, version, strict=True)
    environment(manifests)
    mounted = {each["name"] for each in control(manifests)["containers"][0]["volumeMounts"]}
    assert ("checkpoints" in mounted) == (STORES[store].get("store") == "volume")


def test_the_service_reads_the_settings_of_the_values() -> None:
    bucket = STORES["bucket elsewhere"]
    found = environment(rendered(checkpoints(**bucket, witnesses=WITNESSES, quorum=2)))
    assert found["AWS_ENDPOINT_URL_S3"] == "http://minio.storage:9000"
    assert found["AWS_DEFAULT_REGION"] == "eu-west-1"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert found[name] == {"secretKeyRef": {"name": "trail-bucket", "key": name}}
    location = StoreLocation.parse(found["SLUICE_CHECKPOINT_STORE"])
    assert (location.bucket, location.prefix) == ("trail-1.example", "sluice/prod")
    assert found["SLUICE_CHECKPOINT_STORE"] == BUCKET
    assert found["SLUICE_WITNESSES"] == ",".join(WITNESSES)
    assert all(mark in found["SLUICE_WITNESSES"] for mark in "+@,/")
    parsed = parse_witnesses(found["SLUICE_WITNESSES"])
    assert [f"{each.key.text()}@{each.url}" for each in parsed] == WITNESSES
    assert found["SLUICE_WITNESS_QUORUM"] == "2"


def test_nothing_is_set_by_default() -> None:
    names = environment(rendered({})).keys()
    assert not {each for each in names if "CHECKPOINT" in each or "WITNESS" in each}
    assert not {each for each in names if each.startswith("AWS_")}
    assert not [each for each in rendered({}) if each["kind"] == "PersistentVolumeClaim"]


def test_credentials_come_from_a_secret_or_the_service_account() -> None:
    found = environment(rendered(checkpoints(**STORES["bucket elsewhere"])))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert found[name] == {"secretKeyRef": {"name": "trail-bucket", "key": name}}
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/trail"}
    manifests = rendered({"control": {"serviceAccountAnnotations": role}})
    account = find(manifests, "ServiceAccount", "sluice-control")
    assert account["metadata"]["annotations"] == role


def test_the_volume_is_shared_by_replicas_and_outlives_the_release() -> None:
    manifests = rendered(checkpoints(**STORES["new volume"]))
    claim = find(manifests, "PersistentVolumeClaim", "sluice-checkpoints")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "nfs",
        "resources": {"requests": {"storage": "2Gi"}},
    }
    single = rendered(checkpoints(store="volume"), DEV)
    claim = find(single, "PersistentVolumeClaim", "sluice-checkpoints")
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    yours = rendered(checkpoints(**STORES["volume of yours"]))
    assert not [each for each in yours if each["kind"] == "PersistentVolumeClaim"]
    [volume] = [each for each in control(yours)["volumes"] if each["name"] == "checkpoints"]
    assert volume["persistentVolumeClaim"] == {"claimName": "trail"}
    # The service writes into a folder of the mount.
    mounts = control(yours)["containers"][0]["volumeMounts"]
    [mount] = [each["mountPath"] for each in mounts if each["name"] == "checkpoints"]
    written = StoreLocation.parse(environment(yours)["SLUICE_CHECKPOINT_STORE"]).directory
    assert written.parent == Path(mount)


def test_the_ports_of_a_bucket_its_credentials_and_the_witnesses_are_opened() -> None:
    only = {"networkPolicies": {"egressPorts": [5432], "apiServerPorts": [6443]}}
    # The third witness has the port that the credentials need, too.
    store = {**STORES["bucket elsewhere"], "witnesses": WITNESSES[:2]}
    found = rendered({**only, **checkpoints(**store)})
    # A port is named once, and the jobs ask neither.
    assert sorted(egress(found)) == [443, 5432, 6443, 8443, 9000, 9443]
    assert egress(found, "sluice-jobs") == [5432, 6443]


@pytest.mark.deep(
    stands_in="test_the_ports_of_a_bucket_its_credentials_and_the_witnesses_are_opened"
)
def test_the_network_policy_opens_the_ports_of_bucket_and_witnesses() -> None:
    only = {"networkPolicies": {"egressPorts": [5432], "apiServerPorts": [6443]}}
    assert egress(rendered(only)) == [5432, 6443]
    assert egress(rendered({**only, **checkpoints(store=BUCKET)})) == [5432, 6443, 443]
    elsewhere = rendered({**only, **checkpoints(**STORES["bucket elsewhere"])})
    assert egress(elsewhere) == [5432, 6443, 443, 9000]
    plain = {"store": BUCKET, "s3": {"endpoint": "http://minio.storage"}}
    assert egress(rendered({**only, **checkpoints(**plain)})) == [5432, 6443, 443, 80]
    cosigned = rendered({**only, **checkpoints(witnesses=WITNESSES)})
    assert egress(cosigned) == [5432, 6443, 8443, 9443, 443]
    # A port is named once, and the jobs ask neither.
    assert egress(rendered(checkpoints(store=BUCKET))).count(443) == 1
    assert egress(cosigned, "sluice-jobs") == [5432, 6443]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (checkpoints(bucket="x"), "additional properties 'bucket' not allowed"),
        (checkpoints(store="file:///var/lib/trail"), "/checkpoints/store"),
        (checkpoints(store="s3://Bucket"), "/checkpoints/store"),
        (checkpoints(store="s3://bucket//prefix"), "/checkpoints/store"),
        (checkpoints(store="s3://bucket/a?versionId=1"), "/checkpoints/store"),
        (checkpoints(store=None), "missing property 'store'"),
        (checkpoints(s3={"endpoint": "https://key:secret@minio"}), "/checkpoints/s3/endpoint"),
        (checkpoints(s3={"secretAccessKey": "x"}), "additional properties 'secretAccessKey'"),
        (checkpoints(volume={"size": "0"}), "/checkpoints/volume/size"),
        (checkpoints(witnesses=",".join(WITNESSES)), "want array"),
        (checkpoints(witnesses=[",".join(WITNESSES)]), "/checkpoints/witnesses/0"),
        (checkpoints(witnesses=["w+0123abcd+AbC@http://w"]), "/checkpoints/witnesses/0"),
        (checkpoints(witnesses=["$(HOME)+0123abcd+AbC@https://w"]), "/checkpoints/witnesses/0"),
        (checkpoints(witnesses=WITNESSES[:1] * 2), "/checkpoints/witnesses"),
        (checkpoints(quorum=-1), "/checkpoints/quorum"),
        (
            checkpoints(witnesses=WITNESSES, quorum=4),
            "`checkpoints.quorum` is 4, but `checkpoints.witnesses` lists 3",
        ),
        (
            checkpoints(store="volume", s3={"region": "eu-west-1"}),
            "`checkpoints.s3.region` has no effect, because `checkpoints.store` is `volume`",
        ),
        (
            checkpoints(store=BUCKET, volume={"existingClaim": "trail"}),
            "`checkpoints.volume.existingClaim` has no effect",
        ),
        (
            {
                **checkpoints(store=BUCKET),
                "control": {"environment": {"SLUICE_CHECKPOINT_STORE": "file:///x"}},
            },
            "`control.environment.SLUICE_CHECKPOINT_STORE` and `checkpoints` both set the same",
        ),
    ],
)
def test_unusable_values_are_refused(values: Values, said: str) -> None:
    with pytest.raises(Refused) as raised:
        template(values)
    assert said in str(raised.value)


def test_the_notes_warn_without_a_store_unless_the_environment_names_one() -> None:
    warning = "`checkpoints.store` is not set"
    elsewhere = {"control": {"environment": {"SLUICE_CHECKPOINT_STORE": BUCKET}}}
    assert warning in notes(checkpoints(witnesses=WITNESSES))
    assert warning not in notes(elsewhere)


@pytest.mark.deep(stands_in="test_the_notes_warn_without_a_store_unless_the_environment_names_one")
def test_the_notes_warn_where_checkpoints_are_lost() -> None:
    warning = "`checkpoints.store` is not set"
    elsewhere = {"control": {"environment": {"SLUICE_CHECKPOINT_STORE": BUCKET}}}
    assert warning in notes({})
    assert warning in notes(checkpoints(witnesses=WITNESSES))
    for lasting in (checkpoints(store=BUCKET), checkpoints(store="volume"), elsewhere):
        assert warning not in notes(lasting)
    assert warning not in notes({}, "--values", str(DEV))


def notes(values: Values, *options: str) -> str:
    fixed = ("install", "sluice", str(CHART), "--namespace", NAMESPACE, "--dry-run=client")
    return helm(*fixed, *options, values=values).partition("NOTES:")[2]


@pytest.mark.deep(stands_in="test_the_volume_is_shared_by_replicas_and_outlives_the_release")
def test_the_control_api_keeps_its_checkpoints_on_the_volume(tmp_path: Path) -> None:
    container, admin = control_api_of(checkpoints(store="volume", witnesses=WITNESSES), tmp_path)
    volume = tmp_path / "volumes" / "checkpoints" / "notes" / "default"
    with ready(container, SLUICE_CHECKPOINT_SECONDS="1"):
        until("a checkpoint is stored", lambda: bool([*volume.glob("*.note")]))
        # The witnesses are known, and no name server knows where they are.
        assert asked(container, admin, "/v1/audit/verify")["level"] == "signed"
    assert not (tmp_path / "volumes" / "data" / "checkpoints").exists()


@pytest.mark.deep(stands_in="test_the_service_reads_the_settings_of_the_values")
def test_the_control_api_keeps_its_checkpoints_in_a_bucket(tmp_path: Path) -> None:
    session = pytest.importorskip("botocore.session").Session()
    session.set_credentials("key", "secret")
    with running_moto(tmp_path / "moto.log") as port:
        address = f"http://127.0.0.1:{port}"
        client = session.create_client("s3", "us-east-1", endpoint_url=address)
        client.create_bucket(Bucket="trail-1.example")
        place = {"endpoint": address, "region": "us-east-1", "credentialsSecret": "trail-bucket"}
        container, _ = control_api_of(checkpoints(store=BUCKET, s3=place), tmp_path)

        def stored() -> bool:
            found = client.list_objects_v2(Bucket="trail-1.example", Prefix="sluice/prod/default/")
            return bool(found.get("Contents"))

        with ready(container, SLUICE_CHECKPOINT_SECONDS="1"):
            until("a checkpoint is stored", stored)


def control_api_of(values: Values, folder: Path) -> tuple[Container, str]:
    """The control API of `values`, with SQLite, and its admin key."""
    keys = fresh_keys(os.urandom)
    secrets = secrets_of(keys) | {
        "trail-bucket/AWS_ACCESS_KEY_ID": "key",
        "trail-bucket/AWS_SECRET_ACCESS_KEY": "secret",
    }
    volumes = {"keys": keys, **ACCOUNT}
    spec = control(rendered(values, DEV))
    return Container(spec, folder, volumes, secrets), keys["admin.key"].decode()
