"""`sluice doctor --cluster` over a real API server, with the chart's own objects and the server's
own roles, read by the real kubectl."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.architecture.tree import ROOT
from tests.deploy.kubernetes.admission.governed_pods import changed, governed_pod
from tests.kubernetes.api_server import ApiServer, Refused
from tests.kubernetes.rendered import NAMESPACE, one, rendered
from tests.kubernetes.test_validating_policy import MODES, fragment
from tests.servers import need
from tests.support.waiting import until

WHERE = "doctored"
WALL = {
    "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
    "metadata": {"name": "egress", "namespace": WHERE},
    "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [
        {"ports": [{"port": 443}], "to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}]},
}  # fmt: skip
RBAC = "rbac.authorization.k8s.io"
AGENTS_MAY: list[dict[str, Any]] = [
    {
        "apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "all", "namespace": WHERE},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    },
    {
        "apiVersion": f"{RBAC}/v1", "kind": "RoleBinding",
        "metadata": {"name": "all", "namespace": WHERE},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "all"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": WHERE}],
    },
]  # fmt: skip
POLICY, INJECTION = "validating-policy.yaml", "injection-configmap.yaml"
OURS = {"refusal", "rights", "unread", "old_sidecars"}
"""Checks whose findings count wherever they are; of others, those about our namespace."""


def findings(server: ApiServer) -> list[tuple[str, str]]:
    """Check and severity of what the doctor finds. Other tests leave objects on the server."""
    path = Path(str(need("kubectl"))).parent
    ended = subprocess.run(
        [sys.executable, "-m", "deploy.command", "doctor", "--cluster", "--json"],
        # kubectl keeps what it discovered below the home directory.
        env={"KUBECONFIG": str(server.kubeconfig()), "PATH": str(path), "HOME": str(server.folder)},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode in (0, 1), ended.stderr
    found: list[dict[str, str]] = json.loads(ended.stdout)["findings"]
    return [
        (each["check"], each["severity"])
        for each in found
        if f"`{WHERE}`" in each["seen"] or f"`{WHERE}/" in each["seen"] or each["check"] in OURS
    ]


def created(server: ApiServer, pod: dict[str, Any]) -> bool:
    try:
        server.create_pod(WHERE, pod, dry_run=False)
    except Refused:
        return False  # the policy of another mode is still in force
    return True


def test_the_chart_on_a_real_server_has_findings_only_when_weakened(api_server: ApiServer) -> None:
    api_server.namespace(NAMESPACE)
    api_server.namespace(WHERE, **{"sluice/inject": "enabled"})
    policy = rendered(*MODES["transparent"], only=POLICY)
    commands = rendered(only="exec-policy.yaml")
    for manifest in (*policy, *commands, *rendered(*MODES["transparent"], only=INJECTION), WALL):
        api_server.apply(manifest)
    pod = changed(governed_pod(fragment("transparent")), {"/metadata/name": "agent"})
    until("the governed pod is admitted", lambda: created(api_server, pod))
    # The server's own roles are no finding, and the pod is as the API server filled it in.
    assert findings(api_server) == []

    for manifest in AGENTS_MAY:
        api_server.apply(manifest)
    assert findings(api_server) == [("rights", "high")]

    binding = one(policy, "ValidatingAdmissionPolicyBinding")
    path = f"{api_server.path_of(binding)}/{binding['metadata']['name']}"
    api_server.call("DELETE", path)
    try:
        assert set(findings(api_server)) == {("refusal", "high"), ("rights", "high")}
    finally:
        api_server.apply(binding)
