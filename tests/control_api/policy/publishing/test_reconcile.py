"""Whatever was done to a set in Redis, it becomes the store's again; and no more is written than
what differs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from control_api.log.log_key import rotate
from policies.ground.signing import Endorsement
from policies.sets.redis_keys import changes_key, set_key
from tests.control_api.policy.publishing.reader import Reader
from tests.support.control_api import ControlApi
from tests.support.redis import needs_redis
from tests.support.waiting import until

pytestmark = needs_redis
SET, CHANGES = set_key("default"), changes_key("default")

_numbers = itertools.count()


def one_more(reader: Reader) -> str:
    """Another agent that is approved."""
    return reader.api.approved(f"agt_{next(_numbers):04}")


SPOILED: dict[str, Callable[[Any], object]] = {
    "flushed": lambda redis: redis.flushall(),
    "at is gone": lambda redis: redis.hdel(SET, "at"),
    "at is rubbish": lambda redis: redis.hset(SET, "at", b"\xff\0:x"),
    "at is another store's": lambda redis: redis.hset(SET, "at", "another:7"),
    "at is far ahead": lambda redis: redis.hset(
        SET, "at", redis.hget(SET, "at").split(b":")[0] + b":999999"
    ),
    "at is behind": lambda redis: redis.hset(
        SET, "at", redis.hget(SET, "at").split(b":")[0] + b":1"
    ),
    "at and head are gone": lambda redis: redis.hdel(SET, "at", "head"),
    "everything is rubbish": lambda redis: redis.hset(
        SET, mapping=dict.fromkeys(redis.hkeys(SET), b"\xffrubbish")
    ),
    "it is another installation's": lambda redis: redis.hset(
        SET, mapping={"at": "another:9", "head": "x", "d/agent/ghost": "{}", "n/zz": "x"}
    ),
    "the set is a string": lambda redis: (redis.delete(SET), redis.set(SET, "x")),
    "the set is a stream": lambda redis: (redis.delete(SET), redis.xadd(SET, {"x": "y"})),
    "changes are a list": lambda redis: (
        redis.delete(CHANGES, SET),
        redis.lpush(CHANGES, "x"),
    ),
}


@pytest.mark.parametrize("tamper", SPOILED)
def test_a_damaged_set_equals_the_stores_again_after_one_challenge(
    shared_reader: Reader,
    tamper: str,
) -> None:
    reader = shared_reader
    one_more(reader)
    reader.follows()
    SPOILED[tamper](reader.redis)
    reader.answered(reader.ask())
    reader.follows()
    assert reader.changes()


@pytest.mark.parametrize("tamper", SPOILED)
def test_a_push_that_finds_a_damaged_set_repairs_it(shared_reader: Reader, tamper: str) -> None:
    reader = shared_reader
    one_more(reader)
    reader.follows()
    SPOILED[tamper](reader.redis)
    one_more(reader)
    reader.follows()


@pytest.mark.parametrize("head", [b"", b"rubbish", b"\0" * 64 + b"{}"])
def test_a_head_that_is_not_ours_is_replaced(shared_reader: Reader, head: bytes) -> None:
    """A sidecar that can't believe it says so."""
    reader = shared_reader
    reader.follows()
    reader.redis.hset(SET, "head", head)
    reader.answered(reader.ask("head"))
    until("the head is replaced", lambda: reader.redis.hget(SET, "head") != head)
    assert reader.is_the_store_s()


def test_a_replayed_older_set_is_brought_up_to_date(shared_reader: Reader) -> None:
    reader = shared_reader
    key = reader.api.admin("POST", "/v1/keys", {"name": "short", "scope": "read"})
    reader.follows()
    old = reader.fields()
    made = [one_more(reader) for _ in range(5)]
    reader.api.admin("DELETE", f"/v1/keys/{key['key_id']}")
    reader.follows()
    [gone] = [each[2:].decode() for each in old.keys() - reader.fields() if each[:2] == b"d/"]
    reader.redis.delete(SET)
    reader.redis.hset(SET, mapping=old)
    reader.answered(reader.ask())
    reader.follows()
    newest = reader.changes()[-1]
    assert newest.names == tuple(sorted([gone, *(f"agent/{each}" for each in made)]))
    assert newest.since == reader.opened(old[b"head"]).revision


def test_an_older_head_with_newer_nodes_does_not_name_what_changed(shared_reader: Reader) -> None:
    """Nodes that its root does not lead to tell nothing of what there was."""
    reader = shared_reader
    reader.follows()
    old = reader.fields()
    one_more(reader)
    reader.follows()
    reader.redis.hset(SET, mapping={"head": old[b"head"], "at": old[b"at"]})
    reader.answered(reader.ask())
    reader.follows()
    assert reader.changes()[-1].names is None


def test_only_differing_fields_are_written(shared_reader: Reader) -> None:
    reader = shared_reader
    for _ in range(10):
        reader.api.admin("POST", "/v1/agents", {"agent_role": "support"})
    reader.follows()
    reader.redis.hset(SET, "at", f"{reader.store()[0]}:1")
    # No sidecar has missed this one: a service that writes it anew writes too much.
    reader.redis.hset(SET, "d/tenant", "forged")
    reader.redis.config_resetstat()
    at = reader.store()[1]
    reader.answered(reader.ask())
    until("it is up to date", lambda: reader.redis.hget(SET, "at").endswith(b":%d" % at))
    assert reader.redis.hget(SET, "d/tenant") == b"forged"
    reader.answered(reader.ask("d/tenant"))
    reader.follows()
    written = reader.redis.info("commandstats").get("cmdstat_hset", {"calls": 0})["calls"]
    assert written <= 3, "the head, what was forged, and nothing else"


def test_a_rebuild_whose_replica_died_is_taken_over(shared_reader: Reader) -> None:
    """Its lock runs out; one that never does, or of another type, is not ours."""
    reader = shared_reader
    reader.follows()
    reader.redis.delete(SET)
    reader.redis.lpush(f"{SET}:lock", "x")
    reader.answered(reader.ask())
    reader.follows()


@pytest.mark.deep(
    stands_in="tests/control_api/policy/publishing/test_rollback_recovery.py::test_revoked_access_stays_revoked"
)
def test_a_store_restored_to_an_older_state_is_followed(
    publishing: ControlApi, reader: Reader
) -> None:
    reader.follows()
    publishing.stop()
    files = {p: p.read_bytes() for p in (publishing.directory / "data").glob("sluice.db*")}
    publishing.start()
    for number in range(3):
        publishing.approved(f"agt_{number}")
    reader.follows()
    publishing.stop()
    for path in (publishing.directory / "data").glob("sluice.db*"):
        path.unlink()
    for path, body in files.items():
        path.write_bytes(body)
    publishing.start()
    reader.answered(reader.ask())
    reader.follows()
    # And when it has gone on to the same revision by another way, it is this way that counts.
    publishing.approved("agt_other")
    reader.follows()


def test_a_head_by_a_replaced_key_is_signed_again_on_request(
    publishing: ControlApi, reader: Reader
) -> None:
    reader.follows()
    before, pushed = reader.redis.hget(SET, "head"), len(reader.changes())
    publishing.stop()
    rotate(publishing.directory / "data")
    publishing.start()
    reader.answered(reader.ask())
    assert reader.redis.hget(SET, "head") == before, "it is of the log's keys still"
    reader.answered(reader.ask("head"))
    reader.follows()
    (endorsement,) = orjson.loads(reader.fields()[b"keys"])
    assert Endorsement.from_wire(endorsement).holds()
    newest = reader.redis.xrevrange(CHANGES, count=1)[0][1][b"h"]
    assert reader.opened(newest).names == ()
    assert reader.redis.xlen(CHANGES) == pushed + 1
    reader.answered(reader.ask("head"))
    one_more(reader)
    reader.follows()
    assert reader.redis.xlen(CHANGES) <= pushed + 4, "signed once, and then only what changed"
