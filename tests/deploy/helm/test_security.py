"""What the chart's own pods may do, and what no manifest may hold."""

from __future__ import annotations

import json
import re

import kubernetes_validate
import pytest

from tests.deploy.helm.chart import (
    CHOICES,
    NAMESPACE,
    NEWEST,
    OLDEST,
    Choice,
    Manifest,
    find,
    pods,
    rendered,
)
from tests.deploy.helm.test_rendering import FOREIGN

BOTH = [Choice(), Choice(size="dev"), Choice("policy"), Choice(certificates="secret")]


@pytest.mark.parametrize("choice", BOTH, ids="-".join)
def test_every_container_meets_the_restricted_standard(choice: Choice) -> None:
    found = 0
    for name, spec in pods(choice.manifests):
        for forbidden in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
            assert forbidden not in spec, name
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 20102
        # Kubernetes names variables after Services; the control API refuses unknown settings.
        assert spec["enableServiceLinks"] is False
        for volume in spec["volumes"]:
            assert not volume.keys() & {"hostPath", "nfs"}
        for container in spec["containers"] + spec.get("initContainers", []):
            found += 1
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
    assert found >= 3


@pytest.mark.parametrize("choice", BOTH, ids="-".join)
def test_only_pods_that_call_the_api_server_have_a_token(choice: Choice) -> None:
    manifests = choice.manifests
    with_token = {name for name, spec in pods(manifests) if spec["automountServiceAccountToken"]}
    webhook = {"sluice-webhook"} if choice.engine == "webhook" else set()
    assert with_token == webhook | {"sluice-keys"}
    accounts = [each for each in manifests if each["kind"] == "ServiceAccount"]
    assert accounts
    assert not [each for each in accounts if each["automountServiceAccountToken"]]


def grants(manifests: list[Manifest]) -> set[tuple[str, str, str, str]]:
    """Every right: (role's kind and name, resource, verb, names)."""
    return {
        (
            f"{each['kind']}/{each['metadata']['name']}",
            resource,
            verb,
            ",".join(rule.get("resourceNames", ["*"])),
        )
        for each in manifests
        if each["kind"] in ("Role", "ClusterRole")
        for rule in each["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("choice", BOTH[2:], ids="-".join)
def test_every_object_is_valid_on_the_version_it_is_for(choice: Choice) -> None:
    for each in choice.manifests:
        if each["kind"] not in FOREIGN:
            version = NEWEST if choice.engine == "policy" else OLDEST
            kubernetes_validate.validate(each, version, strict=True)


def check_rights(choice: Choice) -> None:
    for role, resource, verb, names in grants(choice.manifests):
        assert "*" not in (resource, verb)
        if role.startswith("ClusterRole/"):
            own_configuration = resource == "mutatingwebhookconfigurations"
            assert names == "sluice-webhook" if own_configuration else resource == "events"
            assert verb in ({"get", "patch"} if own_configuration else {"create"})
        else:
            assert resource in ("secrets", "leases")
            assert verb in ({"create"} if role == "Role/sluice-keys" else {"get", "update"})
            assert names != "*" or verb == "create"


@pytest.mark.parametrize("choice", BOTH, ids="-".join)
def test_each_kind_of_object_has_only_the_listed_rights(choice: Choice) -> None:
    check_rights(choice)


@pytest.mark.deep(stands_in="test_each_kind_of_object_has_only_the_listed_rights")
def test_only_the_listed_rights_are_granted() -> None:
    for choice in CHOICES:
        check_rights(choice)
    # Without a webhook nothing in the cluster may be changed, and no Secret be read.
    policy = grants(Choice("policy").manifests)
    assert policy == {("Role/sluice-keys", "secrets", "create", "*")}


def test_the_keys_job_can_create_its_secret_but_not_read_it() -> None:
    rights = {each[1:] for each in grants(Choice().manifests) if each[0] == "Role/sluice-keys"}
    assert rights == {("secrets", "create", "*")}
    # Its account lives no longer than the roll-out.
    for kind in ("ServiceAccount", "Role", "RoleBinding"):
        hook = find(Choice().manifests, kind, "sluice-keys")["metadata"]["annotations"]
        assert "hook-succeeded" in hook["helm.sh/hook-delete-policy"]
        assert int(hook["helm.sh/hook-weight"]) < -10


@pytest.mark.parametrize("choice", BOTH, ids="-".join)
def test_no_manifest_holds_a_secret(choice: Choice) -> None:
    manifests = choice.manifests
    # The webhook's own is empty: it fills it in.
    for secret in (each for each in manifests if each["kind"] == "Secret"):
        assert not secret.keys() & {"data", "stringData"}
    text = json.dumps(manifests)
    assert "PRIVATE KEY" not in text
    assert not re.search(r"slc_[0-9A-Za-z]{10}", text)
    for _, spec in pods(manifests):
        for container in spec["containers"]:
            for each in container.get("env", []):
                if re.search(r"_KEY$|DATABASE_URL|REDIS_URL|SMTP_URL", each["name"]):
                    path = each.get("value", "")
                    assert "secretKeyRef" in each.get("valueFrom", {}) or path.startswith("/")


def test_the_namespace_of_the_release_is_used_everywhere() -> None:
    for each in rendered({}):
        namespace = each["metadata"].get("namespace")
        clustered = {
            "PriorityClass",
            "ClusterRole",
            "ClusterRoleBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
        }
        assert namespace == (None if each["kind"] in clustered else NAMESPACE), each["metadata"]


def test_the_webhook_is_registered_as_documented() -> None:
    for choice in CHOICES:
        if choice.engine != "webhook":
            continue
        found = find(choice.manifests, "MutatingWebhookConfiguration", "sluice-webhook")
        names = [each["name"] for each in found["webhooks"]]
        transparent = choice.mode == "transparent"
        assert len(names) == len({*names}) == (4 if transparent else 2)
        for each in found["webhooks"]:
            assert each["admissionReviewVersions"] == ["v1"]
            assert each["failurePolicy"] == "Ignore"
            assert each["reinvocationPolicy"] == "IfNeeded"
            assert each["matchPolicy"] == "Equivalent"
            assert each["sideEffects"] == "NoneOnDryRun"
            assert each["timeoutSeconds"] == 5
            [rule] = each["rules"]
            assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
            excluded = each["namespaceSelector"]["matchExpressions"][1]
            assert {"kube-system", NAMESPACE} <= {*excluded["values"]}
            has_bundle = "caBundle" in each["clientConfig"]
            # With `self` the webhook writes it, and an upgrade must not take it away.
            assert has_bundle == (choice.certificates == "secret")
        annotations = found["metadata"].get("annotations", {})
        injected = annotations.get("cert-manager.io/inject-ca-from")
        assert bool(injected) == (choice.certificates == "cert-manager")
