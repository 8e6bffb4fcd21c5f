"""A Redis that is down, hangs or answers nonsense delays no request, and is current soon after."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from pathlib import Path
from typing import Any, cast

import pytest

from control_api.policy.publishing import redis_client
from control_api.policy.publishing.heartbeats import Heartbeats
from control_api.policy.publishing.redis_client import RedisClient, RedisFault
from control_api.policy.publishing.redis_sets import RedisSets
from policies.ground.addresses import RedisUrl
from tests.control_api.policy.publishing.reader import Reader
from tests.control_api.policy.publishing.test_sessions import claim, state
from tests.support import redis
from tests.support.control_api import ControlApi, running_control_api
from tests.support.redis import running_redis
from tests.support.relay import Relay, relaying
from tests.support.waiting import until

pytestmark = redis.needs_redis


def metric(api: ControlApi, name: str) -> float:
    for line in api.call("GET", "/metrics").raw.decode().splitlines():
        if line.startswith(f"{name} "):
            return float(line.rpartition(" ")[2])
    raise AssertionError(name)


def pushes_fail(api: ControlApi, more: int = 3) -> None:
    """Return once so many more pushes have failed."""
    enough = failed(api) + more
    until("pushes fail", lambda: failed(api) >= enough)


def failed(api: ControlApi) -> int:
    """How many pushes have failed: there is no such line before the first."""
    line = re.search(rb'pushes_total{outcome="failed"} ([0-9]+)', api.call("GET", "/metrics").raw)
    return 0 if line is None else int(line[1])


def writes_succeed(api: ControlApi) -> None:
    for number in range(5):
        api.approved(f"agt_{number}")


def test_the_service_starts_without_redis_and_fills_it_once_it_is_reachable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_redis(tmp_path / "redis") as server:
        server.stop()
        with running_control_api(tmp_path, SLUICE_REDIS_URL=server.url) as api:
            api.approved("agt_1")
            claim(api, "s-1")
            api.admin("DELETE", "/v1/sessions/s-1")
            claim(api, "s-2")
            until("a tenant is behind", lambda: metric(api, "sluice_redis_tenants_behind") == 1)
            until("the delay is shown", lambda: metric(api, "sluice_redis_behind_seconds") > 0)
            pushes_fail(api, 2)
            server.start()
            reader = Reader(api, server)
            reader.follows()
            until(
                "both sessions have their states",
                lambda: [state(reader, f"s-{n}") for n in (1, 2)] == ["revoked", "active"],
            )
            until("no tenant is behind", lambda: metric(api, "sluice_redis_tenants_behind") == 0)
            until("no delay is shown", lambda: metric(api, "sluice_redis_behind_seconds") == 0)
            assert len(said(caplog)) == 2, said(caplog)
            assert "recovered" in said(caplog)[1]


@pytest.mark.deep(
    stands_in="test_the_service_starts_without_redis_and_fills_it_once_it_is_reachable"
)
def test_an_outage_logs_one_line_when_it_begins_and_one_when_it_ends(
    publishing: ControlApi, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    reader.follows()
    reader.server.stop()
    for number in range(5):
        publishing.approved(f"agt_{number}")
    until("it is logged", lambda: said(caplog))
    pushes_fail(publishing)
    reader.server.start()
    reader.follows()
    reader.answered(reader.ask())
    until("it says that Redis is back", lambda: "recovered" in said(caplog)[-1])
    assert len(said(caplog)) == 2, said(caplog)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "pushed to Redis" in r.getMessage()]


@pytest.mark.deep(stands_in="test_a_redis_that_hangs_delays_no_write_and_an_older_dump_is_updated")
def test_a_redis_that_was_killed_and_restarts_empty_is_filled(
    publishing: ControlApi, reader: Reader
) -> None:
    reader.follows()
    reader.server.signal(signal.SIGKILL)
    publishing.approved("agt_1")
    reader.server.start()
    reader.follows()
    reader.answered(reader.ask())


@pytest.mark.deep(stands_in="test_a_redis_that_hangs_delays_no_write_and_an_older_dump_is_updated")
def test_a_redis_that_hangs_delays_no_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than a client waits: a write that waits for Redis fails.
    monkeypatch.setattr(redis_client, "ANSWER", 600.0)
    with (
        running_redis(tmp_path / "redis") as server,
        running_control_api(tmp_path, SLUICE_REDIS_URL=server.url) as api,
    ):
        reader = Reader(api, server)
        reader.follows()
        server.signal(signal.SIGSTOP)
        try:
            writes_succeed(api)
        finally:
            server.signal(signal.SIGCONT)
        reader.follows()
        reader.answered(reader.ask())


def test_a_redis_that_hangs_is_given_up_and_connected_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hanging connection, and then nonsense in place of answers."""
    monkeypatch.setattr(redis_client, "ANSWER", 0.5)
    with (
        running_redis(tmp_path / "redis") as server,
        relaying(server.port) as relay,
        running_control_api(tmp_path, SLUICE_REDIS_URL=f"redis://127.0.0.1:{relay.port}") as api,
    ):
        reader = Reader(api, server)
        reader.follows()
        server.signal(signal.SIGSTOP)
        try:
            api.new_key()
            pushes_fail(api, 1)
        finally:
            server.signal(signal.SIGCONT)
        reader.follows()
        relay.rubbish = RUBBISH[0]
        api.new_key()
        pushes_fail(api, 1)
        asyncio.run(nonsense_is_a_fault(relay))
        relay.rubbish = None
        reader.follows()
        reader.answered(reader.ask())


def test_a_redis_that_hangs_delays_no_write_and_an_older_dump_is_updated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than a client waits: a write that waits for Redis fails.
    monkeypatch.setattr(redis_client, "ANSWER", 600.0)
    with (
        running_redis(tmp_path / "redis") as server,
        running_control_api(tmp_path, SLUICE_REDIS_URL=server.url) as api,
    ):
        reader = Reader(api, server)
        api.approved("agt_1")
        reader.follows()
        reader.redis.save()
        server.signal(signal.SIGSTOP)
        try:
            api.approved("agt_2")
        finally:
            server.signal(signal.SIGCONT)
        reader.follows()
        server.signal(signal.SIGKILL)
        server.start()
        reader.answered(reader.ask())
        reader.follows()
        assert "agent/agt_2" in (reader.changes()[-1].names or ())
        # And when there is no dump.
        server.signal(signal.SIGKILL)
        api.approved("agt_3")
        (tmp_path / "redis" / "dump.rdb").unlink()
        server.start()
        reader.follows()


async def test_a_client_reconnects_when_its_server_becomes_a_replica(tmp_path: Path) -> None:
    with (
        running_redis(tmp_path / "one") as one,
        running_redis(tmp_path / "two") as two,
        relaying(one.port) as relay,
    ):
        client = RedisClient(RedisUrl.parse(f"redis://127.0.0.1:{relay.port}"))
        await client.call("SET", "a", "b")
        relay.target = two.port
        one.command("REPLICAOF", "127.0.0.1", "1")
        with contextlib.suppress(RedisFault):
            await client.call("SET", "a", "b")
        await client.call("SET", "a", "c")
        await client.close()
        assert two.command("GET", "a") == b"$1\r\nc\r\n"


@pytest.mark.deep(stands_in="test_a_client_reconnects_when_its_server_becomes_a_replica")
def test_a_redis_that_became_a_replica_is_left_for_its_primary(tmp_path: Path) -> None:
    """As behind a name that leads to another server after a failover."""
    with (
        running_redis(tmp_path / "one") as one,
        running_redis(tmp_path / "two") as two,
        relaying(one.port) as relay,
        running_control_api(tmp_path, SLUICE_REDIS_URL=f"redis://127.0.0.1:{relay.port}") as api,
    ):
        Reader(api, one).follows()
        relay.target = two.port
        # It follows nobody: who goes on reading there hears of nothing.
        one.command("REPLICAOF", "127.0.0.1", "1")
        reader = Reader(api, two)
        api.approved("agt_1")
        reader.follows()
        reader.answered(reader.ask())


def test_a_full_redis_is_logged_and_filled_when_there_is_room(
    publishing: ControlApi, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    reader.follows()
    reader.redis.config_set("maxmemory", 1)
    publishing.approved("agt_1")
    until("a tenant is behind", lambda: metric(publishing, "sluice_redis_tenants_behind") == 1)
    reader.redis.config_set("maxmemory", 0)
    nonce = reader.ask()
    reader.answered(nonce)
    reader.follows()
    assert any("maxmemory" in each.getMessage() for each in caplog.records)


RUBBISH = (
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"$-5\r\n",
    b"*3\r\n:1\r\n",
    b":1\r\n",
    b"+OK\r\n",
    b"$99999999999\r\n",
    b"*1\r\n*1\r\n*1\r\n$1\r\nx\r\n",
    b"\xff" * 4096,
    b"-WRONGTYPE " + b"x" * 1000 + b"\r\n",
    b"-NOSCRIPT x\r\n",
    b"*-1\r\n",
)


async def nonsense_is_a_fault(relay: Relay) -> None:
    client = RedisClient(RedisUrl.parse(f"redis://127.0.0.1:{relay.port}"))
    sets, unused = RedisSets(client), cast("Any", None)
    beats = Heartbeats(client, unused, unused, unused, unused, lambda: time.time_ns() // 1000)
    for rubbish in RUBBISH:
        relay.rubbish = rubbish
        with pytest.raises(RedisFault):
            await sets.move("t", None, {b"d/a": b"b"})
        # An empty stream is no nonsense here. Any other error would end the service.
        with contextlib.suppress(RedisFault):
            await beats.once()
    await client.close()


@pytest.mark.deep(stands_in="test_a_redis_that_hangs_is_given_up_and_connected_anew")
@pytest.mark.parametrize("rubbish", RUBBISH)
def test_a_redis_that_answers_nonsense_counts_as_down(tmp_path: Path, rubbish: bytes) -> None:
    with (
        running_redis(tmp_path / "redis") as server,
        relaying(server.port) as relay,
        running_control_api(tmp_path, SLUICE_REDIS_URL=f"redis://127.0.0.1:{relay.port}") as api,
    ):
        reader = Reader(api, server)
        reader.follows()
        relay.rubbish = rubbish
        writes_succeed(api)
        pushes_fail(api, 1)
        relay.rubbish = None
        reader.follows()
        reader.answered(reader.ask())


def test_a_service_that_stops_while_redis_hangs_stops_in_time(tmp_path: Path) -> None:
    with running_redis(tmp_path / "redis") as server:
        api = ControlApi(tmp_path, SLUICE_REDIS_URL=server.url).start()
        Reader(api, server).follows()
        server.signal(signal.SIGSTOP)
        api.approved("agt_1")
        api.stop()  # fails where that takes more than 30 s
