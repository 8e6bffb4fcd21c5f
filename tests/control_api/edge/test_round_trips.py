"""What a GET returned can be put back as it came, for every route that takes a PUT.

The routes come from the table, and the objects from `tests.control_api.edge.world`: a new resource
is tried without a line here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema_rs import Draft202012Validator

from control_api.edge.openapi import describe
from control_api.edge.route import Route
from control_api.routes import ROUTES
from policies import __version__
from tests.control_api.edge.world import MAKERS, Tenant, object_kind, path_of
from tests.support.control_api import Answer, ControlApi, running_control_api

PUTS = [route for route in ROUTES if route.method == "PUT"]
GETS = {route.path for route in ROUTES if route.method == "GET"}
BESIDE: dict[str, dict[str, Any]] = {
    # It has up to thousands of policies: a GET shows what they decide otherwise.
    "publish_candidate": {"policies": []}
}
"""Members that a PUT requires and the GET does not show."""


@pytest.fixture(scope="module")
def tenant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenant]:
    with running_control_api(tmp_path_factory.mktemp("round_trips")) as api:
        yield Tenant.made(api, "round trips")


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(describe(ROUTES, __version__))
    return document


def by_name(route: Route) -> str:
    return route.name


def made(tenant: Tenant, route: Route) -> str:
    kind = object_kind(route)
    return MAKERS[kind](tenant) if kind else ""


def admin(tenant: Tenant, method: str, path: str, body: Any = None, **more: Any) -> Answer:
    api: ControlApi = tenant.api
    return api.call(method, path, body, key=tenant.keys["admin"], **more)


def got(tenant: Tenant, route: Route, object_id: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The object and its ETag, by a GET of its own or from the list that holds it."""
    if route.path in GETS:
        answer = admin(tenant, "GET", path_of(route, quote(object_id)))
        assert answer.status == 200, answer.raw
        tag = answer.headers.get("ETag")
        return answer.body, {} if tag is None else {"If-Match": tag}
    listed = admin(tenant, "GET", route.path.rpartition("/")[0]).body
    (named,) = route.parameters
    return next(each for each in listed if each[named] == object_id), {}


@pytest.mark.parametrize("route", PUTS, ids=by_name)
def test_an_object_that_was_read_can_be_written_back_unchanged(
    tenant: Tenant, described: dict[str, Any], route: Route
) -> None:
    object_id = made(tenant, route)
    shown, precondition = got(tenant, route, object_id)
    body = {**BESIDE.get(route.name, {}), **shown}
    answer = admin(tenant, "PUT", path_of(route, quote(object_id)), body, headers=precondition)
    assert answer.status == 200, answer.raw
    assert got(tenant, route, object_id) == (shown, precondition)
    operation = described["paths"][route.path]["put"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    whole = {**schema, "components": described["components"]}
    Draft202012Validator(whole).validate(body)


@pytest.mark.parametrize("route", [each for each in PUTS if each.parameters], ids=by_name)
def test_a_body_that_names_another_object_than_the_path_is_422(
    tenant: Tenant, route: Route
) -> None:
    object_id = made(tenant, route)
    shown, _ = got(tenant, route, object_id)
    (named,) = route.parameters
    assert shown[named] == object_id
    body = {**BESIDE.get(route.name, {}), **shown, named: "another"}
    answer = admin(tenant, "PUT", path_of(route, quote(object_id)), body)
    assert answer.status == 422
    assert answer.body["details"] == f"{named}: must be the path's, `{object_id}`"


def test_another_status_than_an_agent_has_is_422_in_a_put(tenant: Tenant) -> None:
    agent = tenant.post("/v1/agents", {"agent_role": "walker"})
    path = f"/v1/agents/{agent['agent_id']}"
    answer = admin(tenant, "PUT", path, {**agent, "status": "approved"})
    assert answer.status == 422
    assert answer.body["details"] == "status: is `draft`; an operation of its own changes it"
    assert admin(tenant, "PUT", path, {**agent, "owner": "lending"}).body["owner"] == "lending"
    changed = admin(tenant, "GET", "/v1/audit/changes?limit=1").body[0]
    # The log keeps no text of people's; and the roles, which came back as shown, have not changed.
    assert changed["after"].keys() == {"updated_at"}
