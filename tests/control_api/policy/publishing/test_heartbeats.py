"""A heartbeat attests the store's state after the request; nothing that others write stops it."""

from __future__ import annotations

import re

import pytest
import redis as redis_py

from control_api.policy.publishing.heartbeats import HeartbeatRequests, parse_requests
from policies.sets.redis_keys import CHALLENGES, beats_key, doubts_key, set_key
from policies.sets.signed_head import Heartbeat
from tests.control_api.policy.publishing.reader import Reader
from tests.support.control_api import ControlApi
from tests.support.redis import needs_redis
from tests.support.waiting import until

pytestmark = needs_redis


def test_a_challenge_is_answered_with_the_store_s_revision(shared_reader: Reader) -> None:
    reader, publishing = shared_reader, shared_reader.api
    beat = reader.answered(reader.ask())
    epoch, revision, _ = reader.store()
    assert (beat.epoch, beat.revision) == (epoch, revision)
    assert abs(beat.now - publishing.time.now()) < 5_000_000
    publishing.new_key()
    assert reader.answered(reader.ask()).revision == revision + 1


def test_concurrent_challenges_share_a_heartbeat(shared_reader: Reader) -> None:
    reader = shared_reader
    reader.answered(reader.ask())
    before = len(reader.beats())
    nonces = {f"together-{number:06}" for number in range(1500)}
    with reader.redis.pipeline(transaction=False) as pipe:
        for nonce in nonces:
            pipe.xadd(CHALLENGES, {"t": reader.tenant_id, "n": nonce})
        pipe.execute()

    def answered() -> bool:
        return nonces <= {nonce for beat in reader.beats()[before:] for nonce in beat.nonces}

    until("each is answered", answered)
    assert len(reader.beats()) - before < 15


@pytest.mark.deep(stands_in="test_concurrent_challenges_share_a_heartbeat")
def test_the_challenges_of_a_large_fleet_share_few_heartbeats(shared_reader: Reader) -> None:
    reader = shared_reader
    reader.answered(reader.ask())
    before = len(reader.beats())
    nonces = {f"of-a-fleet-{number:06}" for number in range(3000)}
    with reader.redis.pipeline(transaction=False) as pipe:
        for nonce in nonces:
            pipe.xadd(CHALLENGES, {"t": reader.tenant_id, "n": nonce})
        pipe.execute()

    def answered() -> bool:
        return nonces <= {nonce for beat in reader.beats()[before:] for nonce in beat.nonces}

    until("each is answered", answered)
    assert len(reader.beats()) - before < 30
    # A single one is answered as before.
    reader.answered(reader.ask())


def test_an_unknown_or_deactivated_tenant_gets_no_heartbeat(shared_reader: Reader) -> None:
    reader, publishing = shared_reader, shared_reader.api
    made = publishing.admin("POST", "/v1/admin/tenants", {"name": "acme"})["tenant_id"]
    acme = Reader(publishing, reader.server, made)
    acme.answered(acme.ask())
    publishing.admin("DELETE", f"/v1/admin/tenants/{made}")
    late, unknown = acme.ask(), reader.ask(tenant_id="nobody")
    reader.answered(reader.ask())
    assert not any(late in beat.nonces for beat in acme.beats())
    assert not reader.redis.exists(beats_key("nobody"))
    assert unknown


def test_malformed_requests_are_counted() -> None:
    nonce = b"nonce-00000000"
    malformed: list[object] = [
        None,
        {b"x": b"y"},
        {b"t": b"default"},
        {b"t": b"default", b"n": b""},
        {b"t": b"default", b"n": b"short"},
        {b"t": b"\xff\xfe", b"n": nonce},
        {b"t": b"nul\0", b"n": nonce},
        {b"t": b"t" * 5000, b"n": nonce},
        {b"t": b"default", b"n": b"nonce-1\r\nX: 1"},
    ]
    good = [{b"t": b"default", b"n": nonce}, {b"t": b"default", b"n": b"nonce-1-more", b"m": b"{"}]
    found, count = parse_requests([*malformed, *good])
    assert count == len(malformed)
    assert found == {"default": HeartbeatRequests([nonce.decode(), "nonce-1-more"], repairs=True)}


def test_malformed_entries_in_the_stream_are_skipped(shared_reader: Reader) -> None:
    reader, publishing = shared_reader, shared_reader.api
    reader.answered(reader.ask())
    before = _unreadable(publishing)
    for entry in (
        {"x": "y"},
        {"t": "default"},
        {"t": "default", "n": ""},
        {"t": "default", "n": "short"},
        {"t": b"\xff\xfe", "n": "nonce-00000000"},
        {"t": "nul\0", "n": "nonce-00000000"},
        {"t": "t" * 5000, "n": "nonce-00000000"},
        {"t": "default", "n": "nonce-1\r\nX: 1"},
        {"t": "default", "n": "nonce-00000001", "m": "{"},
    ):
        reader.redis.xadd(CHALLENGES, entry)
    reader.answered(reader.ask())
    assert any("nonce-00000001" in beat.nonces for beat in reader.beats())
    assert _unreadable(publishing) - before == 8


def _unreadable(api: ControlApi) -> float:
    line = re.search(
        rb'challenges_total{outcome="unreadable"} ([0-9.]+)', api.call("GET", "/metrics").raw
    )
    return 0.0 if line is None else float(line[1])


def test_malformed_repair_requests_are_skipped(shared_reader: Reader) -> None:
    reader = shared_reader
    reader.follows()
    fields = reader.fields()
    reader.redis.hset(set_key("default"), "d/tenant", "forged")
    for told in (
        {"x": "y"},
        {"f": "{"},
        {"f": '["x", 1, null, "n/../..", "d/"]'},
        {"f": '{"a": 1}'},
        {"f": '["' + "d" * 20_000 + '"]'},
        {"f": b"\xff\xfe"},
    ):
        reader.redis.xadd(doubts_key("default"), told)
    reader.answered(reader.ask("d/tenant"))
    reader.follows()
    assert reader.fields() == fields


def test_a_repair_stream_of_another_type_is_replaced(shared_reader: Reader) -> None:
    reader = shared_reader
    reader.follows()
    reader.redis.set(doubts_key("default"), "no stream")
    reader.redis.xadd(CHALLENGES, {"t": "default", "n": "nonce-00000001", "m": "1"})
    until("it is removed", lambda: not reader.redis.exists(doubts_key("default")))
    most = 2**64 - 1
    reader.redis.xadd(doubts_key("default"), {"x": "y"}, id=f"{most}-{most}")
    reader.redis.xadd(CHALLENGES, {"t": "default", "n": "nonce-00000002", "m": "1"})
    until("so is it full", lambda: not reader.redis.exists(doubts_key("default")))


def test_repair_requests_expire(shared_reader: Reader) -> None:
    reader = shared_reader
    reader.answered(reader.ask("d/session/s-1"))
    assert 0 < reader.redis.pttl(doubts_key("default")) <= 60_000


def test_a_stream_whose_ids_are_used_up_is_replaced(shared_reader: Reader) -> None:
    reader = shared_reader
    reader.answered(reader.ask())
    most = 2**64 - 1
    reader.redis.xadd(CHALLENGES, {"x": "y"}, id=f"{most}-{most}")
    reader.redis.xadd(beats_key("default"), {"x": "y"}, id=f"{most}-{most}")
    with pytest.raises(redis_py.ResponseError, match="exhausted"):
        reader.ask()
    until("the stream is begun anew", lambda: reader.redis.xlen(CHALLENGES) == 0)
    nonces = set[str]()

    def answered() -> bool:
        nonces.add(reader.ask())
        return any(nonces & set(beat.nonces) for beat in _readable(reader))

    until("a challenge is answered", answered)


def test_streams_of_another_type_are_replaced(shared_reader: Reader) -> None:
    reader = shared_reader
    reader.answered(reader.ask())
    reader.redis.delete(CHALLENGES, beats_key("default"))
    reader.redis.set(beats_key("default"), "no stream")
    reader.redis.lpush(CHALLENGES, "no stream")
    until("the stream is begun anew", lambda: reader.redis.type(CHALLENGES) != b"list")
    reader.ask()
    until("so is the other", lambda: reader.redis.type(beats_key("default")) != b"string")
    reader.answered(reader.ask())


@pytest.mark.deep(
    stands_in="tests/control_api/policy/publishing/test_reconcile.py::test_a_damaged_set_equals_the_stores_again_after_one_challenge"
)
def test_a_flushed_redis_is_filled_by_the_first_challenge(shared_reader: Reader) -> None:
    reader = shared_reader
    reader.follows()
    reader.redis.flushall()
    assert not reader.redis.exists(set_key("default"))
    reader.answered(reader.ask())
    reader.follows()


def test_a_field_that_a_sidecar_reports_missing_is_restored(shared_reader: Reader) -> None:
    reader, publishing = shared_reader, shared_reader.api
    publishing.approved("agt_1")
    reader.follows()
    fields, pushed = reader.fields(), reader.changes()
    nodes = [name for name in fields if name[:2] == b"n/" and name != b"n/root"]
    reader.redis.hdel(set_key("default"), "d/agent/agt_1", nodes[0], nodes[1])
    reader.redis.hset(set_key("default"), "d/tenant", "forged")
    reader.redis.hset(set_key("default"), nodes[2], "[]")
    doubted = ["d/agent/agt_1", "d/tenant", *(node.decode() for node in nodes[:3])]
    reader.answered(reader.ask(*doubted))
    reader.follows()
    assert reader.fields() == fields
    assert reader.changes() == pushed, "no revision moved"


def test_a_superfluous_field_is_removed(shared_reader: Reader) -> None:
    reader = shared_reader
    reader.follows()
    reader.redis.hset(set_key("default"), mapping={"d/agent/ghost": "{}", "n/00.00": "[]"})
    held = reader.fields()[b"n/root"]
    reader.answered(reader.ask("d/agent/ghost", "n/00.00"))
    reader.follows()
    assert reader.fields()[b"n/root"] == held


def _readable(reader: Reader) -> list[Heartbeat]:
    try:
        return reader.beats()
    except KeyError:  # the entry that used the ids up
        return []
