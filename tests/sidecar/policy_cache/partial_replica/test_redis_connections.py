"""The sidecar's client of Redis: no answer passes for another's, and a cluster's keys are found
where they are now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from policies.ground.redis_url import RedisUrl
from sidecar.policy_cache.partial_replica.redis_client import RedisClient
from sidecar.policy_cache.partial_replica.resp import RedisError, ReplyError
from tests import redis
from tests.ports import free_port
from tests.sidecar.running_sidecar import until

KEY, FIELD = "sluice:{acme}:set", "f"
STREAM = "sluice:{acme}:changes"
INFO = ("CLUSTER", "INFO")


@pytest.fixture
def single(tmp_path: Path) -> Iterator[Any]:
    with redis.running(tmp_path / "redis") as server:
        yield redis_py.Redis(port=server.port, protocol=2)


def port_of(root: Any) -> int:
    port: int = root.connection_pool.connection_kwargs["port"]
    return port


@redis.needs_redis
async def test_an_answer_that_comes_late_is_not_another_s(single: Any) -> None:
    client = RedisClient(RedisUrl.parse(f"redis://127.0.0.1:{port_of(single)}"))
    single.hset(KEY, FIELD, "1")
    assert await client.hget(KEY, FIELD) == b"1"
    reading = asyncio.ensure_future(client.xread({STREAM: b"0-0"}, 10, 30_000))
    while not single.info("clients")["blocked_clients"]:
        await asyncio.sleep(0.01)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    single.xadd(STREAM, {"h": "x"})
    assert await client.hget(KEY, FIELD) == b"1"
    assert await client.hmget(KEY, [b"f", b"g"]) == [b"1", None]
    await client.aclose()


@redis.needs_redis
async def test_an_error_leaves_the_connection_usable(single: Any) -> None:
    client = RedisClient(RedisUrl.parse(f"redis://127.0.0.1:{port_of(single)}/3"))
    single.set(KEY, "no hash")
    single.select(3)
    before = single.info("stats")["total_connections_received"]
    await client.xadd(STREAM, {"h": b"1"}, "~", 100)
    with pytest.raises(ReplyError, match=r"^WRONGTYPE"):
        await client.hget(STREAM, FIELD)
    assert (await client.last_id(STREAM)) is not None
    assert len(await client.xrange(STREAM, b"-", 10)) == 1
    assert single.info("stats")["total_connections_received"] == before + 1
    await client.aclose()


async def test_data_without_a_command_end_the_connection() -> None:
    """Such as the rest of an answer: it must not pass for the next one's."""
    served: list[asyncio.StreamWriter] = []
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        while line := await reader.readline():
            if line.strip() == b"SETNAME":
                writer.write(b"+OK\r\n")
            elif line.strip() == b"HGET":
                writer.write(b"$1\r\n%d\r\n" % len(served))
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = RedisClient(RedisUrl.parse(f"redis://127.0.0.1:{port}"))
    assert await client.hget(KEY, FIELD) == b"1"
    served[0].write(b"$1\r\n9\r\n")
    async with asyncio.timeout(30):
        await ended.wait()
    assert await client.hget(KEY, FIELD) == b"2"
    await client.aclose()
    server.close()


async def test_a_server_that_is_not_there_is_an_error() -> None:
    client = RedisClient(RedisUrl.parse(f"redis://127.0.0.1:{free_port()}"))
    with pytest.raises(OSError, match=r"refused|111"):
        await client.hget(KEY, FIELD)


@redis.needs_redis
async def test_a_key_is_found_where_the_cluster_has_moved_it(tmp_path: Path) -> None:
    with redis.cluster(tmp_path) as nodes:
        roots: list[Any] = [redis_py.Redis(port=node.port, protocol=2) for node in nodes]
        ids = [root.execute_command("CLUSTER", "MYID").decode() for root in roots]
        slot = roots[0].execute_command("CLUSTER", "KEYSLOT", KEY)
        first = 0 if slot < 8192 else 1
        holder, other = roots[first], roots[1 - first]
        gone = f"127.0.0.1:{free_port()}"
        hosts = ",".join([gone, *(f"127.0.0.1:{node.port}" for node in nodes)])
        client = RedisClient(RedisUrl.parse(f"redis+cluster://{hosts}"))
        await until("the cluster is up", lambda: b"state:ok" in nodes[first].command(*INFO))
        holder.hset(KEY, FIELD, "1")
        with pytest.raises(OSError, match=r"refused|111"):
            await client.hget(KEY, FIELD)  # the next call asks another one
        assert await client.hget(KEY, FIELD) == b"1"
        # While the slot moves, the other has what the holder no longer has (ASK).
        other.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[first])
        holder.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1 - first])
        holder.delete(KEY)
        assert await client.hget(KEY, FIELD) is None
        await client.xadd(STREAM, {"h": "1"}, "~", 100)
        assert len(await client.xrange(STREAM, b"-", 10)) == 1
        # Then for good (MOVED).
        for root in (other, holder):
            root.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1 - first])
        other.hset(KEY, FIELD, "2")
        assert await client.hget(KEY, FIELD) == b"2"
        assert await client.hget(KEY, FIELD) == b"2"
        await client.aclose()


async def test_servers_that_name_each_other_are_an_error() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if line.strip() == b"SETNAME":
                writer.write(b"+OK\r\n")
            elif line.strip() == b"HGET":
                writer.write(b"-MOVED 1 :%d\r\n" % port)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = RedisClient(RedisUrl.parse(f"redis+cluster://127.0.0.1:{port}"))
    with pytest.raises(RedisError, match="name each other"):
        await client.hget(KEY, FIELD)
    await client.aclose()
    server.close()
