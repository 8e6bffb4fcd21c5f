"""Claims and revocations reach Redis after their commit; a revocation is never undone there."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py
from prometheus_client import CollectorRegistry

from control_api.metrics.metrics import Instruments
from control_api.policy.publishing.redis_client import RedisClient
from control_api.policy.publishing.redis_sets import SetSigner
from control_api.policy.publishing.session_claims import SessionClaims
from control_api.store.queries.session_rows import SessionRow
from policies.ground.addresses import RedisUrl
from policies.ground.signing import KeyRing
from policies.sets.redis_keys import session_key
from policies.sets.signed_head import Claim
from tests.control_api.policy.publishing.reader import Reader
from tests.control_api.policy.publishing.replica import SIGNER
from tests.support.control_api import ControlApi
from tests.support.redis import needs_redis, running_redis
from tests.support.waiting import until, until_async

pytestmark = needs_redis


def claim(api: ControlApi, session_id: str, **changed: Any) -> Any:
    body = {"session_id": session_id, "agent_role": "support", "user_id": "u-1", **changed}
    return api.admin("POST", "/v1/sidecars/sessions/claim", body)


def held(reader: Reader, session_id: str) -> Claim | None:
    sealed = reader.redis.hget(session_key("default", session_id), "c")
    return None if sealed is None else Claim.opened(sealed, reader.public, "default")


def state(reader: Reader, session_id: str) -> str | None:
    found = held(reader, session_id)
    return None if found is None else found.state


def test_a_claim_is_signed_and_expires_a_day_after_the_session(shared_reader: Reader) -> None:
    reader, publishing = shared_reader, shared_reader.api
    claim(publishing, "s-1", agent_id="agt_1")
    until("the session is in Redis", lambda: held(reader, "s-1"))
    found = held(reader, "s-1")
    assert found is not None
    assert (found.agent_role, found.agent_id, found.state) == ("support", "agt_1", "active")
    left = reader.redis.ttl(session_key("default", "s-1"))
    assert abs(left - (1440 * 60 + 86_400)) < 60


def test_every_later_claim_sees_the_first_owner(shared_reader: Reader) -> None:
    reader, publishing = shared_reader, shared_reader.api
    claim(publishing, "owned-1", agent_id="agt_1")
    claim(publishing, "owned-1", agent_id="agt_2")
    claim(publishing, "owned-2")  # sessions are written in their order
    until("the second session is held", lambda: held(reader, "owned-2"))
    found = held(reader, "owned-1")
    assert found is not None
    assert found.agent_id == "agt_1"


def test_a_revocation_is_never_undone(shared_reader: Reader) -> None:
    reader, publishing = shared_reader, shared_reader.api
    claim(publishing, "ended-1")
    until("the session is active", lambda: state(reader, "ended-1") == "active")
    before = reader.redis.dump(session_key("default", "ended-1"))
    publishing.admin("DELETE", "/v1/sessions/ended-1")
    until("the session is revoked", lambda: state(reader, "ended-1") == "revoked")
    claim(publishing, "ended-1")
    # One that is late says what it said before: wherever it came from, it is sent again.
    reader.redis.restore(session_key("default", "ended-1"), 0, before, replace=True)
    publishing.admin("DELETE", "/v1/sessions/ended-1")
    until("the session is revoked", lambda: state(reader, "ended-1") == "revoked")


def test_concurrent_claims_all_arrive(shared_reader: Reader) -> None:
    names = [f"together-{number}" for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: claim(shared_reader.api, name), names))
    until(
        "all sessions are active",
        lambda: all(state(shared_reader, name) == "active" for name in names),
    )


@pytest.mark.deep(stands_in="test_concurrent_claims_all_arrive")
def test_many_claims_at_once_all_arrive(publishing: ControlApi, reader: Reader) -> None:
    names = [f"s-{number}" for number in range(200)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: claim(publishing, name), names))
    until("all sessions are active", lambda: all(state(reader, name) == "active" for name in names))


def test_a_key_of_another_type_in_its_place_is_replaced(shared_reader: Reader) -> None:
    reader, publishing = shared_reader, shared_reader.api
    reader.redis.set(session_key("default", "typed-1"), "x")
    reader.redis.hset(session_key("default", "typed-2"), mapping={"rank": "9", "c": "forged"})
    claim(publishing, "typed-1")
    claim(publishing, "typed-2")
    until(
        "the session is a hash again",
        lambda: reader.redis.type(session_key("default", "typed-1")) == b"hash",
    )
    until(
        "both sessions are active",
        lambda: state(reader, "typed-1") == state(reader, "typed-2") == "active",
    )


async def test_sessions_wait_for_redis_in_their_order(tmp_path: Path) -> None:
    metrics = Instruments(CollectorRegistry()).redis
    row = SessionRow("s-1", "support", None, "u-1", 0, 2**52)
    key = session_key("default", "s-1")
    with running_redis(tmp_path / "redis") as server:
        server.stop()
        client = RedisClient(RedisUrl.parse(server.url))
        async with asyncio.TaskGroup() as group:
            claims = SessionClaims(group, client, SetSigner(KeyRing(SIGNER), "e"), metrics)
            claims.send("default", row, "active")
            claims.send("default", row._replace(session_id="s-2"), "active")
            await until_async("it has failed", lambda: not claims.busy)
            claims.send("default", row, "revoked")
            server.start()
            retrying = group.create_task(claims.run())
            redis: Any = redis_py.Redis(port=server.port)
            await until_async("both are there", lambda: len(redis.keys()) == 2)
            await until_async("the last counts", lambda: redis.hget(key, "rank") == b"2")
            claims.close()
            await retrying
        await client.close()


@pytest.mark.deep(
    stands_in="tests/control_api/policy/publishing/test_faults.py::test_the_service_starts_without_redis_and_fills_it_once_it_is_reachable"
)
def test_sessions_that_redis_missed_are_written_when_it_is_reachable_again(
    shared_reader: Reader,
) -> None:
    reader, publishing = shared_reader, shared_reader.api
    reader.follows()
    reader.server.stop()
    claim(publishing, "missed-1")
    publishing.admin("DELETE", "/v1/sessions/missed-1")
    claim(publishing, "missed-2")
    time.sleep(0.3)
    reader.server.start()
    until(
        "both sessions have their states",
        lambda: state(reader, "missed-1") == "revoked" and state(reader, "missed-2") == "active",
    )
    reader.answered(reader.ask())  # the set is there again
