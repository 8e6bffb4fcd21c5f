"""A sidecar's batches: ingested exactly once, receipted, and compressed in transit."""

from __future__ import annotations

import gzip
import time
import zlib
from typing import Any

import orjson
import pytest

from policies.evaluate import Decision
from policies.ground.canonical import b64, rfc3339, unb64
from policies.ground.ids import uuid7
from policies.ground.signing import receipt_message, verify
from policies.retrieval import parse_retrieval
from policies.trail.record import decision_record
from policies.trail.spool_chain import core_hash, spool_payload, src_member
from tests.support.control_api import Answer, ControlApi, asked

EVENTS = "/v1/sidecars/events"


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


@pytest.mark.deep(
    stands_in="tests/control_api/log/test_ingest.py::test_two_posts_of_one_batch_at_once_record_it_once"
)
def test_records_are_ingested_exactly_once_and_receipted(either: ControlApi) -> None:
    spool, before = Spool(), either.verified()
    records = [spool.record(user_id=f"u{number}") for number in range(5)]
    log_key = unb64(either.admin("GET", "/v1/sidecars/policy-set?since=0")["log_key"])
    for sent in (records[:3], records[:3], records[1:], records):
        either.admin("POST", EVENTS, spool.batch(sent))
    receipt = either.admin("POST", EVENTS, spool.batch([]))
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


def test_a_gap_or_another_chain_is_refused_with_409_and_ingests_nothing(api: ControlApi) -> None:
    spool = Spool(instance="gap")
    records = [spool.record() for _ in range(3)]
    api.admin("POST", EVENTS, spool.batch(records[:1]))
    total = api.verified()["total"]
    for sent in (records[2:], [Spool(instance="gap").record(), *records[2:]]):
        answer = api.call("POST", EVENTS, spool.batch(sent))
        assert answer.status == 409
        assert "held: n 0" in answer.body["details"]
    assert api.verified()["total"] == total


def test_a_malformed_record_is_refused_with_422_and_nothing_of_its_batch_is_recorded(
    api: ControlApi,
) -> None:
    spool = Spool(instance="bad")
    records = [spool.record() for _ in range(2)]
    total = api.verified()["total"]
    broken = orjson.loads(orjson.dumps(records[1]))
    broken["core"]["src"]["n"] = -1
    batches: list[list[Any]] = [[records[0], broken], [{}], [1], [records[0], "x"]]
    for sent in batches:
        answer = api.call("POST", EVENTS, spool.batch(sent))
        assert answer.status == 422, answer.raw
    assert api.verified()["total"] == total


def packed(spool: Spool, records: list[Any]) -> bytes:
    """The batch, as the sidecar's shipper sends it."""
    payloads = b",".join(orjson.dumps(each, option=orjson.OPT_SORT_KEYS) for each in records)
    envelope = orjson.dumps({"instance": spool.instance, "source": spool.source})
    return zlib.compress(b'%b,"records":[%b]}' % (envelope[:-1], payloads), 1, 31)


def sent_packed(api: ControlApi, raw: bytes, coding: str = "gzip") -> Answer:
    headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
    return api.call("POST", EVENTS, raw=raw, headers=headers)


@pytest.mark.deep(stands_in="test_a_compressed_batch_of_a_whole_mebibyte_is_ingested")
def test_a_compressed_batch_is_ingested_like_a_plain_one(either: ControlApi) -> None:
    spool, before = Spool(instance="packed"), either.verified()["events"]
    records = [spool.record(user_id=f"ü{number}") for number in range(300)]
    first = sent_packed(either, packed(spool, records[:200]))
    assert (first.status, first.body["n"]) == (200, 199), first.raw
    again = sent_packed(either, packed(spool, records[100:]))
    assert (again.status, again.body["n"]) == (200, 299), again.raw
    assert unb64(again.body["hash"]) == spool.prev
    assert either.admin("POST", EVENTS, spool.batch(records)) == again.body
    assert either.verified()["events"] == before + 300


def test_a_compressed_batch_of_a_whole_mebibyte_is_ingested(api: ControlApi) -> None:
    spool = Spool(instance="large")
    records = [spool.record(query="ü" * 15_000) for _ in range(33)]
    raw = packed(spool, records)
    assert 1_000_000 < len(zlib.decompress(raw, 31)) <= 1024 * 1024
    assert sent_packed(api, raw).body["n"] == 32


@pytest.mark.parametrize(
    ("tamper", "status"),
    [
        (lambda raw: raw[: len(raw) // 2], 400),
        (lambda raw: raw[:-4] + b"\0\0\0\0", 400),
        (lambda raw: b"\x1f\x8b" + b"\xff" * 100, 400),
        (lambda raw: zlib.decompress(raw, 31), 400),
        (lambda raw: b"", 400),
        (lambda raw: gzip.compress(zlib.decompress(raw, 31)[:-2] + b" " * 2_000_000 + b"]}"), 413),
    ],
    ids=["cut off", "a wrong length", "rubbish", "not compressed", "empty", "too large inside"],
)
def test_a_batch_that_does_not_unpack_is_refused_as_a_whole(
    api: ControlApi, tamper: Any, status: int
) -> None:
    spool, total = Spool(instance=f"spoilt-{time.time_ns()}"), api.verified()["total"]
    raw = packed(spool, [spool.record() for _ in range(50)])
    assert sent_packed(api, tamper(raw)).status == status
    assert api.verified()["total"] == total
    assert sent_packed(api, raw).body["n"] == 49
