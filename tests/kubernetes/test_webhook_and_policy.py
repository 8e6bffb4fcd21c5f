"""The chart's webhook and its refusing policy together, on a real API server: what the webhook
makes is admitted, even after another webhook interfered, and nothing slips past while it is away.
"""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.helm.chart import NAMESPACE, NEWEST, Choice, Manifest, find, rendered
from tests.deploy.helm.container import Container
from tests.deploy.kubernetes.admission.governed_pods import plain_pod
from tests.kubernetes.api_server import ApiServer, Refused
from tests.kubernetes.test_chart import install, token
from tests.support.certificates import authority
from tests.support.waiting import until

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicy"
GOVERNED = "pair"


class Webhook:
    """The Deployment's container as a process. The API server reaches it through the Service."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server = server
        self.manifests = rendered(Choice().values, version=NEWEST)
        account = folder / "account"
        account.mkdir()
        self._account = str(account)
        spec = find(self.manifests, "Deployment", "sluice-webhook")["spec"]["template"]["spec"]
        fragment = find(self.manifests, "ConfigMap", "sluice-injection")["data"]["injection.yaml"]
        files = {"injection": {"injection.yaml": fragment.encode()}}
        self.container = Container(spec, folder / "webhook", files, {})
        self.process: subprocess.Popen[bytes] | None = None
        self._install()
        (account / "token").write_text(token(server, "sluice-webhook"))
        certificate = server.folder / "certificates" / "apiserver.crt"
        (account / "ca.crt").write_bytes(certificate.read_bytes())

    def _install(self) -> None:
        """As the chart says, but for the address: there are no nodes and no pods."""
        port = self.container.ports[8443]
        for each in find(self.manifests, "MutatingWebhookConfiguration", "sluice-webhook")[
            "webhooks"
        ]:
            each["clientConfig"]["service"]["port"] = port
        service = find(self.manifests, "Service", "sluice-webhook")
        service["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        install(self.server, self.manifests)

    def start(self) -> None:
        self.process = self.container.start(
            SLUICE_WEBHOOK_API_SERVER=self.server.url,
            SLUICE_WEBHOOK_ACCOUNT_DIR=self._account,
            SLUICE_WEBHOOK_LISTEN=f"127.0.0.1:{self.container.ports[8443]}",
            SLUICE_WEBHOOK_HEALTH_LISTEN=f"127.0.0.1:{self.container.ports[8701]}",
            SLUICE_WEBHOOK_DRAIN_SECONDS="0",
        )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture(name="webhook", scope="module")
def _webhook(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    api_server.namespace(NAMESPACE)
    api_server.namespace(GOVERNED, **{"sluice/inject": "enabled"})
    made = Webhook(api_server, tmp_path_factory.mktemp("pair"))
    try:
        yield made
    finally:
        made.kill()
        # Leave nothing to the tests that follow.
        api_server.call("DELETE", f"{CONFIGURATIONS}/sluice-webhook")
        api_server.call("DELETE", f"{POLICIES}bindings/sluice-refuse")
        api_server.call("DELETE", f"{POLICIES.replace('policy', 'policies')}/sluice-refuse")


def answer(server: ApiServer, pod: Manifest) -> tuple[list[str], str]:
    """The names of the pod's init containers if it is admitted; else why it is refused."""
    try:
        stored = server.create_pod(GOVERNED, pod)
    except Refused as refused:
        return [], str(refused)
    return [each["name"] for each in stored["spec"].get("initContainers", [])], ""


def test_pods_are_injected_by_the_webhook_and_refused_while_it_is_unreachable(
    api_server: ApiServer, webhook: Webhook
) -> None:
    until("pods are refused", lambda: "sidecar-missing" in answer(api_server, plain_pod())[1])
    webhook.start()
    until("pods are injected", lambda: answer(api_server, plain_pod()) == (["sluice-proxy"], ""))
    webhook.kill()
    # It is gone in the middle of things, and the pod's author is told what is missing.
    names, refused = answer(api_server, plain_pod())
    assert (names, "sidecar-missing" in refused) == ([], True)
    webhook.start()
    until("pods are injected", lambda: answer(api_server, plain_pod()) == (["sluice-proxy"], ""))


class _Meddler(BaseHTTPRequestHandler):
    """Another vendor's webhook: it puts its init container before all others, and adds another
    container, unless they are there."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        spec = request["object"]["spec"]
        names = [each["name"] for each in spec.get("initContainers", [])]
        patch: list[dict[str, Any]] = []
        if "vendor-init" not in names:
            made = {"name": "vendor-init", "image": "vendor:1"}
            if names:
                patch.append({"op": "add", "path": "/spec/initContainers/0", "value": made})
            else:
                patch.append({"op": "add", "path": "/spec/initContainers", "value": [made]})
            other = {"name": "vendor", "image": "vendor:1"}
            patch.append({"op": "add", "path": "/spec/containers/-", "value": other})
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
        if patch:
            response |= {"patchType": "JSONPatch", "patch": encoded}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = json.dumps({**review, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_given: Any) -> None:
        """Keeps the test's output quiet."""


@pytest.fixture(params=["aaa-before", "zzz-after"])
def meddler(request: pytest.FixtureRequest, api_server: ApiServer) -> Iterator[str]:
    """Another webhook, whose name decides whether it is called before ours or after."""
    pair = authority().issue("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), _Meddler)
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    entry = {
        "name": "vendor.example.com",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "url": f"https://127.0.0.1:{listening.server_port}/",
            "caBundle": base64.b64encode(authority().path.read_bytes()).decode(),
        },
        "rules": [{**rule, "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": GOVERNED}},
        "sideEffects": "None",
        "failurePolicy": "Fail",
    }
    api_server.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": request.param},
            "webhooks": [entry],
        }
    )
    yield request.param
    api_server.call("DELETE", f"{CONFIGURATIONS}/{request.param}")
    until("it is gone", lambda: "vendor-init" not in answer(api_server, plain_pod())[0])
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_a_container_that_another_webhook_puts_first_starts_after_ours(
    api_server: ApiServer, webhook: Webhook, meddler: str
) -> None:
    if webhook.process is None or webhook.process.poll() is not None:
        webhook.start()

    def both() -> bool:
        return "vendor-init" in answer(api_server, plain_pod())[0]

    until(f"{meddler} is called", both)
    pod = api_server.create_pod(GOVERNED, plain_pod())
    assert [each["name"] for each in pod["spec"]["initContainers"]] == [
        "sluice-proxy",
        "vendor-init",
    ]
    # The vendor's containers are told of the proxy too, though ours may have been called before.
    for container in [pod["spec"]["initContainers"][1], *pod["spec"]["containers"]]:
        assert "HTTPS_PROXY" in {each["name"] for each in container["env"]}


def test_a_debugging_container_is_refused_in_a_governed_pod(
    api_server: ApiServer, webhook: Webhook
) -> None:
    if webhook.process is None or webhook.process.poll() is not None:
        webhook.start()
    until("pods are injected", lambda: answer(api_server, plain_pod()) == (["sluice-proxy"], ""))
    api_server.create_pod(GOVERNED, plain_pod(), dry_run=False)
    path = f"/api/v1/namespaces/{GOVERNED}/pods/agent/ephemeralcontainers"
    pod = api_server.call("GET", path)
    pod["spec"]["ephemeralContainers"] = [{"name": "debugger", "image": "busybox"}]
    with pytest.raises(Refused, match="ephemeral"):
        api_server.call("PUT", path, pod)
    api_server.call("DELETE", f"/api/v1/namespaces/{GOVERNED}/pods/agent", gracePeriodSeconds="0")
