"""A sidecar's key says only what it may: what it forges is refused and stays visible, and the true
records behind it are kept."""

from __future__ import annotations

import os
import time
from typing import Any

import orjson
import pytest

from policies.evaluate import Decision, refuse
from policies.ground.canonical import b64, rfc3339, unb64
from policies.ground.ids import uuid7
from policies.retrieval import parse_retrieval
from policies.trail.core import rejected_fault
from policies.trail.lineage import retrieval_lineage
from policies.trail.record import Record, decision_record, gap_record
from policies.trail.spool_chain import core_hash, spool_payload, src_member
from tests.support.control_api import ControlApi, asked

EVENTS = "/v1/sidecars/events"
DAY = 86_400_000_000
Payload = dict[str, Any]


def now() -> int:
    return time.time_ns() // 1000


class Sidecar:
    """A sidecar that delivers what it likes, with a key for the agent `agent_id`."""

    made = 0

    def __init__(self, api: ControlApi, agent_id: str, key: str = "", **binding: Any) -> None:
        Sidecar.made += 1
        self.api, self.agent_id = api, agent_id
        self.name = self.source = f"judged-{Sidecar.made}"
        self.instance, self.n, self.prev = "i1", 0, b""
        self.key = key or api.new_key("sidecar", **{"agent_ids": [agent_id], **binding})

    def put(self, record: Record, at: int = 0) -> Payload:
        src = src_member(self.source, self.instance, self.n, b64(self.prev), rfc3339(at or now()))
        core = record.core(src)
        self.n, self.prev = self.n + 1, core_hash(core)
        return dict(orjson.loads(spool_payload(core, record.openings)))

    def decided(
        self, verdict: str = "ALLOW", *, at: int = 0, eid: str = "", **fields: Any
    ) -> Payload:
        retrieval = parse_retrieval(asked(**{"agent_id": self.agent_id, **fields}))
        decision = refuse("nothing", "for a test")
        if verdict == "ALLOW":
            decision = Decision("ALLOW", "p", "for a test", None, "pol_1", 1, decision.findings)
        return self.put(
            decision_record(retrieval, decision, None, event_id=eid or new_id(), salt=b"s" * 32), at
        )

    def followed(self, event_id: str) -> Payload:
        detail: dict[str, int | str] = {"status": 200}
        return self.put(
            retrieval_lineage(event_id, b"c" * 32, detail, "delivered", record_id=new_id())
        )

    def send(self, payloads: list[Payload]) -> Any:
        batch = {"source": self.name, "instance": self.instance, "records": payloads}
        return self.api.call("POST", EVENTS, batch, key=self.key)

    def sent(self, payloads: list[Payload]) -> list[tuple[int, str]]:
        """What was refused of these records. All of them have their place in the log."""
        answer = self.send(payloads)
        assert answer.status == 200, answer.raw
        assert (answer.body["n"], unb64(answer.body["hash"])) == (self.n - 1, self.prev)
        return [(each["n"], each["reason"]) for each in answer.body["rejected"]]


def new_id() -> str:
    return uuid7(now(), os.urandom(10))


def agent(api: ControlApi, name: str) -> str:
    agent_id = f"agt_{name}_{time.time_ns()}"
    api.approved(agent_id)
    return agent_id


def ids(payloads: list[Payload]) -> list[str]:
    return [each["core"]["eid"] for each in payloads]


def test_forgeries_are_refused_one_by_one_and_true_records_behind_them_are_kept(
    api: ControlApi,
) -> None:
    refuse_forgeries(api)


@pytest.mark.deep(
    stands_in="test_forgeries_are_refused_one_by_one_and_true_records_behind_them_are_kept"
)
def test_forgeries_are_refused_by_either_database_and_in_later_batches(either: ControlApi) -> None:
    for _ in range(2):
        refuse_forgeries(either)


def refuse_forgeries(api: ControlApi) -> None:
    ours, theirs = agent(api, "ours"), agent(api, "theirs")
    sidecar = Sidecar(api, ours)
    # The second batch of a spool takes another way than its first.
    assert sidecar.sent([sidecar.decided("DENY"), sidecar.decided("DENY")]) == []
    before = api.verified()
    records = [
        sidecar.decided(),
        sidecar.decided(agent_id=theirs),
        sidecar.decided(agent_role="auditor"),
        sidecar.decided(agent_id=None),
        sidecar.decided(eid="not-a-uuid"),
        sidecar.decided(eid="0b6b7d2a-8c1d-4e2f-9a3b-4c5d6e7f8a9b"),
    ]
    sidecar.source = "another"
    records.append(sidecar.decided())
    sidecar.source = sidecar.name
    damaged = sidecar.decided()
    damaged["core"]["pub"]["response"]["decision"] = "PERHAPS"
    sidecar.prev = core_hash(orjson.dumps(damaged["core"], option=orjson.OPT_SORT_KEYS))
    records += [damaged, sidecar.decided("DENY", agent_id=theirs), sidecar.decided()]
    assert sidecar.sent(records) == [
        (3, "foreign_agent"),
        (4, "foreign_role"),
        (5, "foreign_agent"),
        (6, "event_id"),
        (7, "event_id"),
        (8, "foreign_spool"),
        (9, "not_a_record"),
    ]
    kept = [records[each] for each in (9, 8, 0)]
    events = [each for each in api.events() if each["sidecar_id"] == sidecar.name]
    assert [each["event_id"] for each in events][:3] == ids(kept)
    after = api.verified()
    assert after["valid"], after
    assert (after["total"] - before["total"], after["events"] - before["events"]) == (10 + 1, 3)


def test_a_refused_record_is_in_the_log_with_its_reason_and_its_core(api: ControlApi) -> None:
    sidecar = Sidecar(api, agent(api, "shown"))
    forged = sidecar.decided(agent_id="agt_foreign")
    assert sidecar.sent([forged, sidecar.decided()]) == [(0, "foreign_agent")]
    assert sidecar.sent([]) == []
    listed = api.admin("GET", "/v1/audit/rejected-records?limit=1000")
    (shown,) = (each for each in listed if each["sidecar_id"] == sidecar.name)
    told = {"instance": "i1", "n": 0, "reason": "foreign_agent", "record": forged["core"]}
    assert {name: shown[name] for name in told} == told
    pages = api.pages("/v1/audit/rejected-records?limit=1")
    assert [each["seq"] for page in pages for each in page] == [each["seq"] for each in listed]
    raw = api.call("GET", "/v1/audit/export").raw.decode()
    entries = [orjson.loads(line)["entry"] for line in raw.splitlines() if '"entry":{' in line]
    (entry,) = (
        each
        for each in entries
        if each["kind"] == "rejected_record" and each["src"]["id"] == sidecar.name
    )
    assert (entry["seq"], entry["pub"]["key_id"]) == (shown["seq"], shown["key_id"])
    assert (entry["pub"]["core"], entry["pub"]["reason"]) == (forged["core"], "foreign_agent")
    assert rejected_fault(entry["pub"]) is None
    assert entry["cm"] == {}


def test_a_denial_of_a_foreign_agent_is_kept_and_counted_for_no_agent(api: ControlApi) -> None:
    ours, theirs = agent(api, "ours"), agent(api, "theirs")
    sidecar = Sidecar(api, ours)
    tried = [sidecar.decided("DENY", agent_id=theirs), sidecar.decided("DENY", agent_id=ours)]
    assert sidecar.sent(tried) == []
    assert [each["event_id"] for each in api.events(f"?agent_id={theirs}")] == ids(tried[:1])
    shown = {name: api.admin("GET", f"/v1/agents/{name}")["activity"] for name in (ours, theirs)}
    assert (shown[ours]["denied"], shown[theirs]["denied"]) == (1, 0)
    whole = api.admin("GET", f"/v1/audit/events/{ids(tried)[0]}")
    assert (whole["event"]["agent_id"], whole["event"]["agent_foreign"]) == (theirs, True)


def test_a_doubtful_time_is_kept_marked_and_listed_at_its_arrival(api: ControlApi) -> None:
    sidecar, arrival = Sidecar(api, agent(api, "late")), now()
    times = {
        "2006": 1_136_073_600_000_000,
        "2096": 3_976_300_800_000_000,
        "31 days ago": arrival - 31 * DAY,
        "in two minutes": arrival + 120_000_000,
        "29 days ago": arrival - 29 * DAY,
        "in half a minute": arrival + 30_000_000,
    }
    records = [sidecar.decided(at=at) for at in times.values()]
    assert sidecar.sent(records) == []
    shown = {each["event_id"]: each for each in api.events(f"?agent_id={sidecar.agent_id}")}
    marked = [shown[each]["time_doubtful"] for each in ids(records)]
    assert marked == [True, True, True, True, False, False]
    listed = [shown[each]["timestamp"] for each in ids(records)]
    assert listed[4:] == [rfc3339(each) for each in list(times.values())[4:]]
    assert all(rfc3339(arrival) <= each <= rfc3339(now()) for each in listed[:4])
    assert api.verified()["valid"]


def test_lineage_of_a_foreign_event_is_refused(api: ControlApi) -> None:
    ours, theirs = (Sidecar(api, agent(api, name)) for name in ("ours", "theirs"))
    event, own = theirs.decided(), ours.decided()
    assert theirs.sent([event]) == ours.sent([own]) == []
    central = api.evaluate()["event_id"]

    followed = [ours.followed(each) for each in (*ids([event, own]), central)]
    assert ours.sent(followed) == [(1, "foreign_event"), (3, "foreign_event")]


def test_lineage_ahead_of_its_event_is_refused_and_counted_as_a_forgery(api: ControlApi) -> None:
    true, thief = (Sidecar(api, agent(api, name)) for name in ("true", "thief"))
    shipped = true.decided()
    (eid,) = ids([shipped])
    told = len(api.admin("GET", "/v1/audit/changes?action=isolation_violation&limit=1000"))
    assert thief.sent([thief.followed(eid)]) == [(0, "unknown_event")]
    after = len(api.admin("GET", "/v1/audit/changes?action=isolation_violation&limit=1000"))
    assert after == told + 1
    # As its sidecar spools it: the decision, then what follows from it, also in a later batch.
    assert true.sent([shipped, true.followed(eid)]) == []
    assert true.sent([true.followed(eid)]) == []
    actions = api.admin("GET", f"/v1/audit/lineage/{eid}")["actions"]
    assert [each["outcome"] for each in actions] == ["delivered", "delivered"]


def test_lineage_before_its_decision_or_of_a_refused_one_is_refused(api: ControlApi) -> None:
    sidecar, theirs = (Sidecar(api, agent(api, name)) for name in ("ours", "theirs"))
    eid, foreign = new_id(), new_id()
    records = [sidecar.followed(eid), sidecar.decided(eid=eid), sidecar.followed(eid)]
    records += [sidecar.decided(agent_id=theirs.agent_id, eid=foreign), sidecar.followed(foreign)]
    refused = [(0, "unknown_event"), (3, "foreign_agent"), (4, "unknown_event")]
    assert sidecar.sent(records) == refused


def test_lineage_behind_a_duplicate_id_is_refused_with_it(api: ControlApi) -> None:
    true, thief = (Sidecar(api, agent(api, name)) for name in ("true", "thief"))
    shipped = true.decided()
    (eid,) = ids([shipped])
    assert true.sent([shipped]) == []
    taken = [thief.decided("DENY", eid=eid), thief.followed(eid)]
    assert thief.sent(taken) == [(0, "duplicate_id"), (1, "foreign_event")]
    # The same record again, and more that follows from it.
    assert thief.sent([*taken, thief.followed(eid)]) == [(2, "foreign_event")]
    assert api.admin("GET", f"/v1/audit/lineage/{eid}")["actions"] == []


def test_lineage_is_refused_for_an_event_known_only_from_a_refused_record(api: ControlApi) -> None:
    ours, theirs = (Sidecar(api, agent(api, name)) for name in ("ours", "theirs"))
    event = theirs.decided()
    assert theirs.sent([event]) == []
    [theirs_id] = ids([event])

    def forged(**fields: Any) -> list[Payload]:
        """A record with the id of the other agent's event, and lineage that follows from it."""
        lineage = retrieval_lineage(
            theirs_id, b"c" * 32, {"status": 200}, "delivered", record_id=new_id()
        )
        return [ours.decided(eid=theirs_id, **fields), ours.put(lineage)]

    # One is refused once the log knows its id, the other before.
    assert ours.sent(forged()) == [(0, "duplicate_id"), (1, "foreign_event")]
    assert ours.sent(forged(agent_id=theirs.agent_id)) == [
        (2, "foreign_agent"),
        (3, "foreign_event"),
    ]
    assert api.admin("GET", f"/v1/audit/lineage/{theirs_id}")["actions"] == []
    assert api.verified()["valid"]


def test_a_known_id_is_refused_and_the_records_behind_it_are_ingested(api: ControlApi) -> None:
    sidecar = Sidecar(api, agent(api, "known"))
    central, eid = api.evaluate()["event_id"], new_id()
    records = [sidecar.decided(), sidecar.decided(eid=central)]
    records += [sidecar.decided(eid=eid), sidecar.decided(eid=eid), sidecar.decided()]
    assert sidecar.sent(records) == [(1, "duplicate_id"), (3, "duplicate_id")]
    again = sidecar.send(records)
    assert (again.status, again.body["rejected"]) == (200, [])
    assert api.verified()["valid"]


def test_an_id_that_was_taken_before_is_reported_as_a_forgery(api: ControlApi) -> None:
    true, thief = (Sidecar(api, agent(api, name)) for name in ("true", "thief"))
    shipped = true.decided()
    assert thief.sent([thief.decided("DENY", eid=ids([shipped])[0])]) == []
    assert true.sent([shipped]) == [(0, "duplicate_id")]
    (told,) = api.admin("GET", "/v1/audit/changes?action=isolation_violation&limit=1")
    listed = api.admin("GET", "/v1/audit/rejected-records?limit=1000")
    (kept,) = (each for each in listed if each["sidecar_id"] == true.name)
    assert (kept["record"], kept["key_id"]) == (shipped["core"], told["object_id"])
    metrics = api.call("GET", "/metrics").raw.decode()
    assert 'sluice_isolation_violations_total{what="event"}' in metrics


def test_no_key_delivers_records_of_another_keys_sidecar(api: ControlApi) -> None:
    true, thief = Sidecar(api, agent(api, "true")), Sidecar(api, agent(api, "thief"))
    first = true.decided()
    assert true.sent([first]) == []
    total = api.verified()["total"]
    for forged in ([true.decided(agent_id=thief.agent_id)], []):
        batch = {"source": true.name, "instance": true.instance, "records": forged}
        assert api.call("POST", EVENTS, batch, key=thief.key).status == 403
    # The attempts themselves are in the log, and nothing of what was delivered.
    assert api.verified()["total"] == total + 2
    told = api.admin("GET", "/v1/audit/changes?action=isolation_violation&limit=2")
    assert [each["object_type"] for each in told] == ["key", "key"]
    true.n, true.prev = 1, core_hash(orjson.dumps(first["core"], option=orjson.OPT_SORT_KEYS))
    assert true.sent([true.decided()]) == []


def test_a_record_with_a_role_withdrawn_meanwhile_is_refused_but_no_forgery(
    api: ControlApi,
) -> None:
    agent_id = f"agt_moved_{time.time_ns()}"
    api.approved(agent_id, permitted_roles=["support", "auditor"])
    sidecar = Sidecar(api, agent_id)
    made = [sidecar.decided(agent_role="auditor"), sidecar.decided(agent_role="stranger")]
    shown = api.admin("GET", f"/v1/agents/{agent_id}")
    body = {name: shown[name] for name in ("agent_role", "credential_type") if shown.get(name)}
    api.admin("PUT", f"/v1/agents/{agent_id}", {**body, "permitted_roles": ["support"]})
    assert sidecar.sent(made) == [(1, "foreign_role")]


def test_a_spool_continues_when_its_key_is_replaced(api: ControlApi) -> None:
    agent_id = agent(api, "rotated")
    old = Sidecar(api, agent_id)
    assert old.sent([old.decided()]) == []
    waiting = [
        old.decided(),
        old.put(gap_record("x", instance=None, first=1, lost=1, record_id=new_id())),
    ]
    old.key = api.new_key("sidecar", agent_ids=[agent_id])
    assert old.sent(waiting) == []


def test_a_malformed_record_refuses_its_whole_batch(
    api: ControlApi,
) -> None:
    sidecar = Sidecar(api, agent(api, "rubbish"))
    good = sidecar.decided()
    batches: list[list[Any]] = [[good, {}], [good, 1], [good, {"core": {"src": {}}}]]
    for batch in batches:
        assert sidecar.send(batch).status == 422
    assert sidecar.sent([good]) == []
