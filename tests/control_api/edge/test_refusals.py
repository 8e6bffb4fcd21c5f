"""Refusing another tenant's object takes the same work as refusing one that is not there: the same
database statements in the same order. A difference in time would tell which of the two it is.

Statements are counted and not seconds, which a busy machine would blur; `tests/benchmarks/refusals`
measures the seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, event

from control_api.edge.route import Route
from control_api.registry import queries
from control_api.routes import ROUTES
from tests.control_api.edge.test_walk import OWNED, ids, object_for
from tests.control_api.edge.world import Tenant, absent_like, body_of, path_of
from tests.runner import tiers
from tests.support.control_api import ControlApi, running_control_api

LOOKS = 5
"""The service's background loops send statements, too: the least of several counts is used."""


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    with running_control_api(tmp_path_factory.mktemp("refusals")) as started:
        yield started


def sent_for(tenant: Tenant, route: Route, object_id: str) -> list[str]:
    """The statements that a refusal takes."""
    return min((_sent_once(tenant, route, object_id) for _ in range(LOOKS)), key=len)


def _sent_once(tenant: Tenant, route: Route, object_id: str) -> list[str]:
    sent: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        body, path = body_of(route, object_id), path_of(route, object_id)
        answer = tenant.api.call(route.method, path, body, key=tenant.keys["admin"])
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert answer.status == 404
    return sent


@tiers.rotating(0, 3)
@pytest.mark.parametrize("route", OWNED, ids=ids)
def test_a_foreign_object_takes_the_same_statements_as_an_absent_one(
    ours: Tenant, theirs: Tenant, route: Route
) -> None:
    foreign = object_for(route, theirs)
    names = absent_like(foreign), foreign
    absent, sent = (sent_for(ours, route, each) for each in names)
    assert absent
    for _ in range(LOOKS):
        if sent == absent:
            break
        # A background loop was at work all the time, or there is a difference.
        absent, sent = (sent_for(ours, route, each) for each in names)
    assert sent == absent


def test_one_more_database_round_trip_is_noticed(
    ours: Tenant, theirs: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = next(each for each in ROUTES if each.name == "get_agent")
    foreign = object_for(route, theirs)
    get = queries.get

    async def leaky(connection: Any, tenant_id: str, agent_id: str) -> Any:
        found = await get(connection, tenant_id, agent_id)
        if found is None and agent_id == foreign:
            await get(connection, theirs.tenant_id, agent_id)
        return found

    monkeypatch.setattr(queries, "get", leaky)
    absent = sent_for(ours, route, absent_like(foreign))
    assert sent_for(ours, route, foreign) != absent
