"""A real API server accepts what the chart renders, and the rights that it gives are enough."""

from __future__ import annotations

import contextlib
import os
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from control_api.tenants.bootstrap import Cluster, NoSecret, create, fresh_keys
from tests.deploy.helm.chart import NAMESPACE, NEWEST, Choice, Manifest, find, pods
from tests.deploy.helm.container import Container
from tests.kubernetes.api_server import ISSUER, ApiServer, Refused
from tests.support.waiting import until

FOREIGN = {"Certificate"}
CHOICES = [
    Choice(),
    Choice(mode="transparent", size="dev"),
    Choice("policy", identity="secret"),
    Choice("policy", "transparent"),
    Choice(certificates="cert-manager"),
]


@pytest.fixture(name="server", scope="module")
def _server(api_server: ApiServer) -> ApiServer:
    api_server.namespace(NAMESPACE, **{"pod-security.kubernetes.io/enforce": "restricted"})
    return api_server


def token(server: ApiServer, account: str, namespace: str = NAMESPACE, **spec: Any) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return str(server.call("POST", path, body)["status"]["token"])


def install(server: ApiServer, manifests: list[Manifest]) -> None:
    # Accounts first, as Helm does. A job can't be changed, so the next one would be refused.
    order = ("ServiceAccount", "Secret", "ConfigMap", "Role", "RoleBinding", "ClusterRole")
    rest = [each for each in manifests if each["kind"] not in (*FOREIGN, "Pod", "Job")]
    for each in sorted(rest, key=lambda each: each["kind"] not in order):
        server.apply(each)


@pytest.mark.parametrize("choice", CHOICES, ids="-".join)
def test_the_api_server_accepts_every_object_strictly(server: ApiServer, choice: Choice) -> None:
    for each in choice.on(NEWEST):
        if each["kind"] not in (*FOREIGN, "Pod"):
            server.apply(each, dry_run=True)


@pytest.mark.parametrize("choice", [Choice(), Choice(size="dev")], ids="-".join)
def test_the_pods_start_in_a_restricted_namespace(server: ApiServer, choice: Choice) -> None:
    manifests = choice.on(NEWEST)
    install(server, manifests)
    found = 0
    for name, spec in pods(manifests):
        # A StatefulSet adds the volume of its claim.
        mounted = {each["name"] for each in spec["containers"][0]["volumeMounts"]}
        added = mounted - {each["name"] for each in spec["volumes"]}
        assert added <= ({"data"} if choice.size == "dev" else set())
        volumes = [*spec["volumes"], *({"name": each, "emptyDir": {}} for each in added)]
        pod: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-try", "namespace": NAMESPACE},
            "spec": {"restartPolicy": "Always", **spec, "volumes": volumes},
        }
        server.create_pod(NAMESPACE, pod)
        found += 1
    assert found >= 4


async def test_the_keys_job_may_create_its_secret_and_nothing_else(server: ApiServer) -> None:
    install(server, Choice().on(NEWEST))
    authorities = ssl.create_default_context(
        cafile=str(server.folder / "certificates" / "apiserver.crt")
    )
    job = Cluster(server.url, NAMESPACE, token(server, "sluice-keys"), authorities)
    keys = fresh_keys(os.urandom)
    assert await create(job, "sluice-keys", keys)
    # The upgrade's job, which makes other keys, leaves them.
    assert not await create(job, "sluice-keys", fresh_keys(os.urandom))
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/sluice-keys"
    assert {*server.call("GET", path)["data"]} == {*keys}
    other = Cluster(server.url, "default", job.token, authorities)
    with pytest.raises(NoSecret, match="403"):
        await create(other, "sluice-keys", keys)
    idle = Cluster(server.url, NAMESPACE, token(server, "sluice-control"), authorities)
    with pytest.raises(NoSecret, match="403"):
        await create(idle, "another", keys)
    for verb in ("get", "list", "delete"):
        assert not allowed(server, "sluice-keys", verb, "secrets", "sluice-keys")


def allowed(server: ApiServer, account: str, verb: str, resource: str, name: str) -> bool:
    """Whether the account may, in the namespace of Sluice."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{account}",
            "resourceAttributes": {
                "namespace": NAMESPACE,
                "verb": verb,
                "resource": resource,
                "name": name,
            },
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(server.call("POST", path, review)["status"]["allowed"])


def test_the_webhook_makes_its_certificate_with_the_rights_of_the_chart(
    server: ApiServer, tmp_path: Path
) -> None:
    manifests = Choice().on(NEWEST)
    install(server, manifests)
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text(token(server, "sluice-webhook"))
    certificate = (server.folder / "certificates" / "apiserver.crt").read_bytes()
    (account / "ca.crt").write_bytes(certificate)
    fragment = find(manifests, "ConfigMap", "sluice-injection")["data"]["injection.yaml"]
    spec = find(manifests, "Deployment", "sluice-webhook")["spec"]["template"]["spec"]
    files = {"injection": {"injection.yaml": fragment.encode()}}
    webhook = Container(spec, tmp_path / "webhook", files, {})
    process = webhook.start(
        SLUICE_WEBHOOK_API_SERVER=server.url,
        SLUICE_WEBHOOK_ACCOUNT_DIR=str(account),
    )
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/sluice-webhook"

    def published() -> bool:
        assert process.poll() is None, webhook.said()
        entries = server.call("GET", path)["webhooks"]
        return all("caBundle" in each["clientConfig"] for each in entries)

    try:
        until("the authority is published", published)
        # An upgrade applies the same manifests: what the webhook wrote stays.
        install(server, manifests)
        assert published()
        secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/sluice-webhook-tls"
        assert {"tls.crt", "tls.key", "ca.crt"} <= {*server.call("GET", secret)["data"]}
    finally:
        process.terminate()
        assert process.wait(60) == 0, webhook.said()
    assert "denied" not in webhook.said()
    for verb, resource, name in (
        ("create", "secrets", "x"),
        ("get", "secrets", "sluice-keys"),
        ("delete", "secrets", "sluice-webhook-tls"),
        ("list", "secrets", ""),
        ("get", "pods", "x"),
    ):
        assert not allowed(server, "sluice-webhook", verb, resource, name)


def test_a_pod_with_more_rights_is_refused_beside_ours(server: ApiServer) -> None:
    container = {"name": "x", "image": "x", "securityContext": {"privileged": True}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {}}
    pod["spec"] = {"containers": [container]}
    with pytest.raises(Refused, match="restricted"):
        server.create_pod(NAMESPACE, pod)


def test_a_pod_enrols_at_a_control_api_with_the_rights_of_the_chart(
    server: ApiServer, tmp_path: Path
) -> None:
    manifests = Choice(size="dev").on(NEWEST)
    install(server, manifests)
    keys = fresh_keys(os.urandom)
    authority = (server.folder / "certificates" / "apiserver.crt").read_bytes()
    account = {"ca.crt": authority, "token": token(server, "sluice-control").encode()}
    spec = find(manifests, "StatefulSet", "sluice-control")["spec"]["template"]["spec"]
    secrets = {"sluice-keys/superadmin.key": keys["superadmin.key"].decode()}
    control = Container(spec, tmp_path, {"keys": keys, "api-server": account}, secrets)
    issuers = control.environ["SLUICE_ENROL_ISSUERS"]
    assert "https://kubernetes.default.svc/openid/v1/jwks" in issuers
    # On this machine the API server has another address, and nothing else differs.
    here = issuers.replace("=https://kubernetes.default.svc/", f"={server.url}/")
    process = control.start(SLUICE_ENROL_ISSUERS=here)
    url = control.probe("readinessProbe").removesuffix("/health/ready")
    admin = httpx.Client(base_url=url, headers={"X-API-Key": keys["admin.key"].decode()})

    def ready() -> bool:
        assert process.poll() is None, control.said()
        with contextlib.suppress(httpx.TransportError):
            return admin.get("/health/ready").status_code == 200
        return False

    try:
        until("the control API is ready", ready)
        workload = f"{ISSUER}:system:serviceaccount:agents:support"
        agent = {"agent_id": "support", "agent_role": "support", "workload": workload}
        assert admin.post("/v1/agents", json=agent).status_code == 201
        for state in ("pending_approval", "approved"):
            moved = admin.patch("/v1/agents/support/status", json={"status": state})
            assert moved.status_code == 200, moved.text
        enrolled = httpx.post(f"{url}/v1/sidecars/enrol", json={"token": pod_token(server)})
        assert enrolled.status_code == 200, enrolled.text
        assert enrolled.json()["agent_id"] == "support"
        assert enrolled.json()["agent_key"].startswith("slc_")
    finally:
        admin.close()
        process.terminate()
        assert process.wait(60) == 0, control.said()


def pod_token(server: ApiServer) -> str:
    """The token that the kubelet mounts into the sidecar of a pod of `agents/support`."""
    server.namespace("agents")
    server.account("agents", "support")
    spec = {"serviceAccountName": "support", "containers": [{"name": "agent", "image": "x"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "support"}, "spec": spec}
    made = server.create_pod("agents", pod, dry_run=False)["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": made["name"], "uid": made["uid"]}
    audience = {"audiences": ["sluice"], "expirationSeconds": 600}
    return token(server, "support", "agents", boundObjectRef=bound, **audience)
