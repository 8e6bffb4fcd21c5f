"""What sidecars are served: the policy set by long poll, session claims, receipts for records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from policies.evaluate import Decision, evaluate, gather
from policies.ground.canonical import b64, rfc3339, unb64
from policies.ground.ids import uuid7
from policies.model import Key
from policies.policy_set import PolicySet, document_digest
from policies.record import decision_record
from policies.retrieval import parse_retrieval
from policies.signing import receipt_message, verify
from policies.source import core_hash, spool_payload, src_member
from tests.control_api.centre import POLICIES, Answer, Centre, asked, running

POLL = "/v1/sidecars/policy-set"


def poll(centre: Centre, since: int, epoch: str, wait: float = 0, key: str = "") -> dict[str, Any]:
    answer = centre.call("GET", f"{POLL}?since={since}&epoch={epoch}&wait={wait:g}", key=key)
    assert answer.status == 200, answer.raw
    page: dict[str, Any] = answer.body
    return page


def whole(centre: Centre) -> tuple[dict[str, Any], dict[str, str | None]]:
    """The last page, and every document by name."""
    page = poll(centre, 0, "")
    documents = {each["name"]: each["body"] for each in page["documents"]}
    while page["more"]:
        page = poll(centre, page["documents"][-1]["revision"], page["epoch"])
        documents |= {each["name"]: each["body"] for each in page["documents"]}
    return page, documents


def waiting(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """`work` in a thread: what it returns, and when."""
    seen: list[Any] = []

    def run() -> None:
        seen.extend((work(), time.monotonic()))

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.3)
    assert not seen, "it did not wait"
    return thread, seen


def test_the_first_page_begins_anew_and_decides_as_the_centre_does(fresh: Centre) -> None:
    fresh.approved("agt")
    page, documents = whole(fresh)
    assert page["tenant_id"] == "default"
    assert len(unb64(page["log_key"])) == 32
    policy_set = PolicySet(lambda name: (documents.get(name) or "").encode() or None)
    retrieval = parse_retrieval(asked(agent_id="agt", source_id="payroll"))
    facts = gather(policy_set, Key("key_x", "evaluate"), retrieval)
    decision: Decision = evaluate(retrieval, facts)
    answer = fresh.evaluate(agent_id="agt", source_id="payroll")
    assert (decision.decision, decision.reason) == (answer["decision"], answer["reason"])


def test_documents_carry_their_digest_and_come_in_order_of_revision(fresh: Centre) -> None:
    page = poll(fresh, 0, "")
    assert page["reset"] is True
    revisions = [each["revision"] for each in page["documents"]]
    assert revisions == sorted(revisions)
    assert revisions[-1] == page["revision"]
    for each in page["documents"]:
        assert document_digest(each["body"].encode()) == each["digest"]


def test_no_news_is_answered_after_the_wait(centre: Centre) -> None:
    page, _ = whole(centre)
    started = time.monotonic()
    heartbeat = poll(centre, page["revision"], page["epoch"], wait=0.5)
    assert 0.4 < time.monotonic() - started < 2
    assert (heartbeat["documents"], heartbeat["reset"], heartbeat["more"]) == ([], False, False)
    assert heartbeat["revision"] == page["revision"]
    assert heartbeat["now"] > page["now"]


@pytest.mark.parametrize("what", ["key", "agent", "policy"])
def test_a_change_wakes_who_waits_within_200_ms(fresh: Centre, what: str) -> None:
    page, _ = whole(fresh)
    thread, seen = waiting(lambda: poll(fresh, page["revision"], page["epoch"], wait=20))
    if what == "key":
        fresh.new_key("read")
    elif what == "agent":
        fresh.admin("POST", "/v1/agents", {"agent_id": "a", "agent_role": "support"})
    else:
        fresh.policy_file.write_text(POLICIES.replace("high", "low"))
        fresh.admin("POST", "/v1/policies/reload")
    changed = time.monotonic()
    thread.join(5)
    assert seen[1] - changed < 0.2
    (document,) = seen[0]["documents"]
    assert document["name"].startswith({"policy": "role"}.get(what, what) + "/")
    assert document["revision"] == seen[0]["revision"] == page["revision"] + 1


def test_a_change_by_another_process_wakes_who_waits_within_a_second(tmp_path: Any) -> None:
    with running(tmp_path) as one:
        page, _ = whole(one)
        other = Centre(tmp_path, policies=None).start()
        try:
            thread, seen = waiting(lambda: poll(one, page["revision"], page["epoch"], wait=20))
            other.new_key("read")
            changed = time.monotonic()
            thread.join(5)
            assert seen[1] - changed < 1
            assert len(seen[0]["documents"]) == 1
        finally:
            other.stop()


def test_a_removed_document_comes_without_a_body(fresh: Centre) -> None:
    made = fresh.admin("POST", "/v1/keys", {"name": "n", "scope": "evaluate"})
    page, documents = whole(fresh)
    fresh.admin("DELETE", f"/v1/keys/{made['key_id']}")
    (document,) = poll(fresh, page["revision"], page["epoch"])["documents"]
    assert document["name"] in documents
    assert (document["body"], document["digest"]) == (None, None)


def test_another_epoch_or_a_later_revision_begins_anew(centre: Centre) -> None:
    page, documents = whole(centre)
    for since, epoch in ((page["revision"], "another"), (page["revision"] + 1, page["epoch"])):
        anew = poll(centre, since, epoch, wait=5)
        assert anew["reset"] is True
        assert {each["name"] for each in anew["documents"]} == set(documents)
    assert poll(centre, 0, page["epoch"])["reset"] is False


def test_a_large_set_comes_in_pages_that_leave_nothing_out(tmp_path: Any) -> None:
    names = [f"p{number}" for number in range(1300)]
    lines = [
        f"  - {{name: {name}, agent_role: role-{name}, allowed_sources: [{'x' * 200}],\n"
        f"     denied_sources: [], max_sensitivity: low}}\n"
        for name in names
    ]
    with running(tmp_path, policies="policies:\n" + "".join(lines)) as centre:
        page, pages = poll(centre, 0, ""), 1
        found = [each["name"] for each in page["documents"]]
        while page["more"]:
            assert len(page["documents"]) <= 512
            assert sum(len(each["body"] or "") for each in page["documents"]) <= 768 * 1024
            page = poll(centre, page["documents"][-1]["revision"], page["epoch"], wait=20)
            assert page["reset"] is False
            found += [each["name"] for each in page["documents"]]
            pages += 1
        assert pages >= 3
        assert len(found) == len(set(found))
        assert {f"role/role-{name}" for name in names} < set(found)


def test_who_waits_is_answered_when_the_service_stops(fresh: Centre) -> None:
    page, _ = whole(fresh)
    thread, seen = waiting(lambda: poll(fresh, page["revision"], page["epoch"], wait=20))
    stopped = time.monotonic()
    fresh.stop()
    thread.join(5)
    assert seen[1] - stopped < 1
    assert seen[0]["documents"] == []
    fresh.start()


def test_a_key_that_is_revoked_while_it_waits_learns_nothing(fresh: Centre) -> None:
    made = fresh.admin("POST", "/v1/keys", {"name": "sidecar", "scope": "sidecar"})
    page, _ = whole(fresh)
    path = f"{POLL}?since={page['revision']}&epoch={page['epoch']}&wait=20"
    thread, seen = waiting(lambda: fresh.call("GET", path, key=made["key"]))
    fresh.admin("DELETE", f"/v1/keys/{made['key_id']}")
    thread.join(5)
    answer: Answer = seen[0]
    assert answer.status == 403


def test_too_many_who_wait_are_told_to_come_again(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, _ = whole(centre)
    path = f"{POLL}?since={page['revision']}&epoch={page['epoch']}&wait=5"
    monkeypatch.setattr("asyncio.Semaphore.locked", lambda self: True)
    assert centre.call("GET", path).status == 503


def test_a_session_is_claimed_once_and_its_owner_told_to_all(either: Centre) -> None:
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


class Spool:
    """Records as a sidecar makes them."""

    def __init__(self, source: str = "sidecar-1", instance: str = "i1") -> None:
        self.source, self.instance = source, instance
        self.n, self.prev = 0, b""
        self.event_ids: list[str] = []

    def record(self, **changed: Any) -> Any:
        retrieval = parse_retrieval(asked(**changed))
        refused = Decision("DENY", "policy_set_stale", "too old", None, None, None, ())
        now = time.time_ns() // 1000
        event_id = uuid7(now, bytes([self.n % 256]) + self.instance.encode().ljust(9, b"0"))
        record = decision_record(retrieval, refused, None, event_id=event_id, salt=b"s" * 32)
        src = src_member(self.source, self.instance, self.n, b64(self.prev), rfc3339(now))
        core = record.core(src)
        self.n, self.prev = self.n + 1, core_hash(core)
        self.event_ids.append(event_id)
        return orjson.loads(spool_payload(core, record.openings))

    def batch(self, records: list[Any]) -> dict[str, Any]:
        return {"source": self.source, "instance": self.instance, "records": records}


def test_records_are_taken_in_exactly_once_and_signed_for(either: Centre) -> None:
    spool, before = Spool(), either.verified()
    records = [spool.record(user_id=f"u{number}") for number in range(5)]
    log_key = unb64(poll(either, 0, "")["log_key"])
    for sent in (records[:3], records[:3], records[1:], records):
        either.admin("POST", "/v1/sidecars/events", spool.batch(sent))
    receipt = either.admin("POST", "/v1/sidecars/events", spool.batch([]))
    assert (receipt["source"], receipt["instance"], receipt["n"]) == ("sidecar-1", "i1", 4)
    assert unb64(receipt["hash"]) == spool.prev
    message = receipt_message("default", "sidecar-1", "i1", 4, spool.prev)
    assert verify(log_key, unb64(receipt["signature"]), message)
    report = either.verified()
    assert report["events"] == before["events"] + 5
    events = either.events()
    assert [event["event_id"] for event in events] == spool.event_ids[::-1]
    assert {event["sidecar_id"] for event in events} == {"sidecar-1"}
    assert events[0]["user_id"] == "u4"


def test_a_gap_or_another_chain_is_409_and_takes_nothing(centre: Centre) -> None:
    spool = Spool(instance="gap")
    records = [spool.record() for _ in range(3)]
    centre.admin("POST", "/v1/sidecars/events", spool.batch(records[:1]))
    total = centre.verified()["total"]
    for sent in (records[2:], [Spool(instance="gap").record(), *records[2:]]):
        answer = centre.call("POST", "/v1/sidecars/events", spool.batch(sent))
        assert answer.status == 409
        assert "held: n 0" in answer.body["details"]
    assert centre.verified()["total"] == total


def test_a_bad_record_is_422_and_nothing_of_its_batch_is_recorded(centre: Centre) -> None:
    spool = Spool(instance="bad")
    records = [spool.record() for _ in range(2)]
    total = centre.verified()["total"]
    broken = orjson.loads(orjson.dumps(records[1]))
    broken["core"]["pub"]["response"]["decision"] = "ALLOW"
    broken["open"] = {}
    batches: list[list[Any]] = [[records[0], broken], [{}], [1], [records[0], "x"]]
    for sent in batches:
        answer = centre.call("POST", "/v1/sidecars/events", spool.batch(sent))
        assert answer.status == 422, answer.raw
    other = {**spool.batch(records), "source": "sidecar-2"}
    assert centre.call("POST", "/v1/sidecars/events", other).status == 422
    assert centre.verified()["total"] == total
