"""A pod's way from its token to its keys, over real connections and on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from control_api.registry.enrolment import pods
from tests.control_api.registry.enrolment.calls import (
    POLICY_SET,
    WORKLOAD,
    changes,
    enrol,
    enrolled,
    register,
    register_account,
    workload,
)
from tests.support.clusters import ISSUER, KeySetServer, claims, pod_token, token
from tests.support.control_api import SUPERADMIN, ControlApi, asked, running_control_api
from tests.support.postgres import serving


def test_the_keys_of_a_pod_do_their_own_part_for_its_own_agent(shared_cluster: ControlApi) -> None:
    api, text = shared_cluster, pod_token("parts")
    register_account(api, "parts")
    api.approved("agt_other")
    answer = enrolled(api, text)
    assert (answer["agent_id"], answer["agent_role"]) == ("agt_parts", "support")
    assert answer["tenant_id"] == "default"
    assert answer["workload"] == api.admin("GET", "/v1/agents/agt_parts")["workload"]
    assert (answer["status"], answer["expires_in"]) == ("approved", 3600)
    sidecar, agent = answer["sidecar_key"], answer["agent_key"]
    assert api.evaluate(agent, agent_id="agt_parts")["decision"] == "ALLOW"
    assert api.evaluate(agent, agent_id="agt_other")["policy_name"] == "key_agent_binding"
    assert api.call("GET", POLICY_SET, key=sidecar).status == 200
    assert api.call("GET", POLICY_SET, key=agent).status == 403
    assert api.call("GET", "/v1/keys", key=sidecar).status == 403
    assert api.call("POST", "/v1/context/evaluate", asked(), key=sidecar).status == 403
    # They are no ordinary keys, and a document says that the agent has some, but not how many.
    assert answer["agent_key_id"] not in {each["key_id"] for each in api.admin("GET", "/v1/keys")}
    listed = [
        each
        for each in api.admin("GET", "/v1/keys?enrolled=true")
        if each["name"] == "lending/parts-0"
    ]
    assert {each["scope"] for each in listed} == {"sidecar", "evaluate"}
    documents = [each["name"] for each in api.admin("GET", POLICY_SET)["documents"]]
    assert sum(name.startswith("key/") for name in documents) == 1
    assert "enrolment/agt_parts" in documents
    # A token that is used again gets others, and the log says that it was the same token.
    again = enrolled(api, text)["agent_key"]
    assert again != agent
    assert api.evaluate(agent, agent_id="agt_parts")["decision"] == "ALLOW"
    entries = [each["detail"] for each in changes(api, "sidecar.enrolled")]
    of_this = [each["token_sha256"] for each in entries if each["pod"] == "parts-0"]
    assert (len(of_this), len(set(of_this))) == (2, 1)


def test_an_unknown_workload_is_registered_once_and_waits(shared_cluster: ControlApi) -> None:
    api = shared_cluster
    tokens = [pod_token("new", pod=f"new-{number}") for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda text: enrolled(api, text), tokens))
    assert {(each["agent_id"], each["status"]) for each in answers} == {("lending.new", "draft")}
    for name in ("sidecar_key", "agent_key", "agent_key_id", "enrolment", "expires_at"):
        assert {each[name] for each in answers} == {None}
    # A service account's name must not give it the role of the same name.
    assert api.admin("GET", "/v1/agents/lending.new")["agent_role"] == "lending.new"
    for status in ("pending_approval", "approved"):
        assert enrolled(api, tokens[0])["sidecar_key"] is None
        api.admin("PATCH", "/v1/agents/lending.new/status", {"status": status})
    api.admin("PUT", "/v1/agents/lending.new", {"agent_role": "support"})
    answer = enrolled(api, tokens[0])
    assert answer["agent_role"] == "support"
    assert api.evaluate(answer["agent_key"], agent_id="lending.new")["decision"] == "ALLOW"


def test_agents_beyond_the_limit_of_those_that_wait_are_refused(
    cluster: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pods.MAX_PENDING == 100
    monkeypatch.setattr(pods, "MAX_PENDING", 2)
    for account in ("a0", "a1"):
        assert enrolled(cluster, pod_token(account))["status"] == "draft"
    refused = enrol(cluster, pod_token("one-more"))
    assert (refused.status, "2 agents" in refused.body["message"]) == (403, True)
    assert enrolled(cluster, pod_token("a1"))["status"] == "draft"
    cluster.admin("PATCH", "/v1/agents/lending.a1/status", {"status": "deprecated"})
    assert enrolled(cluster, pod_token("one-more"))["status"] == "draft"


@pytest.mark.deep(stands_in="test_the_keys_of_a_pod_do_their_own_part_for_its_own_agent")
def test_a_registered_workload_gets_its_agent_and_two_keys(either_cluster: ControlApi) -> None:
    api = either_cluster
    register(api)
    answer = enrolled(api)
    assert (answer["tenant_id"], answer["agent_id"]) == ("default", "agt_loans")
    assert (answer["agent_role"], answer["status"]) == ("support", "approved")
    assert (answer["workload"], answer["expires_in"]) == (WORKLOAD, 3600)
    decided = api.evaluate(answer["agent_key"], agent_id="agt_loans")
    assert decided["decision"] == "ALLOW"
    # Each key may do its own part and nothing else.
    assert api.call("GET", POLICY_SET, key=answer["sidecar_key"]).status == 200
    assert api.call("GET", POLICY_SET, key=answer["agent_key"]).status == 403
    assert api.call("GET", "/v1/keys", key=answer["sidecar_key"]).status == 403
    asking = api.call("POST", "/v1/context/evaluate", asked(), key=answer["sidecar_key"])
    assert asking.status == 403
    api.verified()


@pytest.mark.deep(stands_in="test_the_keys_of_a_pod_do_their_own_part_for_its_own_agent")
def test_the_agents_key_speaks_for_no_other_agent(cluster: ControlApi) -> None:
    register(cluster)
    cluster.approved("agt_other")
    key = enrolled(cluster)["agent_key"]
    decided = cluster.evaluate(key, agent_id="agt_other")
    assert (decided["decision"], decided["policy_name"]) == ("DENY", "key_agent_binding")


@pytest.mark.deep(stands_in="test_an_unknown_workload_is_registered_once_and_waits")
def test_an_unknown_workload_waits_for_approval_and_gets_no_key(
    either_cluster: ControlApi,
) -> None:
    api = either_cluster
    answer = enrolled(api)
    assert (answer["agent_id"], answer["status"]) == ("lending.loans", "draft")
    for name in ("sidecar_key", "agent_key", "agent_key_id", "enrolment", "expires_at"):
        assert answer[name] is None
    agent = api.admin("GET", "/v1/agents/lending.loans")
    assert agent["workload"] == WORKLOAD
    # A service account's name must not give it the role of the same name.
    assert agent["agent_role"] == "lending.loans"
    for status in ("pending_approval", "approved"):
        assert enrolled(api)["sidecar_key"] is None
        api.admin("PATCH", "/v1/agents/lending.loans/status", {"status": status})
    api.admin("PUT", "/v1/agents/lending.loans", {"agent_role": "support"})
    answer = enrolled(api)
    assert answer["agent_role"] == "support"
    decided = api.evaluate(answer["agent_key"], agent_id="lending.loans")
    assert decided["decision"] == "ALLOW"


def test_two_clusters_with_the_same_names_are_two_agents(shared_cluster: ControlApi) -> None:
    first = enrolled(shared_cluster, pod_token("alike"))
    second = enrolled(shared_cluster, token(claims("alike", iss="https://other")))
    assert first["agent_id"] == "lending.alike"
    assert second["agent_id"].startswith("lending.alike-")
    assert second["workload"] == "https://other:system:serviceaccount:lending:alike"


def test_every_key_that_was_issued_is_in_the_log_and_its_secret_nowhere(
    shared_cluster: ControlApi,
) -> None:
    cluster = shared_cluster
    register_account(cluster, "logged")
    answer = enrolled(cluster, pod_token("logged"))
    entry = changes(cluster, "sidecar.enrolled")[0]
    assert (entry["target"], entry["by"]) == ("agt_logged", "enrolment")
    detail = entry["detail"]
    assert (detail["pod"], detail["pod_uid"]) == ("logged-0", "logged-0-lending")
    assert detail["workload"] == workload("logged")
    assert detail["agent_key_id"] == answer["agent_key_id"]
    assert len(detail["token_sha256"]) == 64
    files = (cluster.directory / "data").glob("sluice.db*")
    stored = b"".join(path.read_bytes() for path in files)
    for name in ("sidecar_key", "agent_key"):
        assert answer[name].encode() not in stored


@pytest.mark.deep(stands_in="test_the_keys_of_a_pod_do_their_own_part_for_its_own_agent")
def test_a_repeated_token_gets_new_keys_and_the_earlier_ones_stay_alive(
    cluster: ControlApi,
) -> None:
    register(cluster)
    text = pod_token()
    keys = [enrolled(cluster, text)["agent_key"] for _ in range(3)]
    assert len(set(keys)) == 3
    for key in keys:
        assert cluster.evaluate(key, agent_id="agt_loans")["decision"] == "ALLOW"
    # That one token got all of them is in the log.
    tokens = [each["detail"]["token_sha256"] for each in changes(cluster, "sidecar.enrolled")]
    assert (len(tokens), len(set(tokens))) == (3, 1)


@pytest.mark.deep(stands_in="test_the_keys_of_a_pod_do_their_own_part_for_its_own_agent")
def test_an_enrolled_key_is_no_ordinary_key(cluster: ControlApi) -> None:
    register(cluster)
    answer = enrolled(cluster)
    assert [key["name"] for key in cluster.admin("GET", "/v1/keys")] == ["first admin"]
    listed = cluster.admin("GET", "/v1/keys?enrolled=true")
    assert {key["scope"] for key in listed} == {"sidecar", "evaluate"}
    assert {key["name"] for key in listed} == {"lending/loans-0"}
    assert answer["agent_key_id"] in {key["key_id"] for key in listed}
    # Nor is it in the policy set, which grows with the agents and not with the pods.
    documents = cluster.admin("GET", POLICY_SET)["documents"]
    names = [each["name"] for each in documents]
    assert sum(name.startswith("key/") for name in names) == 1
    assert "enrolment/agt_loans" in names


@pytest.mark.deep(
    stands_in="tests/control_api/registry/enrolment/test_kill_switch.py::test_a_change_of_anything_else_keeps_the_keys_for_their_hour"
)
def test_a_key_expires_after_an_hour(either_cluster: ControlApi) -> None:
    api = either_cluster
    register(api)
    key = enrolled(api)["sidecar_key"]
    api.time.ahead = 3590
    assert api.call("GET", POLICY_SET, key=key).status == 200
    api.time.ahead = 3601
    answer = api.call("GET", POLICY_SET, key=key)
    assert (answer.status, answer.body["message"]) == (403, "the API key has expired")
    assert api.admin("GET", "/v1/keys?enrolled=true") == []


@pytest.mark.deep(stands_in="test_agents_beyond_the_limit_of_those_that_wait_are_refused")
def test_at_most_a_hundred_agents_wait_in_a_tenant(cluster: ControlApi) -> None:
    for number in range(100):
        assert enrolled(cluster, pod_token(f"a{number}"))["status"] == "draft"
    refused = enrol(cluster, pod_token("one-more"))
    assert (refused.status, "100 agents" in refused.body["message"]) == (403, True)
    # Those that wait go on waiting, and a decision about one makes room.
    assert enrolled(cluster, pod_token("a7"))["status"] == "draft"
    cluster.admin("PATCH", "/v1/agents/lending.a7/status", {"status": "deprecated"})
    assert enrolled(cluster, pod_token("one-more"))["status"] == "draft"


@pytest.mark.deep(
    stands_in="tests/control_api/registry/enrolment/test_hostile_tokens.py::test_a_refusal_of_a_known_issuer_is_in_its_own_tenants_log"
)
def test_pods_of_a_deactivated_tenant_are_refused_and_of_a_frozen_one_enrolled(
    tmp_path: Path, key_server: KeySetServer
) -> None:
    with running_control_api(tmp_path) as first:
        made = first.call("POST", "/v1/admin/tenants", {"name": "acme"}, key=SUPERADMIN).body
    tenant, key = made["tenant_id"], made["admin_key"]
    issuers = f"{ISSUER}={key_server.url},tenant={tenant}"
    with running_control_api(tmp_path, SLUICE_ENROL_ISSUERS=issuers) as api:
        body = {"agent_id": "agt_loans", "agent_role": "support", "workload": WORKLOAD}
        assert api.call("POST", "/v1/agents", body, key=key).status == 201
        for status in ("pending_approval", "approved"):
            path = "/v1/agents/agt_loans/status"
            assert api.call("PATCH", path, {"status": status}, key=key).status == 200
        assert api.call("POST", "/v1/freeze", {"reason": "drill"}, key=key).status == 200
        answer = enrolled(api)
        assert answer["tenant_id"] == tenant
        # A frozen tenant's pods can still start, and record that they are denied.
        decided = api.evaluate(answer["agent_key"], agent_id="agt_loans")
        assert decided["policy_name"] == "tenant_frozen"
        api.call("DELETE", f"/v1/admin/tenants/{tenant}", key=SUPERADMIN)
        refused = enrol(api)
        assert (refused.status, "not active" in refused.body["message"]) == (403, True)
        assert changes(api, "enrolment.refused", tenant)[0]["detail"]["reason"] == "tenant"


@pytest.mark.deep(stands_in="test_an_unknown_workload_is_registered_once_and_waits")
def test_two_replicas_register_a_workload_once(
    tmp_path: Path, key_server: KeySetServer, migrated_url: str
) -> None:
    url, issuers = serving(migrated_url), f"{ISSUER}={key_server.url}"
    with running_control_api(tmp_path, database_url=url, SLUICE_ENROL_ISSUERS=issuers) as first:
        second = ControlApi(tmp_path, database_url=url, SLUICE_ENROL_ISSUERS=issuers).start()
        try:
            with ThreadPoolExecutor(16) as pool:
                asking = [
                    pool.submit(enrolled, api, pod_token("new", pod=f"new-{number}"))
                    for number in range(8)
                    for api in (first, second)
                ]
                agents = {each.result()["agent_id"] for each in asking}
            assert agents == {"lending.new"}
            assert len(first.admin("GET", "/v1/agents")) == 1
        finally:
            second.stop()


def test_a_workload_belongs_to_one_agent(shared_cluster: ControlApi) -> None:
    cluster = shared_cluster
    register(cluster)
    body = {"agent_id": "b", "agent_role": "support", "workload": WORKLOAD}
    answer = cluster.call("POST", "/v1/agents", body)
    assert (answer.status, "`agt_loans`" in answer.body["message"]) == (409, True)
    for wrong in ("loans", "x:system:serviceaccount:a", f"{ISSUER}:system:serviceaccount:A:b"):
        answer = cluster.call("POST", "/v1/agents", {**body, "workload": wrong})
        assert answer.status == 422, wrong
    key_id = cluster.admin("POST", "/v1/keys", {"name": "k", "scope": "evaluate"})["key_id"]
    answer = cluster.call("PUT", "/v1/agents/agt_loans", {"bound_key_id": key_id})
    assert (answer.status, "bound_key_id" in answer.body["details"]) == (422, True)
