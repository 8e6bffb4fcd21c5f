"""What a real API server makes of the chart's policies: the same verdicts as the rules in Python,
and the same injection as the webhook.

Every pod is created as a dry run, which passes through all of admission and is not stored, except
where a test updates it.
"""

from __future__ import annotations

import pytest

from deploy.kubernetes.admission.refusing.rules import refusals
from deploy.kubernetes.admission.vocabulary import Namespace
from tests.deploy.kubernetes.admission.governed_pods import Pod, changed, governed_pod, plain_pod
from tests.deploy.kubernetes.admission.refused_pods import (
    ADMITTED,
    ADMITTED_IF_OPTIONS,
    REFUSED,
    REFUSED_IF_OPTIONS,
    REFUSED_IF_TRANSPARENT,
    placed,
)
from tests.kubernetes.api_server import ApiServer, Refused
from tests.kubernetes.rendered import rendered
from tests.kubernetes.test_validating_policy import MODES, fragment
from tests.support.waiting import until

GOVERNED = Namespace("governed", {"sluice/inject": "enabled"})
OPTIONAL = Namespace("optional", {"sluice/inject": "optional"})
FORBIDDEN, INVALID = 403, 422


def verdict(server: ApiServer, pod: Pod, namespace: Namespace = GOVERNED) -> str:
    """What the API server says; empty if it admits the pod."""
    try:
        server.create_pod(namespace.name, pod)
    except Refused as refused:
        return str(refused)
    return ""


def installed(server: ApiServer, mode: str) -> ApiServer:
    """Install the validating policy, and wait until it is in force."""
    for namespace in (GOVERNED, OPTIONAL):
        server.namespace(namespace.name, **namespace.labels)
    for manifest in rendered(*MODES[mode], only="validating-policy.yaml"):
        server.apply(manifest)
    until("the policy refuses", lambda: "sidecar-missing" in verdict(server, plain_pod()))
    pod = governed_pod(fragment(mode))
    until("the policy is that of the mode", lambda: not verdict(server, pod))
    return server


@pytest.mark.parametrize("mode", MODES)
def test_the_api_server_gives_the_same_verdicts(api_server: ApiServer, mode: str) -> None:
    server = installed(api_server, mode)
    pod = governed_pod(fragment(mode))
    admitted = [("", each) for each in [*ADMITTED, *ADMITTED_IF_OPTIONS]]
    table = [*admitted, *REFUSED, *REFUSED_IF_TRANSPARENT, *REFUSED_IF_OPTIONS]
    invalid = 0
    for _, changes in table:
        judged = changed(pod, placed(changes, mode))
        found = refusals(judged, fragment(mode), GOVERNED)
        said = verdict(server, judged)
        if "is invalid" in said or "a mirror pod may not" in said:
            invalid += 1  # for the API itself, whatever the policy says
        elif found:
            assert said.endswith(str(found[0])), changes
        else:
            assert not said, changes
    assert invalid < len(table) / 4


def test_a_pod_can_decline_only_where_its_namespace_allows_it(api_server: ApiServer) -> None:
    server = installed(api_server, "explicit")
    declined = changed(plain_pod(), {"/metadata/labels/sluice~1inject": "disabled"})
    assert verdict(server, declined, OPTIONAL) == ""
    assert "(opt-out)" in verdict(server, declined, GOVERNED)
    assert "(sidecar-missing)" in verdict(server, plain_pod(), OPTIONAL)
    (token,) = (changes for rule, changes in REFUSED if rule == "token")
    assert "(token)" in verdict(server, changed(declined, token), OPTIONAL)
    assert verdict(server, plain_pod(), Namespace("default", {})) == ""


def test_a_mirror_pod_is_refused_as_a_mirror(api_server: ApiServer) -> None:
    """Nothing is injected into it: the API server's own plug-in would refuse its volumes."""
    server = installed(api_server, "explicit")
    annotation = {"/metadata/annotations/kubernetes.io~1config.mirror": "a"}
    mirror = changed(plain_pod(nodeName="node-1"), annotation)
    assert verdict(server, mirror).endswith("(mirror)")


def test_stored_pods_are_judged_when_they_change(api_server: ApiServer) -> None:
    server = installed(api_server, "explicit")
    pod = changed(governed_pod(fragment("explicit")), {"/metadata/name": "stored"})
    server.create_pod("governed", pod, dry_run=False)
    path = "/api/v1/namespaces/governed/pods/stored"
    # What a controller or a user may do.
    server.call(
        "PATCH", path, {"metadata": {"finalizers": ["example.com/a"], "labels": {"a": "b"}}}
    )
    server.call("PATCH", path, {"metadata": {"finalizers": None}})
    stored = server.call("GET", path)["spec"]
    mine = changed({"spec": stored}, {"/spec/initContainers/0/image": "mine"})
    debug = {"/spec/ephemeralContainers/-": {"name": "debug", "image": "a"}}
    small = changed(stored["initContainers"][0], {"/resources/limits/memory": "128Mi"})
    image = changed({"spec": stored}, {"/spec/containers/0/image": "agent:2"})
    server.call("PATCH", path, {"spec": {"containers": image["spec"]["containers"]}})
    for sub_resource, patch, rule in (
        ("", {"spec": {"initContainers": mine["spec"]["initContainers"]}}, "sidecar-altered"),
        ("", {"metadata": {"annotations": {"config.sluice/skip-subnets": "::/1"}}}, "option"),
        ("/ephemeralcontainers", changed({}, debug), "ephemeral"),
        ("/resize", {"spec": {"initContainers": [small]}},
         "sidecar-altered"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=rf"\({rule}\)$") as refused:
            server.call("PATCH", path + sub_resource, patch)
        assert refused.value.status == FORBIDDEN
    server.call("DELETE", path, {"gracePeriodSeconds": 0})


def test_commands_run_in_any_container_but_ours(api_server: ApiServer) -> None:
    server = installed(api_server, "explicit")
    for manifest in rendered(only="exec-policy.yaml"):
        server.apply(manifest)
    pod = changed(governed_pod(fragment("explicit")), {"/metadata/name": "running"})
    server.create_pod("governed", pod, dry_run=False)

    def run(action: str, **query: str) -> str:
        with pytest.raises(Refused) as refused:
            server.call("POST", f"/api/v1/namespaces/governed/pods/running/{action}", **query)
        return str(refused.value)

    until("it is in force", lambda: "sidecar" in run("attach", container="sluice-proxy"))
    assert "could read its token" in run("exec", container="sluice-proxy", command="sh")
    # There is no node that would run it.
    for query in ({"container": "agent"}, {}):
        assert "does not have a host assigned" in run("exec", command="sh", **query)
    server.call("DELETE", "/api/v1/namespaces/governed/pods/running", {"gracePeriodSeconds": 0})


def test_a_pod_from_before_the_label_can_end(api_server: ApiServer) -> None:
    server = installed(api_server, "explicit")
    server.namespace("later")
    pod = changed(plain_pod(), {"/metadata/finalizers": ["batch.kubernetes.io/job-tracking"]})
    server.create_pod("later", pod, dry_run=False)
    later = Namespace("later", {"sluice/inject": "enabled"})
    server.namespace(later.name, **later.labels)
    other = changed(plain_pod(), {"/metadata/name": "other"})
    until("the label is seen", lambda: "sidecar-missing" in verdict(server, other, later))
    path = "/api/v1/namespaces/later/pods/agent"
    with pytest.raises(Refused, match="must be recreated"):
        server.call("PATCH", path, {"spec": {"activeDeadlineSeconds": 60}})
    server.call("PATCH", path, {"metadata": {"finalizers": None}})
    server.call("DELETE", path, {"gracePeriodSeconds": 0})


def test_large_pods_stay_within_the_cost_that_the_api_server_allows(
    api_server: ApiServer,
) -> None:
    server = installed(api_server, "explicit")
    pod = governed_pod(fragment("explicit"))
    container = pod["spec"]["containers"][0]
    variables = [{"name": f"V{number}", "value": "x"} for number in range(20)]
    pod["spec"]["containers"] = [
        {**container, "name": f"agent-{number}", "env": variables} for number in range(200)
    ]
    assert verdict(server, pod) == ""
