"""How Redis may be reached: as users who may do no more than they need, by TLS, as a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
from redis.crc import key_slot

from control_api.policy.publishing.redis_client import RedisClient
from control_api.policy.publishing.redis_sets import RedisSets
from policies.ground.addresses import RedisUrl
from policies.sets.redis_keys import beats_key, doubts_key, set_key
from tests.control_api.policy.publishing.reader import Reader
from tests.control_api.policy.publishing.test_faults import metric
from tests.control_api.policy.publishing.test_sessions import claim, state
from tests.support import redis
from tests.support.certificates import authority
from tests.support.control_api import running_control_api
from tests.support.redis import SLOTS, running_redis
from tests.support.redis_users import CONTROL, SECRET, SIDECAR, make_user, refusals
from tests.support.relay import relaying
from tests.support.waiting import until

pytestmark = redis.needs_redis


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    with running_redis(tmp_path_factory.mktemp("redis")) as started:
        yield started


def test_the_readme_s_user_has_every_right_that_the_service_needs(
    tmp_path: Path, server: redis.Redis
) -> None:
    root: Any = redis_py.Redis(port=server.port)
    make_user(root, CONTROL)
    url = f"redis://{CONTROL}:{SECRET}@127.0.0.1:{server.port}/0"
    with running_control_api(tmp_path, SLUICE_REDIS_URL=url) as api:
        reader = Reader(api, server)
        api.approved("agt_1")
        reader.follows()
        claim(api, "s-1")
        until("the session is active", lambda: state(reader, "s-1") == "active")
        # Everything that it ever heals.
        root.flushall()
        root.lpush("sluice:challenges", "x")
        root.set("sluice:{default}:beats", "x")
        root.set("sluice:{default}:changes", "x")
        root.set("sluice:{default}:set", "x")
        until(
            "the challenges are a stream again", lambda: root.type("sluice:challenges") != b"list"
        )
        reader.ask()
        until(
            "the heartbeats are a stream again",
            lambda: root.type("sluice:{default}:beats") != b"string",
        )
        reader.answered(reader.ask())
        reader.follows()
        root.hdel(set_key("default"), "d/tenant")
        reader.answered(reader.ask("d/tenant"))
        reader.follows()
        assert metric(api, 'sluice_redis_pushes_total{outcome="rebuilt"}') >= 1
    asyncio.run(a_rebuild(url, "rebuilt"))
    # On a cluster, a script finds all of a tenant's keys on one of its nodes.
    keys = [
        *root.keys("sluice:*rebuilt*"),
        *(each("rebuilt").encode() for each in (beats_key, doubts_key)),
    ]
    assert len(keys) == 5
    assert len({key_slot(each) for each in keys}) == 1
    assert refusals(root, CONTROL) == []


async def a_rebuild(url: str, tenant_id: str) -> None:
    client = RedisClient(RedisUrl.parse(url))
    sets = RedisSets(client)
    assert await sets.lock(tenant_id, "one:1")
    assert await sets.move(tenant_id, None, {}, at=b"e:1", head=b"h", token="one:1")
    await client.close()


@pytest.mark.parametrize("name", [CONTROL, SIDECAR])
def test_neither_user_may_run_dangerous_commands(server: redis.Redis, name: str) -> None:
    root: Any = redis_py.Redis(port=server.port)
    make_user(root, name)
    user: Any = redis_py.Redis(port=server.port, username=name, password=SECRET)
    for command in (
        "KEYS *", "FLUSHALL", "FLUSHDB", "CONFIG GET *", "SCRIPT FLUSH", "DEBUG SLEEP 0",
        "SHUTDOWN", "ACL LIST", "MONITOR", "SAVE", "REPLICAOF NO ONE", "CLIENT KILL ID 1",
        "SCAN 0", "MIGRATE h 1 k 0 1", "SWAPDB 0 1", "RENAME a b", "GET other",
    ):  # fmt: skip
        with pytest.raises(redis_py.exceptions.NoPermissionError):
            user.execute_command(*command.split())


def test_a_sidecar_s_user_can_only_read_its_own_tenant_and_send_requests(
    server: redis.Redis,
) -> None:
    root: Any = redis_py.Redis(port=server.port)
    make_user(root, SIDECAR)
    user: Any = redis_py.Redis(port=server.port, username=SIDECAR, password=SECRET, protocol=2)
    own, other = set_key("acme"), set_key("other")
    assert user.hmget(own, "at", "head") == [None, None]
    assert user.xread({"sluice:{acme}:changes": "$", "sluice:{acme}:beats": "$"}) == []
    assert user.xrevrange("sluice:{acme}:changes", count=1) == []
    assert user.xadd("sluice:challenges", {"t": "acme", "n": "nonce-00000001"}, maxlen=10_000)
    assert user.xadd("sluice:{acme}:doubts", {"f": "[]"}, maxlen=16, approximate=False)
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: user.hget(other, "at"),
        lambda: user.hset(own, "at", "x"),
        lambda: user.delete(own),
        lambda: user.eval("return 1", 0),
        lambda: user.xread({"sluice:{other}:changes": "$"}),
        lambda: user.xread({"sluice:{other}:doubts": "0"}),
    )
    for attempt in attempts:
        with pytest.raises(redis_py.exceptions.NoPermissionError):
            attempt()


def test_a_wrong_password_is_logged_without_the_password(
    tmp_path: Path, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"redis://nobody:hunter2@127.0.0.1:{server.port}"
    with running_control_api(tmp_path, SLUICE_REDIS_URL=url) as api:
        api.approved("agt_1")
        until("a tenant is behind", lambda: metric(api, "sluice_redis_tenants_behind") == 1)
        assert "hunter2" not in api.call("GET", "/metrics").raw.decode()
    assert any("can't be pushed to Redis" in r.getMessage() for r in caplog.records)
    assert "hunter2" not in caplog.text


@pytest.mark.deep(stands_in="test_only_a_server_whose_certificate_is_trusted_gets_data")
def test_tls_uses_the_configured_authority(tmp_path: Path, server: redis.Redis) -> None:
    context, shown = authority().server("127.0.0.1"), authority().path
    with relaying(server.port, context) as relay:
        url = f"rediss://127.0.0.1:{relay.port}/0?ssl_ca_certs={shown}"
        with running_control_api(tmp_path, SLUICE_REDIS_URL=url) as api:
            Reader(api, server).follows()
            assert relay.accepted > 0


def test_only_a_server_whose_certificate_is_trusted_gets_data(
    tmp_path: Path, server: redis.Redis
) -> None:
    redis_py.Redis(port=server.port).flushall()
    context, shown = authority().server("127.0.0.1"), authority().path
    with (
        relaying(server.port, context) as relay,
        running_control_api(tmp_path, SLUICE_REDIS_URL=f"rediss://127.0.0.1:{relay.port}/0") as api,
    ):
        api.approved("agt_1")
        until("a tenant is behind", lambda: metric(api, "sluice_redis_tenants_behind") == 1)
        assert relay.accepted > 0
        assert redis_py.Redis(port=server.port).dbsize() == 0
        url = f"rediss://127.0.0.1:{relay.port}/0?ssl_ca_certs={shown}"
        with running_control_api(tmp_path / "trusting", SLUICE_REDIS_URL=url) as trusting:
            Reader(trusting, server).follows()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[redis.Redis]]:
    with redis.cluster(tmp_path) as nodes:
        yield nodes


async def test_on_a_cluster_each_set_is_written_where_its_slot_is(
    cluster: list[redis.Redis],
) -> None:
    until(
        "the nodes serve",
        lambda: all(b"cluster_state:ok" in node.command("CLUSTER", "INFO") for node in cluster),
    )
    client = RedisClient(RedisUrl.parse(f"redis+cluster://127.0.0.1:{cluster[1].port}"))
    names = [f"tenant-{number}" for number in range(8)]
    for name in names:
        assert await RedisSets(client).lock(name, "one:1")
        assert await RedisSets(client).move(name, None, {b"d/a": b"b"}, token="one:1")
        assert await RedisSets(client).fields(name, [b"d/a"]) == [b"b"]
    await client.close()
    for number, node in enumerate(cluster):
        asked: Any = redis_py.Redis(port=node.port, protocol=2)
        held = set(asked.keys("*:set"))
        asked.close()
        keys = (set_key(name).encode() for name in names)
        assert held == {key for key in keys if key_slot(key) * len(cluster) // SLOTS == number}
        assert held


@pytest.mark.deep(stands_in="test_the_readme_s_user_has_every_right_that_the_service_needs")
def test_on_a_cluster_each_tenant_is_stored_on_the_node_of_its_slot(
    tmp_path: Path, cluster: list[redis.Redis]
) -> None:
    url = f"redis+cluster://127.0.0.1:{cluster[1].port},127.0.0.1:{cluster[0].port}"
    with running_control_api(tmp_path, SLUICE_REDIS_URL=url) as api:
        whole: Any = redis_py.RedisCluster(host="127.0.0.1", port=cluster[0].port, protocol=2)
        made = [api.admin("POST", "/v1/admin/tenants", {"name": f"t{n}"}) for n in range(8)]
        ids = [each["tenant_id"] for each in made]
        until(
            "every tenant has a set",
            lambda: all(whole.hexists(set_key(tenant), "head") for tenant in ids),
        )
        sizes = [redis_py.Redis(port=node.port).dbsize() for node in cluster]
        assert all(sizes), sizes
        reader = Reader(api, cluster[0])
        reader.redis = whole
        reader.follows()
        reader.answered(reader.ask())
        claim(api, "s-1")
        claim(api, "s-2")
        until(
            "both sessions are active",
            lambda: state(reader, "s-1") == state(reader, "s-2") == "active",
        )
        whole.delete(set_key("default"))
        reader.answered(reader.ask())
        reader.follows()
