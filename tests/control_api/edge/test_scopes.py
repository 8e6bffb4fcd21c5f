"""Who may do what: every route with every kind of key. Nothing is checked before the key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, insert, update

from control_api.edge.route import Route, Scope
from control_api.routes import ROUTES
from control_api.store.schema.tables import api_keys, documents, tenants
from policies.definitions.model import Key
from policies.ground.keys import key_digest, make_key
from policies.sets.policy_set import document_digest, key_document, key_name
from tests.control_api.edge.world import REQUIRED_QUERY
from tests.runner import tiers
from tests.support.control_api import SUPERADMIN, ControlApi, asked, running_control_api
from tests.support.waiting import until

GUARDED = [route for route in ROUTES if route.scopes is not None]
OPEN = [route for route in ROUTES if route.scopes is None]
SCOPES = ("evaluate", "read", "admin", "sidecar")

# A valid body for each route, so that a key of the right scope gets past parsing. It is the example
# of the request model, unless that needs an existing object.
BODIES: dict[str, Any] = {
    route.name: route.request_type.example for route in ROUTES if route.body
} | {
    "evaluate_context": asked(),
    "record_lineage": {"event_id": "none", "action_type": "sent"},
    "register_agent": {"agent_role": "support"},
    "change_agent_status": {"status": "deprecated"},
    "claim_session": {"session_id": "s", "agent_role": "support", "user_id": "ann"},
    "ingest_events": {"source": "s", "instance": "i", "records": []},
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    with running_control_api(tmp_path_factory.mktemp("scopes")) as started:
        yield started


@pytest.fixture(scope="module")
def keys(api: ControlApi) -> dict[str, str]:
    """A live key of each scope."""
    return {scope: api.new_key(scope) for scope in SCOPES} | {"superadmin": SUPERADMIN}


def path_of(route: Route) -> str:
    path = route.path
    for name in route.parameters:
        path = path.replace("{" + name + "}", "none")
    return path + REQUIRED_QUERY.get(route.name, "")


def ids(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("scope", [*SCOPES, "superadmin"])
@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_a_route_admits_exactly_its_scopes(
    api: ControlApi, keys: dict[str, str], route: Route, scope: str
) -> None:
    answer = api.call(route.method, path_of(route), BODIES.get(route.name), key=keys[scope])
    assert route.scopes is not None
    if scope in route.scopes:
        assert answer.status in (200, 201, 202, 404, 409), answer.raw
    else:
        assert answer.status == 403, answer.raw
        assert scope in answer.body["message"]


@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_no_key_is_401_whatever_else_is_wrong(api: ControlApi, route: Route) -> None:
    for body in (BODIES.get(route.name), None):
        answer = api.call(route.method, path_of(route), body, key=None)
        assert answer.status == 401
        assert answer.body["error"] == "Unauthorized"
        assert answer.headers["WWW-Authenticate"]
    assert api.call(route.method, path_of(route), raw=b"{", key=None).status == 401


@tiers.sampled("route", "kind")
@pytest.mark.parametrize(
    "kind", ["invalid", "never made", "revoked", "expired", "of a deactivated tenant"]
)
@pytest.mark.parametrize("route", GUARDED, ids=ids)
def test_a_key_that_is_not_valid_is_403_before_the_body_is_read(
    api: ControlApi, dead: dict[str, str], route: Route, kind: str
) -> None:
    for raw in (b"{", b"{}"):
        answer = api.call(route.method, path_of(route), raw=raw, key=dead[kind])
        assert answer.status == 403, (kind, answer.raw)
        assert answer.body["error"] == "Forbidden"


@pytest.fixture(scope="module")
def dead(api: ControlApi) -> dict[str, str]:
    """Keys that are refused, one for each reason."""
    revoked = api.admin("POST", "/v1/keys", {"name": "revoked", "scope": "admin"})
    api.admin("DELETE", f"/v1/keys/{revoked['key_id']}")
    expired = api.admin(
        "POST", "/v1/keys", {"name": "expired", "scope": "admin", "expires_days": 1}
    )
    orphan = make_key(b"o" * 32)
    engine = create_engine(f"sqlite:///{api.directory / 'data' / 'sluice.db'}")
    with engine.begin() as connection:
        connection.execute(
            update(api_keys).where(api_keys.c.key_id == expired["key_id"]).values(expires_at=1)
        )
        connection.execute(
            insert(tenants).values(
                tenant_id="gone",
                name="gone",
                created_at=1,
                require_agent_id=False,
                pii_masking=False,
                active=False,
                revision=0,
            )
        )
        connection.execute(
            insert(api_keys).values(
                tenant_id="gone",
                key_id="key_gone",
                name="orphan",
                scope="admin",
                digest=key_digest(orphan),
                permitted_roles=b"[]",
                created_at=1,
            )
        )
    engine.dispose()
    _publish(api, expired, orphan)
    return {
        "invalid": "not a key",
        "never made": make_key(b"n" * 32),
        "revoked": revoked["key"],
        "expired": expired["key"],
        "of a deactivated tenant": orphan,
    }


def _publish(api: ControlApi, expired: dict[str, Any], orphan: str) -> None:
    """The documents that the operations on the two would publish."""
    engine = create_engine(f"sqlite:///{api.directory / 'data' / 'sluice.db'}")
    with engine.begin() as connection:
        name = key_name(key_digest(expired["key"]))
        body = key_document(Key(expired["key_id"], "admin", expires_at=1))
        connection.execute(
            update(documents)
            .where(documents.c.name == name)
            .values(body=body, digest=document_digest(body))
        )
        body = key_document(Key("key_gone", "admin"))
        connection.execute(
            insert(documents).values(
                tenant_id="gone",
                name=key_name(key_digest(orphan)),
                revision=1,
                digest=document_digest(body),
                body=body,
            )
        )
    engine.dispose()
    api.restart()


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nothing", "/%761/keys", "/v1/keys/"])
def test_an_unknown_path_of_the_api_requires_a_key_first(api: ControlApi, path: str) -> None:
    assert api.call("GET", path, key=None).status == 401
    assert api.call("GET", path, key="invalid").status == 403
    known = api.call("GET", path)
    assert known.status == (404 if path != "/%761/keys" else 200)


@pytest.mark.parametrize("route", [each for each in OPEN if not each.has_body], ids=ids)
def test_an_open_route_needs_no_key_and_ignores_one(api: ControlApi, route: Route) -> None:
    assert api.call(route.method, route.path, key=None).status == route.status
    assert api.call(route.method, route.path, key="not a key").status == route.status


def test_a_key_is_dead_before_its_revocation_is_answered(api: ControlApi) -> None:
    for _ in range(3):
        made = api.admin("POST", "/v1/keys", {"name": "short-lived", "scope": "read"})
        assert api.call("GET", "/v1/keys", key=made["key"]).status == 200
        api.admin("DELETE", f"/v1/keys/{made['key_id']}")
        assert api.call("GET", "/v1/keys", key=made["key"]).status == 403


@pytest.mark.deep(
    stands_in="tests/control_api/registry/enrolment/test_kill_switch.py::test_a_suspension_at_one_process_is_in_force_at_another_of_the_same_database"
)
def test_a_revocation_by_another_process_is_seen_within_a_second(tmp_path: Path) -> None:
    with running_control_api(tmp_path) as one:
        made = one.admin("POST", "/v1/keys", {"name": "shared", "scope": "read"})
        other = ControlApi(tmp_path, policies=None)
        other.start()
        try:
            assert other.call("GET", "/v1/keys", key=made["key"]).status == 200
            one.admin("DELETE", f"/v1/keys/{made['key_id']}")
            until(
                "the other process refuses the key",
                lambda: other.call("GET", "/v1/keys", key=made["key"]).status == 403,
            )
        finally:
            other.stop()


def test_every_guarded_route_of_a_tenant_is_open_to_its_admin() -> None:
    for route in GUARDED:
        assert route.scopes is not None
        of_all = route.path.startswith("/v1/admin/")
        assert (Scope.admin in route.scopes) == (not of_all)
        assert (route.scopes == {Scope.superadmin}) == of_all
        # The superadmin's sessions of the console are of no tenant.
        console = route.path.startswith("/v1/console/")
        assert (Scope.superadmin in route.scopes) == (of_all or console)
        assert route.path.startswith("/v1/")
    # A sidecar that enrols has no key yet: it proves who it is by a token in the body.
    assert [each.name for each in OPEN if each.path.startswith("/v1/")] == ["enrol_sidecar"]


def test_an_evaluate_key_reads_nothing() -> None:
    # That each other route refuses the key, `test_a_route_admits_exactly_its_scopes` shows.
    assert {ids(route) for route in GUARDED if Scope.evaluate in (route.scopes or ())} == {
        "POST /v1/context/evaluate",
        "POST /v1/context/evaluate/batch",
        "POST /v1/audit/lineage",
    }
