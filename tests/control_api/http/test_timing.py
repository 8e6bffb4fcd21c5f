"""Another tenant's object takes as long to refuse as one that is not there.

Requests for either go turn about over one connection, so that whatever slows the machine slows
both; what counts is the median of the differences, pair by pair. A difference must show in several
rounds to be one: noise does not come back, a database round trip does, and the last test proves it.
"""

from __future__ import annotations

import http.client
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest

from control_api.http.route import Route
from control_api.http.routes import ROUTES
from control_api.store import agents
from tests.control_api.centre import Centre, running
from tests.control_api.http.test_walk import OWNED, ids, object_for
from tests.control_api.http.world import Tenant, absent_like, body_of, path_of

PAIRS = 40
ROUNDS = 4
SHARE = 0.12
"""Of the median request; one query more makes it longer by a third and over."""


@pytest.fixture(scope="module")
def centre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Centre]:
    with running(tmp_path_factory.mktemp("timing")) as started:
        yield started


@pytest.fixture(scope="module")
def ours(centre: Centre) -> Tenant:
    return Tenant.made(centre, "ours")


@pytest.fixture(scope="module")
def theirs(centre: Centre) -> Tenant:
    return Tenant.made(centre, "theirs")


def told_apart(tenant: Tenant, route: Route, foreign: str, absent: str) -> bool:
    """Whether every round shows the same side to be slower."""
    first = _slower(tenant, route, foreign, absent)
    return first != 0 and all(
        _slower(tenant, route, foreign, absent) == first for _ in range(ROUNDS - 1)
    )


def _slower(tenant: Tenant, route: Route, foreign: str, absent: str) -> int:
    """1 where the first is slower, -1 where the second is, 0 where that can't be told."""
    connection = http.client.HTTPConnection("127.0.0.1", tenant.centre.port, timeout=30)
    try:
        pairs = [_pair(connection, tenant, route, foreign, absent, n) for n in range(PAIRS)][5:]
    finally:
        connection.close()
    difference = statistics.median(one - other for one, other in pairs)
    usual = statistics.median(other for _, other in pairs)
    if abs(difference) < SHARE * usual:
        return 0
    return 1 if difference > 0 else -1


def _pair(
    connection: http.client.HTTPConnection,
    tenant: Tenant,
    route: Route,
    foreign: str,
    absent: str,
    number: int,
) -> tuple[float, float]:
    """Every other time the second goes first."""
    if number % 2:
        other = _seconds(connection, tenant, route, absent)
        return _seconds(connection, tenant, route, foreign), other
    one = _seconds(connection, tenant, route, foreign)
    return one, _seconds(connection, tenant, route, absent)


def _seconds(
    connection: http.client.HTTPConnection, tenant: Tenant, route: Route, object_id: str
) -> float:
    body = body_of(route, object_id)
    sent = None if body is None else json.dumps(body)
    headers = {"X-API-Key": tenant.keys["admin"], "Content-Type": "application/json"}
    started = time.perf_counter()
    connection.request(route.method, path_of(route, object_id), sent, headers)
    answer = connection.getresponse()
    answer.read()
    taken = time.perf_counter() - started
    assert answer.status == 404
    return taken


@pytest.mark.parametrize("route", OWNED, ids=ids)
def test_time_does_not_tell_another_tenant_s_object_from_an_absent_one(
    ours: Tenant, theirs: Tenant, route: Route
) -> None:
    foreign = object_for(route, theirs)
    assert not told_apart(ours, route, foreign, absent_like(foreign))


def test_one_database_round_trip_more_would_be_seen(
    ours: Tenant, theirs: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = next(each for each in ROUTES if each.name == "get_agent")
    foreign = object_for(route, theirs)
    get = agents.get

    async def leaky(connection: Any, tenant_id: str, agent_id: str) -> Any:
        found = await get(connection, tenant_id, agent_id)
        if found is None and agent_id == foreign:
            await get(connection, theirs.tenant_id, agent_id)
        return found

    monkeypatch.setattr(agents, "get", leaky)
    # On a busy machine one look may be blurred; what is there is seen the next time.
    absent = absent_like(foreign)
    assert any(told_apart(ours, route, foreign, absent) for _ in range(6))
