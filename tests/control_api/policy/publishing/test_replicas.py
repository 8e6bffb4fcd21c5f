"""Several control APIs on one store and one Redis: whichever is first, Redis has the store's
set."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
from sqlalchemy import make_url

from control_api.policy.publishing import redis_sets
from control_api.policy.publishing.redis_client import RedisClient
from control_api.policy.publishing.redis_sets import RedisSets
from control_api.store.transaction import Published
from policies.ground.addresses import RedisUrl
from policies.sets.merkle_map import ROOT
from policies.sets.redis_keys import CHALLENGES, doubts_key, set_key
from policies.sets.signed_head import Heartbeat, SetHead
from tests.control_api.policy.publishing.replica import SIGNER, Replica, beats, heads, replica
from tests.control_api.store.databases import postgresql_url
from tests.support import redis
from tests.support.open_store import TENANT
from tests.support.redis import running_redis
from tests.support.relay import relaying
from tests.support.waiting import until_async

__all__ = ["postgresql_url"]
pytestmark = redis.needs_redis
NAMES = [f"agent/agt_{number}" for number in range(40)] + [f"role/r{n}" for n in range(10)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[redis.Redis]:
    with running_redis(tmp_path / "redis") as started:
        yield started


@pytest.fixture
def client(server: redis.Redis) -> Any:
    return redis_py.Redis(port=server.port, protocol=2, socket_timeout=5)


@pytest.fixture
async def pair(postgresql_url: str, server: redis.Redis) -> AsyncIterator[tuple[Replica, Replica]]:
    async with (
        replica(postgresql_url, server.url) as one,
        replica(postgresql_url, server.url) as other,
    ):
        yield one, other


async def write(each: Replica, seed: int, times: int) -> None:
    chance = random.Random(seed)
    for turn in range(times):
        names = chance.sample(NAMES, chance.randint(1, 6))
        changed = {
            name: None if chance.random() < 0.3 else f"{seed}.{turn}.{name}".encode()
            for name in names
        }
        await each.publish(changed)
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random() / 100)


async def test_two_replicas_that_write_at_once_agree_on_the_set_and_repair_it(
    pair: tuple[Replica, Replica], client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_sets, "PIECE_FIELDS", 8)  # so that a rebuild is written in pieces
    await asyncio.gather(*(write(each, seed, 6) for seed, each in enumerate(pair)))
    await pair[0].settles(client)
    pushed = heads(client)
    assert pushed[0].since == 0
    for before, after in itertools.pairwise(pushed):
        assert after.since <= before.revision < after.revision
    # What a reader holds that follows the names alone.
    named = {name for head in pushed[1:] for name in head.names or ()}
    there = {field[2:].decode() for field in client.hkeys(set_key(TENANT)) if field[:2] == b"d/"}
    if pushed[0].names is not None:
        named.update(pushed[0].names)
        assert there <= named
    assert all(head.names is not None for head in pushed[1:])
    assert sum(each.count("failed") for each in pair) == 0
    # One that is late writes nothing over what the other has pushed since.
    (body,) = client.hmget(set_key(TENANT), [f"n/{ROOT}"])
    since = pushed[-1].revision - 1
    late = Published(since, since + 1, {"agent/agt_7": b"late"}, {ROOT: body})
    pair[0].publishing.pushes.published(TENANT, late)
    await until_async("it was late", lambda: not pair[0].publishing.pushes.pushing(TENANT))
    assert await pair[0].differs(client) is None
    # What was removed while Redis held an older set is named like what was changed.
    await pair[0].publish({"agent/agt_7": b"there", "agent/agt_8": b"there"})
    await pair[0].settles(client)
    older = client.hgetall(set_key(TENANT))
    await pair[0].publish({"agent/agt_7": None, "agent/agt_8": b"changed"})
    await pair[0].settles(client)
    client.delete(set_key(TENANT))
    client.hset(set_key(TENANT), mapping=older)
    pair[0].publishing.pushes.recheck(TENANT)
    await pair[0].settles(client)
    assert heads(client)[-1].names == ("agent/agt_7", "agent/agt_8")
    client.flushall()
    for each in pair:
        each.publishing.pushes.recheck(TENANT)
    await pair[1].publish({"agent/agt_7": b"changed meanwhile"})
    await pair[0].settles(client)
    client.hset(set_key(TENANT), mapping={"at": "epoch:3", "head": "x"})
    client.hdel(set_key(TENANT), "n/root")
    await pair[0].publish({"agent/agt_7": b"changed back"})
    await pair[0].settles(client)


@pytest.mark.deep(stands_in="test_two_replicas_that_write_at_once_agree_on_the_set_and_repair_it")
async def test_two_replicas_that_publish_at_once_leave_the_store_s_set_without_a_gap(
    pair: tuple[Replica, Replica], client: Any
) -> None:
    await asyncio.gather(*(write(each, seed, 25) for seed, each in enumerate(pair * 3)))
    await pair[0].settles(client)
    pushed = heads(client)
    assert pushed[0].since == 0
    for before, after in itertools.pairwise(pushed):
        assert after.since <= before.revision < after.revision
    assert all(head.names is not None for head in pushed[1:])
    assert sum(each.count("failed") for each in pair) == 0


@pytest.mark.deep(stands_in="test_two_replicas_that_write_at_once_agree_on_the_set_and_repair_it")
async def test_the_heads_name_every_changed_document(
    pair: tuple[Replica, Replica], client: Any
) -> None:
    """A reader that follows the names alone holds what the store holds."""
    held: dict[str, bytes | None] = {}
    last = ["0-0"]
    stop = asyncio.Event()

    def follow() -> None:
        for entry_id, entry in client.xrange(f"sluice:{{{TENANT}}}:changes", f"({last[0]}"):
            head = _opened(entry[b"h"])
            last[0] = entry_id.decode()
            if head.names is None:
                fields = client.hkeys(set_key(TENANT))
                names = [f[2:].decode() for f in fields if f[:2] == b"d/"]
            else:
                names = list(head.names)
            for name in names:
                held[name] = client.hget(set_key(TENANT), f"d/{name}")

    async def following() -> None:
        while not stop.is_set():
            await asyncio.to_thread(follow)
            await asyncio.sleep(0.002)

    follower = asyncio.create_task(following())
    await asyncio.gather(*(write(each, seed, 20) for seed, each in enumerate(pair * 2)))
    await pair[0].settles(client)
    stop.set()
    await follower
    follow()
    fields = client.hgetall(set_key(TENANT))
    there = {f[2:].decode(): body for f, body in fields.items() if f[:2] == b"d/"}
    assert {name: body for name, body in held.items() if body is not None} == there


@pytest.mark.deep(stands_in="test_two_replicas_that_write_at_once_agree_on_the_set_and_repair_it")
async def test_two_replicas_publish_through_a_redis_that_loses_fields_meanwhile(
    pair: tuple[Replica, Replica], client: Any
) -> None:
    chance = random.Random(7)

    async def lose() -> None:
        for _ in range(25):
            await asyncio.sleep(0.02)
            what = chance.randrange(5)
            if what == 0:
                client.flushall()
            elif what == 1:
                client.hdel(set_key(TENANT), "at")
            elif what == 2:
                client.hset(set_key(TENANT), "at", "epoch:3")
            elif what == 3:
                client.hset(set_key(TENANT), "head", "x")
            else:
                client.hdel(set_key(TENANT), "n/root")

    await asyncio.gather(lose(), *(write(each, seed, 25) for seed, each in enumerate(pair * 2)))
    fields = [f"d/{name}" for name in NAMES]
    for chunk in range(0, len(fields), 10):
        doubted = str(fields[chunk : chunk + 10]).replace("'", '"')
        client.xadd(doubts_key(TENANT), {"f": doubted})
        client.xadd(CHALLENGES, {"t": TENANT, "n": f"nonce-{chunk:08}", "m": "1"})
    await pair[0].settles(client)


async def test_a_step_of_many_fields_writes_and_removes_each(
    server: redis.Redis, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so do many pieces, under a lock that keeps another replica's away."""
    sets = RedisSets(RedisClient(RedisUrl.parse(server.url)))
    fields = {f"d/{number}".encode(): b"%d" % number for number in range(1700)}
    assert await sets.lock(TENANT, "one:1")
    assert not await sets.lock(TENANT, "other:1")
    assert not await sets.move(TENANT, None, fields, token="other:1")
    assert await sets.move(TENANT, None, fields, token="one:1")
    assert client.hgetall(set_key(TENANT)) == fields
    assert await sets.move(TENANT, None, dict.fromkeys(fields), token="one:1")
    assert client.hgetall(set_key(TENANT)) == {}
    await sets.unlock(TENANT, "one:1")
    monkeypatch.setattr(redis_sets, "PIECE_FIELDS", 100)
    pieces = redis_sets.Batches(sets, TENANT, None, lambda: "one:2", "")
    for field, body in fields.items():
        await pieces.add(field, body)
    assert not await sets.lock(TENANT, "other:2")
    await pieces.finish(b"epoch:1", b"sealed")
    await pieces.close()
    whole = {**fields, b"at": b"epoch:1", b"head": b"sealed"}
    assert client.hgetall(set_key(TENANT)) == whole
    assert await sets.lock(TENANT, "other:2")


@pytest.mark.deep(stands_in="test_a_step_of_many_fields_writes_and_removes_each")
async def test_a_large_set_is_rebuilt_by_both_at_once_without_harm(
    pair: tuple[Replica, Replica], client: Any
) -> None:
    many = {f"agent/agt_{n}": b'{"agent":"%d","of":"%s"}' % (n, b"x" * 300) for n in range(12_000)}
    await pair[0].publish(many)
    await pair[0].settles(client)
    for _ in range(2):
        client.flushall()
        for each in pair:
            each.publishing.pushes.recheck(TENANT)
        await pair[1].publish({"agent/agt_7": b"changed meanwhile"})
        await pair[0].settles(client)
        await pair[1].publish({"agent/agt_7": b"changed back"})
        await pair[0].settles(client)


async def test_no_heartbeat_is_older_than_what_it_answers(
    pair: tuple[Replica, Replica], client: Any
) -> None:
    """What was committed before a nonce was drawn is in every heartbeat that names the nonce,
    whichever replica committed it and whichever answers."""
    for turn in range(8):
        revision = await pair[turn % 2].publish({"role/r": b"%d" % turn})
        nonce = f"nonce-{turn:08}"
        client.xadd(CHALLENGES, {"t": TENANT, "n": nonce})

        def told(nonce: str = nonce) -> list[Heartbeat]:
            return [beat for beat in beats(client) if nonce in beat.nonces]

        await until_async("both replicas have answered", lambda told=told: len(told()) >= 2)  # type: ignore[misc]
        assert {beat.revision for beat in told()} == {revision}


async def test_without_an_answer_from_the_store_no_heartbeat_is_sent(
    postgresql_url: str, server: redis.Redis, client: Any
) -> None:
    url = make_url(postgresql_url)
    assert url.port is not None
    with relaying(url.port) as relay:
        way = url.set(port=relay.port).render_as_string(hide_password=False)
        async with replica(way, server.url) as only:
            client.xadd(CHALLENGES, {"t": TENANT, "n": "nonce-before"})
            await until_async(
                "the first challenge is answered", lambda: "nonce-before" in _nonces(client)
            )
            relay.cut()
            client.xadd(CHALLENGES, {"t": TENANT, "n": "nonce-meanwhile"})
            await until_async(
                "a challenge is unanswered", lambda: only.challenges("unanswered") == 1
            )
            assert "nonce-meanwhile" not in _nonces(client)
            relay.mend()
            client.xadd(CHALLENGES, {"t": TENANT, "n": "nonce-after"})
            await until_async(
                "the later challenge is answered", lambda: "nonce-after" in _nonces(client)
            )
            assert "nonce-meanwhile" not in _nonces(client)


def _nonces(client: Any) -> set[str]:
    return {nonce for beat in beats(client) for nonce in beat.nonces}


def _opened(sealed: bytes) -> SetHead:
    return SetHead.opened(sealed, SIGNER.public, TENANT)
