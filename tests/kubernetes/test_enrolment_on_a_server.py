"""Tokens that a real API server issues, at a control API that fetches the server's own key set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.control_api.registry.enrolment.calls import changes, enrol
from tests.kubernetes.api_server import ISSUER, ApiServer
from tests.kubernetes.api_server import running_api_server as api_server
from tests.support.control_api import ControlApi, running_control_api

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "loans-0"},
    "spec": {"serviceAccountName": "loans", "containers": [{"name": "c", "image": "i"}]},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("server")) as started:
        started.namespace("lending")
        started.account("lending", "loans")
        yield started


@pytest.fixture(scope="module")
def pod(server: ApiServer) -> Any:
    """The metadata of a stored pod."""
    return server.create_pod("lending", POD, dry_run=False)["metadata"]


@pytest.fixture(scope="module")
def api(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    folder = tmp_path_factory.mktemp("control")
    token = folder / "token"
    token.write_text(server.token)
    certificate = server.folder / "certificates" / "apiserver.crt"
    keys = f"{server.url}/openid/v1/jwks,ca={certificate},token_file={token}"
    with running_control_api(folder, SLUICE_ENROL_ISSUERS=f"{ISSUER}={keys}") as started:
        workload = f"{ISSUER}:system:serviceaccount:lending:loans"
        started.approved("agt_loans", workload=workload)
        yield started


def issued(server: ApiServer, pod: Any, **spec: Any) -> str:
    """A token as the kubelet asks for it."""
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["name"], "uid": pod["uid"]}
    wanted = {
        "audiences": ["sluice"],
        "expirationSeconds": 600,
        "boundObjectRef": bound,
        **spec,
    }
    path = "/api/v1/namespaces/lending/serviceaccounts/loans/token"
    answer = server.call("POST", path, {"spec": wanted})
    return str(answer["status"]["token"])


def test_a_token_that_the_kubelet_would_mount_enrols(
    server: ApiServer, pod: Any, api: ControlApi
) -> None:
    answer = enrol(api, issued(server, pod))
    assert answer.status == 200, answer.raw
    assert answer.body["agent_id"] == "agt_loans"
    assert api.evaluate(answer.body["agent_key"], agent_id="agt_loans")["decision"] == "ALLOW"
    [entry] = changes(api, "sidecar.enrolled")
    assert entry["detail"]["pod"] == "loans-0"
    assert entry["detail"]["pod_uid"] == pod["uid"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"audiences": ["https://kubernetes.default.svc.cluster.local"]}, "`aud`"),
        ({"audiences": ["sluice", "vault"]}, "`aud`"),
        ({"boundObjectRef": None}, "not bound to a pod"),
        ({"expirationSeconds": 7200}, "valid for"),
    ],
)
def test_any_other_token_of_the_same_cluster_is_refused(
    server: ApiServer, pod: Any, api: ControlApi, spec: dict[str, Any], why: str
) -> None:
    answer = enrol(api, issued(server, pod, **spec))
    assert answer.status == 403
    assert why in answer.body["message"]
