"""What sidecars fetch: the policy set by long poll, and session claims."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from control_api.fleet import set_pages
from policies.definitions.model import Key
from policies.evaluate import Decision, evaluate, gather
from policies.ground.canonical import unb64
from policies.retrieval import parse_retrieval
from policies.sets.policy_set import PolicySet, document_digest
from tests.support.control_api import POLICY, Answer, ControlApi, asked, running_control_api
from tests.support.waiting import until

POLL = "/v1/sidecars/policy-set"


def poll(api: ControlApi, since: int, epoch: str, wait: float = 0, key: str = "") -> dict[str, Any]:
    answer = api.call("GET", f"{POLL}?since={since}&epoch={epoch}&wait={wait:g}", key=key)
    assert answer.status == 200, answer.raw
    page: dict[str, Any] = answer.body
    return page


def whole(api: ControlApi) -> tuple[dict[str, Any], dict[str, str | None]]:
    """The last page, and every document by name."""
    page = poll(api, 0, "")
    documents = {each["name"]: each["body"] for each in page["documents"]}
    while page["more"]:
        page = poll(api, page["documents"][-1]["revision"], page["epoch"])
        documents |= {each["name"]: each["body"] for each in page["documents"]}
    return page, documents


def waiting(api: ControlApi, work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Run `work` in a thread until it waits: its result, and the time of it."""
    seen: list[Any] = []

    def run() -> None:
        seen.extend((work(), time.monotonic()))

    thread = threading.Thread(target=run)
    thread.start()
    one = b"\nsluice_policy_set_waiters 1.0\n"
    until("it waits", lambda: one in api.call("GET", "/metrics").raw)
    return thread, seen


def test_the_first_page_is_a_reset_and_decides_as_the_api_does(api: ControlApi) -> None:
    api.approved("agt")
    page, documents = whole(api)
    assert page["tenant_id"] == "default"
    assert len(unb64(page["log_key"])) == 32
    policy_set = PolicySet(lambda name: (documents.get(name) or "").encode() or None)
    retrieval = parse_retrieval(asked(agent_id="agt", source_id="payroll"))
    facts = gather(policy_set, Key("key_x", "evaluate"), retrieval)
    decision: Decision = evaluate(retrieval, facts)
    answer = api.evaluate(agent_id="agt", source_id="payroll")
    assert (decision.decision, decision.reason) == (answer["decision"], answer["reason"])


@pytest.mark.deep(stands_in="test_documents_by_name_are_those_of_the_pages")
def test_documents_carry_their_digest_and_come_in_order_of_revision(fresh: ControlApi) -> None:
    page = poll(fresh, 0, "")
    assert page["reset"] is True
    revisions = [each["revision"] for each in page["documents"]]
    assert revisions == sorted(revisions)
    assert revisions[-1] == page["revision"]
    for each in page["documents"]:
        assert document_digest(each["body"].encode()) == each["digest"]


def look_up(api: ControlApi, *names: str) -> dict[str, Any]:
    page: dict[str, Any] = api.admin("POST", f"{POLL}/documents", {"names": list(names)})
    return page


def test_documents_by_name_are_those_of_the_pages(api: ControlApi) -> None:
    api.approved("agt_named")
    page, documents = whole(api)
    first = poll(api, 0, "")
    revisions = [each["revision"] for each in first["documents"]]
    assert (first["reset"], revisions) == (True, sorted(set(revisions)))
    assert first["more"] or revisions[-1] == first["revision"]
    for each in first["documents"]:
        digest = None if each["body"] is None else document_digest(each["body"].encode())
        assert each["digest"] == digest
    found = look_up(api, "tenant", "agent/agt_named", "agent/nobody")
    same = ("epoch", "revision", "tenant_id", "log_key", "log_key_history", "more")
    assert {name: found[name] for name in same} == {name: page[name] for name in same}
    assert {each["name"]: each["body"] for each in found["documents"]} == {
        "tenant": documents["tenant"],
        "agent/agt_named": documents["agent/agt_named"],
        "agent/nobody": None,
    }
    for each in found["documents"]:
        if each["body"] is not None:
            assert document_digest(each["body"].encode()) == each["digest"]


def test_a_look_up_shows_no_document_of_another_tenant(api: ControlApi, tenant: ControlApi) -> None:
    api.admin("POST", "/v1/agents", {"agent_id": "agt_default", "agent_role": "support"})
    api.approved("agt_of_default")
    for each, known in ((api, True), (tenant, False)):
        [found] = look_up(each, "agent/agt_of_default")["documents"]
        assert (found["body"] is not None) == known


@pytest.mark.deep(stands_in="test_a_look_up_shows_no_document_of_another_tenant")
def test_a_document_is_looked_up_within_its_own_tenant(fresh: ControlApi) -> None:
    fresh.approved("agt")
    made = fresh.admin("POST", "/v1/admin/tenants", {"name": "other"})
    answer = fresh.call(
        "POST", f"{POLL}/documents", {"names": ["agent/agt"]}, key=made["admin_key"]
    )
    assert [each["body"] for each in answer.body["documents"]] == [None]
    for names in ([], ["x"] * 257, [""], "tenant"):
        body = {"names": names}
        assert fresh.call("POST", f"{POLL}/documents", body, key=fresh.admin_key).status == 422


def test_a_poll_without_news_is_answered_after_its_wait(api: ControlApi) -> None:
    page, _ = whole(api)
    started = time.monotonic()
    heartbeat = poll(api, page["revision"], page["epoch"], wait=0.5)
    assert 0.4 < time.monotonic() - started < 20
    assert (heartbeat["documents"], heartbeat["reset"], heartbeat["more"]) == ([], False, False)
    assert heartbeat["revision"] == page["revision"]
    assert heartbeat["now"] > page["now"]


@pytest.mark.parametrize("what", ["key", "agent", "policy"])
def test_a_change_wakes_a_waiting_sidecar(api: ControlApi, what: str) -> None:
    page, _ = whole(api)
    thread, seen = waiting(api, lambda: poll(api, page["revision"], page["epoch"], wait=20))
    if what == "key":
        api.new_key("read")
    elif what == "agent":
        api.admin("POST", "/v1/agents", {"agent_id": "agt_wakes", "agent_role": "support"})
    else:
        api.admin("POST", "/v1/policies", POLICY | {"name": "wakes", "agent_role": "wakes"})
    changed = time.monotonic()
    thread.join()
    assert seen[1] - changed < 10, "it was answered when its wait was over"
    (document,) = seen[0]["documents"]
    assert document["name"].startswith({"policy": "role"}.get(what, what) + "/")
    assert document["revision"] == seen[0]["revision"] == page["revision"] + 1


@pytest.mark.deep(
    stands_in="tests/control_api/tenants/test_tenants.py::test_another_process_learns_of_a_deactivation_within_a_second"
)
def test_a_change_by_another_process_wakes_a_waiting_sidecar(tmp_path: Any) -> None:
    with running_control_api(tmp_path) as one:
        page, _ = whole(one)
        other = ControlApi(tmp_path, policies=None).start()
        try:
            thread, seen = waiting(one, lambda: poll(one, page["revision"], page["epoch"], wait=20))
            other.new_key("read")
            changed = time.monotonic()
            thread.join()
            assert seen[1] - changed < 10, "it was answered when its wait was over"
            assert len(seen[0]["documents"]) == 1
        finally:
            other.stop()


def test_a_removed_document_is_sent_without_a_body(fresh: ControlApi) -> None:
    made = fresh.admin("POST", "/v1/keys", {"name": "n", "scope": "evaluate"})
    page, documents = whole(fresh)
    fresh.admin("DELETE", f"/v1/keys/{made['key_id']}")
    (document,) = poll(fresh, page["revision"], page["epoch"])["documents"]
    assert document["name"] in documents
    assert (document["body"], document["digest"]) == (None, None)


def test_another_epoch_or_a_later_revision_is_a_reset(api: ControlApi) -> None:
    page, documents = whole(api)
    for since, epoch in ((page["revision"], "another"), (page["revision"] + 1, page["epoch"])):
        anew = poll(api, since, epoch, wait=5)
        assert anew["reset"] is True
        assert {each["name"] for each in anew["documents"]} == set(documents)
    assert poll(api, 0, page["epoch"])["reset"] is False


def test_pages_of_a_set_leave_nothing_out(api: ControlApi, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        api.admin("POST", "/v1/agents", {"agent_id": f"agt_paged_{number}", "agent_role": "r"})
    _, documents = whole(api)
    monkeypatch.setattr(set_pages, "MAX_DOCUMENTS", 2)
    first = poll(api, 0, "")
    assert (len(first["documents"]), first["more"]) == (2, True)
    assert whole(api)[1] == documents
    monkeypatch.setattr(set_pages, "MAX_DOCUMENTS", 512)
    monkeypatch.setattr(set_pages, "MAX_PAGE_BYTES", 1)
    assert len(poll(api, 0, "")["documents"]) == 1
    assert whole(api)[1] == documents


@pytest.mark.deep(stands_in="test_pages_of_a_set_leave_nothing_out")
def test_a_large_set_is_sent_in_pages_that_leave_nothing_out(tmp_path: Any) -> None:
    names = [f"p{number}" for number in range(1300)]
    lines = [
        f"  - {{name: {name}, agent_role: role-{name}, allowed_sources: [{'x' * 200}],\n"
        f"     denied_sources: [], max_sensitivity: low}}\n"
        for name in names
    ]
    with running_control_api(tmp_path, policies="policies:\n" + "".join(lines)) as api:
        page, pages = poll(api, 0, ""), 1
        found = [each["name"] for each in page["documents"]]
        while page["more"]:
            assert len(page["documents"]) <= 512
            assert sum(len(each["body"] or "") for each in page["documents"]) <= 768 * 1024
            page = poll(api, page["documents"][-1]["revision"], page["epoch"], wait=20)
            assert page["reset"] is False
            found += [each["name"] for each in page["documents"]]
            pages += 1
        assert pages >= 3
        assert len(found) == len(set(found))
        assert {f"role/role-{name}" for name in names} < set(found)


def test_a_waiting_sidecar_is_answered_when_the_service_stops(fresh: ControlApi) -> None:
    page, _ = whole(fresh)
    thread, seen = waiting(fresh, lambda: poll(fresh, page["revision"], page["epoch"], wait=20))
    stopped = time.monotonic()
    fresh.stop()
    thread.join()
    assert seen[1] - stopped < 10, "it was answered when its wait was over"
    assert seen[0]["documents"] == []
    fresh.start()


def test_a_key_that_is_revoked_while_it_waits_is_refused(api: ControlApi) -> None:
    made = api.admin(
        "POST", "/v1/keys", {"name": "sidecar", "scope": "sidecar", "agent_ids": ["*"]}
    )
    page, _ = whole(api)
    path = f"{POLL}?since={page['revision']}&epoch={page['epoch']}&wait=20"
    thread, seen = waiting(api, lambda: api.call("GET", path, key=made["key"]))
    api.admin("DELETE", f"/v1/keys/{made['key_id']}")
    thread.join()
    answer: Answer = seen[0]
    assert answer.status == 403


def test_too_many_waiting_sidecars_are_refused_with_503(
    api: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, _ = whole(api)
    path = f"{POLL}?since={page['revision']}&epoch={page['epoch']}&wait=5"
    monkeypatch.setattr("asyncio.Semaphore.locked", lambda self: True)
    assert api.call("GET", path).status == 503


def test_a_later_claim_of_a_session_is_answered_with_its_owner(api: ControlApi) -> None:
    path = "/v1/sidecars/sessions/claim"
    body = {"session_id": "s-own", "agent_role": "support", "agent_id": "a", "user_id": "ann"}
    first = api.admin("POST", path, body)
    assert (first["state"], first["agent_role"], first["agent_id"]) == ("active", "support", "a")
    assert api.admin("POST", path, body | {"agent_id": "b", "agent_role": "other"}) == first
    api.time.ahead = 1440 * 60 + 1
    late = api.admin("POST", path, body)
    api.time.ahead = 0
    assert late == first | {"state": "expired"}
    api.admin("DELETE", "/v1/sessions/s-own")
    assert api.admin("POST", path, body)["state"] == "revoked"


@pytest.mark.deep(stands_in="test_a_later_claim_of_a_session_is_answered_with_its_owner")
def test_a_session_is_claimed_once_and_everyone_learns_its_owner(either: ControlApi) -> None:
    body = {"session_id": "s", "agent_role": "support", "agent_id": "a", "user_id": "ann"}
    first = either.admin("POST", "/v1/sidecars/sessions/claim", body)
    assert first["state"] == "active"
    again = either.admin(
        "POST", "/v1/sidecars/sessions/claim", {**body, "agent_id": None, "agent_role": "other"}
    )
    assert again == first
    assert (again["agent_role"], again["agent_id"]) == ("support", "a")
    either.time.ahead = 1440 * 60 + 1
    late = either.admin("POST", "/v1/sidecars/sessions/claim", body)
    assert late["state"] == "expired"
    assert late["expires_at"] == first["expires_at"]
    assert either.evaluate(session_id="s")["policy_name"] == "session_expired"
