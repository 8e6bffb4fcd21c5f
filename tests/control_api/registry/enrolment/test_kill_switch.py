"""The keys of an agent's pods die with the agent: at once, and for good."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.control_api.registry.enrolment.calls import (
    POLICY_SET,
    changes,
    enrol,
    enrolled,
    register,
    register_account,
    workload,
)
from tests.support.clusters import ISSUER, KeySetServer, pod_token
from tests.support.control_api import ControlApi, running_control_api
from tests.support.postgres import serving
from tests.support.waiting import until

STATUS = "/v1/agents/agt_loans/status"


@pytest.mark.deep(stands_in="test_a_waiting_sidecar_is_refused_at_once_when_its_agent_is_suspended")
@pytest.mark.parametrize("status", ["suspended", "deprecated"])
def test_the_keys_are_refused_once_their_agent_s_status_forbids_it(
    shared_cluster: ControlApi, status: str
) -> None:
    api, text = shared_cluster, pod_token(status)
    agent_id = register_account(api, status)
    answer = enrolled(api, text)
    api.admin("PATCH", f"/v1/agents/{agent_id}/status", {"status": status})
    for name in ("sidecar_key", "agent_key"):
        assert api.call("GET", POLICY_SET, key=answer[name]).status == 403
    refused = enrol(api, text)
    assert refused.status == 403
    assert f"agent `{agent_id}` is {status}" in refused.body["message"]
    entry = changes(api, "enrolment.refused")[0]
    assert (entry["target"], entry["detail"]["reason"]) == (ISSUER, "agent")
    assert entry["detail"]["workload"] == workload(status)


@pytest.mark.deep(stands_in="test_a_waiting_sidecar_is_refused_at_once_when_its_agent_is_suspended")
def test_a_key_from_before_a_suspension_never_becomes_valid_again(
    either_cluster: ControlApi,
) -> None:
    api = either_cluster
    register(api)
    before = enrolled(api)
    for status in ("suspended", "approved"):
        api.admin("PATCH", STATUS, {"status": status})
    after = enrolled(api)
    assert after["enrolment"] != before["enrolment"]
    assert api.call("GET", POLICY_SET, key=before["sidecar_key"]).status == 403
    assert api.call("GET", POLICY_SET, key=after["sidecar_key"]).status == 200


@pytest.mark.parametrize("other", [False, True])
def test_the_keys_are_refused_once_their_workload_changes(
    shared_cluster: ControlApi, other: bool
) -> None:
    api, account = shared_cluster, f"moved-{other}".lower()
    agent_id = register_account(api, account)
    key = enrolled(api, pod_token(account))["sidecar_key"]
    moved = workload("elsewhere") if other else None
    api.admin("PUT", f"/v1/agents/{agent_id}", {"workload": moved})
    assert api.call("GET", POLICY_SET, key=key).status == 403
    # What runs there now is unknown again.
    assert enrolled(api, pod_token(account))["status"] == "draft"


def test_a_change_of_anything_else_keeps_the_keys_for_their_hour(cluster: ControlApi) -> None:
    register(cluster)
    key = enrolled(cluster)["sidecar_key"]
    cluster.admin("PUT", "/v1/agents/agt_loans", {"owner": "risk", "agent_role": "underwriter"})
    assert cluster.call("GET", POLICY_SET, key=key).status == 200
    cluster.time.ahead = 3590
    assert cluster.call("GET", POLICY_SET, key=key).status == 200
    cluster.time.ahead = 3601
    answer = cluster.call("GET", POLICY_SET, key=key)
    assert (answer.status, answer.body["message"]) == (403, "the API key has expired")
    assert cluster.admin("GET", "/v1/keys?enrolled=true") == []


def test_a_waiting_sidecar_is_refused_at_once_when_its_agent_is_suspended(
    shared_cluster: ControlApi,
) -> None:
    cluster, text = shared_cluster, pod_token("waits")
    status = f"/v1/agents/{register_account(cluster, 'waits')}/status"
    key = enrolled(cluster, text)["sidecar_key"]
    page = cluster.call("GET", POLICY_SET, key=key).body
    path = f"/v1/sidecars/policy-set?since={page['revision']}&epoch={page['epoch']}&wait=25"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(cluster.call, "GET", path, key=key)
        until(
            "a sidecar waits",
            lambda: b"sluice_policy_set_waiters 1.0" in cluster.call("GET", "/metrics").raw,
        )
        cluster.admin("PATCH", status, {"status": "suspended"})
        # Well before the 25 seconds that it asked for.
        assert waiting.result(15).status == 403
    cluster.admin("PATCH", status, {"status": "approved"})
    after = enrolled(cluster, text)["sidecar_key"]
    assert cluster.call("GET", POLICY_SET, key=key).status == 403
    assert cluster.call("GET", POLICY_SET, key=after).status == 200


def test_a_suspension_at_one_process_is_in_force_at_another_of_the_same_database(
    shared_cluster: ControlApi,
) -> None:
    status = f"/v1/agents/{register_account(shared_cluster, 'both')}/status"
    key = enrolled(shared_cluster, pod_token("both"))["sidecar_key"]
    made = shared_cluster.admin("POST", "/v1/keys", {"name": "shared", "scope": "read"})
    with running_control_api(shared_cluster.directory, policies=None) as other:
        assert other.call("GET", POLICY_SET, key=key).status == 200
        shared_cluster.admin("PATCH", status, {"status": "suspended"})
        until("the key is refused", lambda: other.call("GET", POLICY_SET, key=key).status == 403)
        # A revocation is, too.
        assert other.call("GET", "/v1/keys", key=made["key"]).status == 200
        shared_cluster.admin("DELETE", f"/v1/keys/{made['key_id']}")
        until("it is", lambda: other.call("GET", "/v1/keys", key=made["key"]).status == 403)


@pytest.mark.deep(
    stands_in="test_a_suspension_at_one_process_is_in_force_at_another_of_the_same_database"
)
def test_a_suspension_reaches_the_other_replicas(
    tmp_path: Path, key_server: KeySetServer, migrated_url: str
) -> None:
    url, issuers = serving(migrated_url), f"{ISSUER}={key_server.url}"
    with running_control_api(tmp_path, database_url=url, SLUICE_ENROL_ISSUERS=issuers) as first:
        second = ControlApi(tmp_path, database_url=url, SLUICE_ENROL_ISSUERS=issuers).start()
        try:
            register(first)
            # Issued by one, used at the other.
            key = enrolled(second)["sidecar_key"]
            assert first.call("GET", POLICY_SET, key=key).status == 200
            assert second.call("GET", POLICY_SET, key=key).status == 200
            first.admin("PATCH", STATUS, {"status": "suspended"})
            until(
                "the key is refused", lambda: second.call("GET", POLICY_SET, key=key).status == 403
            )
        finally:
            second.stop()
