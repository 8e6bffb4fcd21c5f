"""The chart's webhook and policies together on a real API server: another webhook interferes, the
webhook dies, and comes back. No pod slips past."""

from __future__ import annotations

import base64
import http.server
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes.admission.template import KEY
from tests.deploy.kubernetes.admission.governed_pods import plain_pod
from tests.deploy.kubernetes.admission.test_webhook_process import Process
from tests.kubernetes.api_server import ApiServer, Refused
from tests.kubernetes.rendered import NAMESPACE, one, rendered
from tests.support.certificates import authority
from tests.support.waiting import until

API = "admissionregistration.k8s.io/v1"
WEBHOOKS = f"/apis/{API}/mutatingwebhookconfigurations"
GOVERNED = "story"


def bundle() -> str:
    return base64.b64encode(authority().path.read_bytes()).decode()


@pytest.fixture
def webhook(api_server: ApiServer, tmp_path: Path) -> Iterator[Process]:
    """The webhook of the chart, called as the chart configures it, and the chart's policy."""
    server = api_server
    template = tmp_path / KEY
    manifest = one(rendered(only="injection-configmap.yaml"), "ConfigMap")
    template.write_text(manifest["data"][KEY])
    process = Process(tmp_path, SLUICE_WEBHOOK_TEMPLATE=str(template))
    process.ready()
    server.namespace(GOVERNED, **{"sluice/inject": "enabled"})
    server.namespace(NAMESPACE)
    for each in rendered(only="validating-policy.yaml"):
        server.apply(each)
    # There are no nodes: the API server dials this name itself.
    server.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "sluice-webhook", "namespace": NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
    )
    configuration = one(rendered(only="webhook/configuration.yaml"), "MutatingWebhookConfiguration")
    for each in configuration["webhooks"]:
        each["clientConfig"]["service"]["port"] = process.port
        each["clientConfig"]["caBundle"] = bundle()
    server.apply(configuration)
    until("pods are injected", lambda: names(server) == ["sluice-proxy"])
    yield process
    for name in ("sluice-webhook", "a-first", "z-first"):
        if server.client.get(f"{WEBHOOKS}/{name}").is_success:
            server.call("DELETE", f"{WEBHOOKS}/{name}")
    process.process.kill()
    process.process.wait()
    until("no webhook is left", lambda: "sidecar-missing" in refusal(server))


def names(server: ApiServer) -> list[str] | None:
    """The init containers of a plain pod after admission; None if it is refused."""
    try:
        spec = server.create_pod(GOVERNED, plain_pod())["spec"]
    except Refused:
        return None
    return [each["name"] for each in spec.get("initContainers", [])]


def refusal(server: ApiServer) -> str:
    try:
        server.create_pod(GOVERNED, plain_pod())
    except Refused as refused:
        return str(refused)
    return ""


class _First(http.server.BaseHTTPRequestHandler):
    """Puts its own init container before all others, as some do."""

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = re.sub("[^a-z]", "", self.path.partition("?")[0])
        spec = review["request"]["object"]["spec"]
        own = {"name": name, "image": "other:1"}
        have = spec.get("initContainers", [])
        place = "/spec/initContainers" + ("/0" if have else "")
        patch = [{"op": "add", "path": place, "value": own if have else [own]}]
        if name in [each["name"] for each in have]:
            patch = []
        response = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch"}
        response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
        body = json.dumps({k: review[k] for k in ("apiVersion", "kind")} | {"response": response})
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep quiet."""


@contextmanager
def another_webhook(server: ApiServer, *configurations: str) -> Iterator[None]:
    """A webhook that is installed under these names; the API server calls in their order."""
    pair = authority().issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _First) as listening:
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        for name in configurations:
            url = f"https://localhost:{listening.server_port}/{name}"
            rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
            one_webhook = {
                "name": f"{name}.example.com",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": url, "caBundle": bundle()},
                "rules": [{**rule, "operations": ["CREATE"]}],
                "sideEffects": "None",
                "failurePolicy": "Fail",
            }
            server.apply(
                {
                    "apiVersion": API,
                    "kind": "MutatingWebhookConfiguration",
                    "metadata": {"name": name},
                    "webhooks": [one_webhook],
                }
            )
        try:
            yield
        finally:
            listening.shutdown()
            thread.join()


def test_the_sidecar_stays_first_beside_webhooks_that_want_to_be(
    api_server: ApiServer, webhook: Process
) -> None:
    with another_webhook(api_server, "a-first", "z-first"):
        expected = ["sluice-proxy", "zfirst", "afirst"]
        until("the sidecar is moved back", lambda: names(api_server) == expected)
        pod = api_server.create_pod(GOVERNED, plain_pod())
        for container in pod["spec"]["initContainers"][1:] + pod["spec"]["containers"]:
            assert "HTTP_PROXY" in {each["name"] for each in container["env"]}


def test_no_pod_slips_past_while_the_webhook_is_dead(
    api_server: ApiServer, webhook: Process
) -> None:
    api_server.create_pod(GOVERNED, {**plain_pod(), "metadata": {"name": "before"}}, dry_run=False)
    webhook.process.kill()
    webhook.process.wait()
    until("its absence is seen", lambda: names(api_server) is None)
    assert "create it again once the injector is available" in refusal(api_server)
    # Pods that run are not held up, and other namespaces don't notice.
    path = f"/api/v1/namespaces/{GOVERNED}/pods/before"
    api_server.call("PATCH", path, {"metadata": {"labels": {"a": "b"}}})
    api_server.namespace("elsewhere")
    assert api_server.create_pod("elsewhere", plain_pod())
    api_server.call("DELETE", path, {"gracePeriodSeconds": 0})
