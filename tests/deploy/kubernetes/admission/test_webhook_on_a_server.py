"""The webhook and its certificates beside a real API server, with the rights of README.md and no
more: pods are injected, an authority is replaced under load, and Events arrive."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes.admission.certificates import controller, stored
from deploy.kubernetes.admission.vocabulary import Outcome, Verdict
from tests.deploy.kubernetes.admission.running_webhook import Webhook, running_webhook
from tests.kubernetes.api_server import ApiServer, Refused, running_api_server
from tests.support.ports import free_port
from tests.support.waiting import until_async

OWN = "sluice-system"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/sluice-webhook"
SECRET = f"/api/v1/namespaces/{OWN}/secrets/sluice-webhook-tls"
ACCOUNT = f"/api/v1/namespaces/{OWN}/serviceaccounts/sluice-webhook"
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "cart"},
    "spec": {"containers": [{"name": "cart", "image": "example/cart"}]},
}
RULES = [
    ("Role", "", "secrets", {"get", "update"}, ["sluice-webhook-tls"]),
    ("Role", "", "secrets", {"create"}, []),
    ("Role", "coordination.k8s.io", "leases", {"get", "update"}, ["sluice-webhook"]),
    ("Role", "coordination.k8s.io", "leases", {"create"}, []),
    (
        "ClusterRole",
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        {"get", "patch"},
        ["sluice-webhook"],
    ),
    ("ClusterRole", "", "events", {"create"}, []),
]
"""Kind, API group, resource, verbs and names: the section "Rights" of the README."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running_api_server(tmp_path_factory.mktemp("kubernetes")) as started:
        started.namespace(OWN)
        started.account(OWN, "sluice-webhook")
        started.namespace("shop", **{"sluice/inject": "enabled"})
        grant(started)
        yield started


def grant(server: ApiServer) -> None:
    """The webhook's rights, and the Service that stands for its pods."""
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": "sluice-webhook", "namespace": OWN}
    for kind in ("Role", "ClusterRole"):
        rules = [
            {"apiGroups": [api], "resources": [resource], "verbs": sorted(verbs)}
            | ({"resourceNames": names} if names else {})
            for role, api, resource, verbs, names in RULES
            if role == kind
        ]
        where = {"name": "sluice-webhook"} | ({"namespace": OWN} if kind == "Role" else {})
        version = {"apiVersion": f"{group}/v1", "metadata": where}
        server.apply({**version, "kind": kind, "rules": rules})
        reference = {"apiGroup": group, "kind": kind, "name": "sluice-webhook"}
        binding = {"kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]}
        server.apply({**version, **binding})
    # There are no nodes: the API server dials this name itself.
    local = {"type": "ExternalName", "externalName": "localhost"}
    where = {"name": "sluice-webhook", "namespace": OWN}
    server.apply({"apiVersion": "v1", "kind": "Service", "metadata": where, "spec": local})


def configure(server: ApiServer, port: int) -> None:
    """The chart's MutatingWebhookConfiguration, without a `caBundle`."""
    service = {"name": "sluice-webhook", "namespace": OWN, "port": port}
    entry = {
        "admissionReviewVersions": ["v1"],
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
                "operations": ["CREATE"],
                "scope": "Namespaced",
            }
        ],
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 5,
    }
    webhooks = [
        {
            **entry,
            "name": f"{label}.inject.sluice",
            "clientConfig": {"service": {**service, "path": f"/inject/{label}"}},
            "namespaceSelector": {"matchLabels": {"sluice/inject": label}},
        }
        for label in ("enabled", "optional")
    ]
    server.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "sluice-webhook"},
            "webhooks": webhooks,
        }
    )


@asynccontextmanager
async def installed(server: ApiServer, folder: Path, pod: str = "a") -> AsyncIterator[Webhook]:
    """A replica of the webhook, as a pod with its token."""
    port = free_port()
    configure(server, port)
    account = folder / "account"
    account.mkdir(parents=True)
    asked = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}}
    token = server.call("POST", f"{ACCOUNT}/token", asked)["status"]["token"]
    (account / "token").write_text(token)
    (account / "ca.crt").write_bytes((server.folder / "certificates/apiserver.crt").read_bytes())
    async with running_webhook(
        folder,
        SLUICE_WEBHOOK_LISTEN=f"127.0.0.1:{port}",
        SLUICE_WEBHOOK_CERTIFICATES="self",
        SLUICE_WEBHOOK_EVENTS="1",
        SLUICE_WEBHOOK_API_SERVER=server.url,
        SLUICE_WEBHOOK_ACCOUNT_DIR=str(account),
        SLUICE_WEBHOOK_POD=pod,
    ) as webhook:
        yield webhook


async def create(server: ApiServer, **metadata: Any) -> Any:
    pod = {**POD, "metadata": {**POD["metadata"], **metadata}}
    return await asyncio.to_thread(server.create_pod, "shop", pod)


def injected(pod: Any) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("a") == "b")


async def until_injected(server: ApiServer) -> None:
    # The API server follows its own configuration by a watch, a moment later.
    async def now() -> bool:
        return injected(await create(server))

    await until_async("pods are injected", now)


async def test_a_fresh_installation_injects_with_a_certificate_that_it_made(
    server: ApiServer, tmp_path: Path
) -> None:
    async with installed(server, tmp_path) as webhook:
        await until_injected(server)
        assert await webhook.metric("sluice_webhook_certificate_expiry_seconds") > 71 * 3600
        secret = server.call("GET", SECRET)
        assert secret["type"] == "kubernetes.io/tls"
        bundles = {
            each["clientConfig"]["caBundle"]
            for each in server.call("GET", CONFIGURATION)["webhooks"]
        }
        assert bundles == {secret["data"]["ca.crt"]}
        # A dry run left no Event; a pod that is really created does, in its own namespace.
        kept = {**POD, "metadata": {"name": "kept"}}
        await asyncio.to_thread(server.create_pod, "shop", kept, dry_run=False)
        events = "/api/v1/namespaces/shop/events"
        await until_async(
            "its Event", lambda: asyncio.to_thread(lambda: server.call("GET", events)["items"])
        )
        (event,) = server.call("GET", events)["items"]
        assert (event["reason"], event["involvedObject"]["name"]) == ("Injected", "kept")
    # Without the webhook the pod is created as its author wrote it: the admission policies refuse
    # it in a governed namespace, which is tested with them.
    assert not injected(await create(server, name="later"))


async def test_pods_are_injected_while_the_authority_is_replaced(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(stored, "SETTLE_SECONDS", 1.5)
    async with installed(server, tmp_path) as webhook:
        await until_injected(server)
        first = server.call("GET", SECRET)["data"]
        over, created, missed = asyncio.Event(), 0, 0

        async def load() -> None:
            nonlocal created, missed
            while not over.is_set():
                missed += not injected(await create(server))
                created += 1

        loads = [asyncio.create_task(load()) for _ in range(3)]
        # Without its key, the authority can't sign any more and is replaced.
        server.call("PATCH", SECRET, {"data": {"ca.key": ""}})

        def replaced() -> bool:
            return bool(server.call("GET", SECRET)["data"]["tls.crt"] != first["tls.crt"])

        await until_async("a new certificate", lambda: asyncio.to_thread(replaced))
        served = len(webhook.injector.facts)
        await until_async(
            "more pods are injected", lambda: len(webhook.injector.facts) > served + 20
        )
        over.set()
        await asyncio.gather(*loads)
        assert missed == 0
        assert created > 20
        bundle = base64.b64decode(server.call("GET", SECRET)["data"]["ca.crt"])
        assert bundle.count(b"BEGIN CERTIFICATE") == 2


async def test_a_review_names_the_refusal_to_the_pod_s_author(
    server: ApiServer, tmp_path: Path
) -> None:
    async with installed(server, tmp_path) as webhook:
        await until_injected(server)
        webhook.injector.decide = lambda _review, _facts: Verdict(
            Outcome.refused, message="the name `sluice-proxy` is reserved"
        )
        with pytest.raises(Refused, match="the name `sluice-proxy` is reserved") as caught:
            await create(server)
        assert caught.value.status == 403
