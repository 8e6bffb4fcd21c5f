"""The fragment: what is read from it, and every complaint about a bad one."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from deploy.kubernetes.admission.settings import OPTIONS
from deploy.kubernetes.admission.template import PACKAGED, Fragment, packaged, read
from policies.ground.settings import SettingsError


def tree() -> dict[str, Any]:
    """The packaged fragment, to be changed by a test."""
    parsed = yaml.safe_load(PACKAGED.read_text())
    assert isinstance(parsed, dict)
    return parsed


def reading(changed: Any) -> Fragment:
    return read(yaml.safe_dump(changed), "here")


def complaints(changed: Any) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        reading(changed)
    return raised.value.complaints


def test_the_packaged_fragment_is_valid_and_explicit() -> None:
    fragment = packaged()
    assert fragment.mode == "explicit"
    assert [each["name"] for each in fragment.init_containers] == ["sluice-proxy"]
    assert fragment.user == fragment.group == 20102
    assert "sluice-identity" in fragment.volume_names


def test_the_fragment_is_read_from_a_configmap_too() -> None:
    text = PACKAGED.read_text()
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"injection.yaml": text}}
    assert reading(manifest) == packaged()
    assert complaints({"kind": "ConfigMap", "data": {"other": text}}) == [
        "here: the ConfigMap has no text under `data.injection.yaml`"
    ]


def test_the_digest_depends_on_the_meaning_and_not_on_the_layout() -> None:
    fragment = reading(tree())
    assert fragment.digest == packaged().digest
    other = tree()
    other["initContainers"][0]["image"] = "other"
    assert reading(other).digest != fragment.digest


def test_only_the_service_account_is_filled_in() -> None:
    filled = packaged().for_account("loans")
    names = [each["configMap"]["name"] for each in filled.volumes if "configMap" in each]
    assert names == ["sluice-sources-loans", "sluice-sources"]
    assert "{serviceAccountName}" not in str(filled)
    assert filled.digest == packaged().digest


def test_every_fault_of_the_template_is_reported_at_once() -> None:
    changed = tree()
    changed["mode"] = "magic"
    changed["options"] = ["log-level", "sudo", 3, ["a"]]
    changed["reserved"] = {"user": 0, "group": True}
    changed["volumes"] += [{"name": "data"}, {"name": "sluice-data"}, "x", {"name": ["sluice-y"]}]
    changed["environment"] += [{"name": "HTTP_PROXY"}, {"value": "nameless"}]
    proxy = changed["initContainers"][0]
    proxy["restartPolicy"] = "Never"
    proxy["image"] = ""
    proxy["volumeMounts"] += [{"name": "missing"}, 7]
    found = complaints(changed)
    wanted = (
        "`mode` is `magic`, not one of explicit, transparent",
        "`reserved.user` must be a number from 1",
        "`reserved.group` must be a number from 1",
        "`sluice-proxy` has no `image`",
        "`sluice-proxy` must have `restartPolicy: Always`: it is a native sidecar",
        "`sluice-proxy` must run as the user in `reserved.user`",
        "`sluice-proxy` mounts `missing`, which is not one of `volumes`",
        "`sluice-proxy` mounts `7`, which is not one of `volumes`",
        "`volumes` names `sluice-data` twice",
        "volume `data` must have a name that begins with `sluice-`",
        "`environment` names `HTTP_PROXY` twice",
        "each item of `environment` must be a mapping with a `name`",
        f"`options` lists `sudo`, which is not one of {', '.join(sorted(OPTIONS))}",
    )
    for complaint in wanted:
        assert f"here: {complaint}" in found


@pytest.mark.parametrize("value", [None, [], "text", 7])
def test_a_value_that_is_not_a_mapping_is_refused(value: object) -> None:
    assert complaints(value) == ["here: must be a mapping of keys to values"]


def test_unknown_missing_and_mistyped_keys_are_named() -> None:
    changed = tree()
    del changed["volumes"]
    changed["extra"] = 1
    changed["options"] = "log-level"
    assert complaints(changed) == [
        "here: `extra` is not a key of the fragment",
        "here: `volumes` is missing",
        "here: `options` must be a list",
    ]


def test_the_order_of_our_containers_is_fixed() -> None:
    changed = tree()
    changed["mode"] = "transparent"
    (complaint,) = complaints(changed)
    assert complaint.endswith(
        "of mode `transparent` must be sluice-init, sluice-proxy, in this order"
    )


def test_an_ordinary_container_and_its_option_require_each_other() -> None:
    changed = tree()
    changed["options"] = ["native-sidecar"]
    assert complaints(changed) == [
        "here: `containers` must be sluice-proxy, as `native-sidecar` is one of `options`"
    ]
    changed["containers"] = [{**changed["initContainers"][0], "image": ""}]
    assert complaints(changed) == [
        "here: `sluice-proxy` in `containers` must have no `restartPolicy`: the pod's counts there",
        "here: `sluice-proxy` has no `image`",
    ]
    changed["options"] = []
    assert complaints(changed)[0] == (
        "here: `containers` must be absent, as `native-sidecar` is not one of `options`"
    )
    wrong: list[object] = ["text", [None], [{"name": "other"}], {}]
    for value in wrong:
        changed["containers"] = value
        assert "`containers` must be" in complaints(changed)[0]


@pytest.mark.parametrize("text", ["a: [", "a: \x00", "\t- b", "[" * 5000, "a: !!python/name:os"])
def test_broken_yaml_is_refused_with_a_message(text: str) -> None:
    with pytest.raises(SettingsError, match="here: not valid YAML"):
        read(text, "here")


def test_a_huge_text_is_not_parsed() -> None:
    with pytest.raises(SettingsError, match="over the limit of 262144"):
        read("a" * 300_000, "here")
