"""The keys of an agent's pods die with the agent: at once, and for good."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.control_api.enrolment.calls import (
    POLICY_SET,
    WORKLOAD,
    changes,
    enrol,
    enrolled,
    register,
)
from tests.control_api.running_api import ControlApi, running
from tests.support.clusters import ISSUER, KeySetServer
from tests.support.postgres import serving
from tests.support.waiting import until

STATUS = "/v1/agents/agt_loans/status"


@pytest.mark.parametrize("status", ["suspended", "deprecated"])
def test_the_keys_die_with_the_status_of_their_agent(cluster: ControlApi, status: str) -> None:
    register(cluster)
    answer = enrolled(cluster)
    cluster.admin("PATCH", STATUS, {"status": status})
    for name in ("sidecar_key", "agent_key"):
        assert cluster.call("GET", POLICY_SET, key=answer[name]).status == 403
    refused = enrol(cluster)
    assert refused.status == 403
    assert f"agent `agt_loans` is {status}" in refused.body["message"]
    [entry] = changes(cluster, "enrolment.refused")
    assert (entry["target"], entry["detail"]["reason"]) == (ISSUER, "agent")
    assert entry["detail"]["workload"] == WORKLOAD


@pytest.mark.deep(stands_in="test_the_keys_die_with_the_status_of_their_agent")
def test_a_key_from_before_a_suspension_never_comes_back(either_cluster: ControlApi) -> None:
    api = either_cluster
    register(api)
    before = enrolled(api)
    for status in ("suspended", "approved"):
        api.admin("PATCH", STATUS, {"status": status})
    after = enrolled(api)
    assert after["enrolment"] != before["enrolment"]
    assert api.call("GET", POLICY_SET, key=before["sidecar_key"]).status == 403
    assert api.call("GET", POLICY_SET, key=after["sidecar_key"]).status == 200


@pytest.mark.deep(stands_in="test_the_keys_die_with_the_status_of_their_agent")
@pytest.mark.parametrize("workload", [None, f"{ISSUER}:system:serviceaccount:lending:other"])
def test_the_keys_die_with_their_workload(cluster: ControlApi, workload: str | None) -> None:
    register(cluster)
    key = enrolled(cluster)["sidecar_key"]
    cluster.admin("PUT", "/v1/agents/agt_loans", {"workload": workload})
    assert cluster.call("GET", POLICY_SET, key=key).status == 403
    # What runs there now is unknown again.
    assert enrolled(cluster)["status"] == "draft"


def test_a_change_of_anything_else_keeps_the_keys(cluster: ControlApi) -> None:
    register(cluster)
    key = enrolled(cluster)["sidecar_key"]
    cluster.admin("PUT", "/v1/agents/agt_loans", {"owner": "risk", "agent_role": "underwriter"})
    assert cluster.call("GET", POLICY_SET, key=key).status == 200


@pytest.mark.deep(stands_in="test_a_change_of_anything_else_keeps_the_keys")
def test_a_sidecar_that_waits_is_sent_away_at_once(cluster: ControlApi) -> None:
    register(cluster)
    key = enrolled(cluster)["sidecar_key"]
    page = cluster.call("GET", POLICY_SET, key=key).body
    path = f"/v1/sidecars/policy-set?since={page['revision']}&epoch={page['epoch']}&wait=25"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(cluster.call, "GET", path, key=key)
        until(
            "a sidecar waits",
            lambda: b"sluice_policy_set_waiters 1.0" in cluster.call("GET", "/metrics").raw,
        )
        cluster.admin("PATCH", STATUS, {"status": "suspended"})
        # Well before the 25 seconds that it asked for.
        assert waiting.result(15).status == 403


@pytest.mark.deep(stands_in="test_the_keys_die_with_the_status_of_their_agent")
def test_a_suspension_reaches_the_other_replicas(
    tmp_path: Path, key_server: KeySetServer, migrated_url: str
) -> None:
    url, issuers = serving(migrated_url), f"{ISSUER}={key_server.url}"
    with running(tmp_path, database_url=url, SLUICE_ENROL_ISSUERS=issuers) as first:
        second = ControlApi(tmp_path, database_url=url, SLUICE_ENROL_ISSUERS=issuers).start()
        try:
            register(first)
            # Issued by one, used at the other.
            key = enrolled(second)["sidecar_key"]
            assert first.call("GET", POLICY_SET, key=key).status == 200
            second.admin("GET", "/v1/agents")
            first.admin("PATCH", STATUS, {"status": "suspended"})
            until(
                "the key is refused", lambda: second.call("GET", POLICY_SET, key=key).status == 403
            )
        finally:
            second.stop()
