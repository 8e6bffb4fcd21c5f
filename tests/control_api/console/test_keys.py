"""The pages of keys: the list, the secret that is shown once, binding, rotation, revocation."""

from __future__ import annotations

import pytest

from tests.control_api.console.reader import Shown, Visitor
from tests.support.control_api import ControlApi


def made(api: ControlApi, name: str, **fields: object) -> str:
    """The id of a new key."""
    key_id: str = api.admin("POST", "/v1/keys", {"name": name, "scope": "evaluate", **fields})[
        "key_id"
    ]
    return key_id


def shown_secret(shown: Shown) -> str:
    return shown.main.find("code", id="secret").text


def row_of(shown: Shown, name: str) -> str:
    return next(each.text for each in shown.main.find_all("tr") if name in each.text)


@pytest.mark.deep(stands_in="test_a_new_key_is_shown_once")
def test_the_list_shows_scope_state_and_binding(api: ControlApi, console: Visitor) -> None:
    made(api, "for good", expires_days=None)
    soon = made(api, "nearly over", expires_days=3)
    binding = {"bound_agent_id": "agt-a", "permitted_roles": ["support"]}
    api.admin("PATCH", f"/v1/keys/{soon}/binding", binding)
    shown = console.get("/console/keys")
    assert "live any any never" in row_of(shown, "for good")
    assert "expires soon agt-a support in 2 d" in row_of(shown, "nearly over")
    assert "this session" in row_of(shown, "first admin")
    assert "No pod has enrolled" in console.get("/console/keys?of=pods").text


def test_a_new_key_is_shown_once(api: ControlApi, console: Visitor) -> None:
    form = console.get("/console/keys/new")
    created = console.submit(form, "/console/keys/create", name="batch", expires_days="30")
    assert (created.status, created.heading) == (201, "Key created")
    secret = shown_secret(created)
    assert secret not in created.address
    assert created.headers.get_all("Cache-Control") == ["no-store"]
    assert api.call("POST", "/v1/context/simulate", {}, key=secret).status == 403
    listed = next(each for each in api.admin("GET", "/v1/keys") if each["name"] == "batch")
    binding = {"bound_agent_id": "agt-a", "permitted_roles": ["support"]}
    soon = made(api, "nearly over", expires_days=3)
    api.admin("PATCH", f"/v1/keys/{soon}/binding", binding)
    made(api, "for good", expires_days=None)
    rows = console.get("/console/keys")
    assert "live any any in 29 d" in row_of(rows, "batch")
    assert "live any any never" in row_of(rows, "for good")
    assert "this session" in row_of(rows, "first admin")
    assert "expires soon agt-a support in 2 d" in row_of(rows, "nearly over")
    page = console.get(f"/console/key?id={listed['key_id']}")
    for each in (page, console.get("/console/keys"), console.get("/console")):
        assert secret not in each.raw.decode()


def test_a_form_that_is_sent_again_creates_nothing(api: ControlApi, console: Visitor) -> None:
    form = console.get("/console/keys/new")
    first = console.submit(form, "/console/keys/create", name="only once")
    again = console.submit(form, "/console/keys/create", name="only once")
    assert (again.status, again.heading) == (409, "This key has been created already")
    assert shown_secret(first) not in again.raw.decode()
    assert not again.main.find_all("code", id="secret")
    names = [each["name"] for each in api.admin("GET", "/v1/keys")]
    assert names.count("only once") == 1


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": ""}, "name: "),
        ({"name": "long", "expires_days": "3651"}, "expires_days: "),
        ({"name": "none", "expires_days": "0"}, "expires_days: "),
        ({"name": "text", "expires_days": "a week"}, "expires_days: "),
        ({"name": "scope", "scope": "superadmin"}, "scope: "),
        ({"name": "token", "idempotency_key": ""}, "idempotency_key: "),
    ],
)
def test_wrong_input_for_a_new_key_is_refused_and_kept(
    api: ControlApi, console: Visitor, fields: dict[str, str], told: str
) -> None:
    before = len(api.admin("GET", "/v1/keys"))
    shown = console.submit(console.get("/console/keys/new"), "/console/keys/create", **fields)
    assert shown.status == 422
    assert told in shown.main.find("div", role="alert").text
    for name in {"name", "expires_days"} & fields.keys():
        assert shown.main.find("input", name=name).attributes["value"] == fields[name]
    assert len(api.admin("GET", "/v1/keys")) == before


def test_a_key_is_bound_and_unbound(api: ControlApi, console: Visitor) -> None:
    key_id = made(api, "to bind")
    page = console.get(f"/console/key?id={key_id}")
    bound = console.submit(page, "/console/key/binding", agent_id="agt-b", roles="support\n\nsales")
    assert "The binding is in force" in bound.text
    (history,) = [each for each in bound.main.find_all("a") if "What was changed" in each.text]
    assert key_id in console.get(history.attributes["href"]).text
    stored = api.admin("GET", f"/v1/keys/{key_id}")
    assert (stored["bound_agent_id"], stored["permitted_roles"]) == ("agt-b", ["support", "sales"])
    console.submit(bound, "/console/key/binding", agent_id="", roles="")
    stored = api.admin("GET", f"/v1/keys/{key_id}")
    assert (stored["bound_agent_id"], stored["permitted_roles"]) == (None, [])


def test_a_wrong_binding_is_kept_as_typed(api: ControlApi, console: Visitor) -> None:
    page = console.get(f"/console/key?id={made(api, 'stays')}")
    roles = "\n".join(f"role-{number}" for number in range(33))
    refused = console.submit(page, "/console/key/binding", agent_id="agt-c", roles=roles)
    assert refused.status == 422
    assert "permitted_roles: " in refused.main.find("div", role="alert").text
    assert refused.main.find("input", name="agent_id").attributes["value"] == "agt-c"
    assert "role-32" in refused.main.find("textarea", name="roles").text


def test_a_rotated_key_has_a_new_secret_once(api: ControlApi, console: Visitor) -> None:
    old = api.admin("POST", "/v1/keys", {"name": "to rotate", "scope": "read"})
    page = console.get(f"/console/key?id={old['key_id']}")
    assert console.submit(page, "/console/key/rotate").status == 422  # the box is not checked
    rotated = console.submit(page, "/console/key/rotate", sure="yes")
    assert (rotated.status, rotated.heading) == (201, "Key rotated")
    assert api.call("GET", "/v1/keys", key=shown_secret(rotated)).status == 200
    assert api.call("GET", "/v1/keys", key=old["key"]).status == 403
    again = console.submit(page, "/console/key/rotate", sure="yes")
    assert again.status == 409
    assert shown_secret(rotated) not in again.raw.decode()


def test_a_revoked_key_disappears(api: ControlApi, console: Visitor) -> None:
    old = api.admin("POST", "/v1/keys", {"name": "to revoke", "scope": "read"})
    page = console.get(f"/console/key?id={old['key_id']}")
    assert "check the box" in console.submit(page, "/console/key/revoke").text
    assert api.call("GET", "/v1/keys", key=old["key"]).status == 200
    assert "The key is revoked" in console.submit(page, "/console/key/revoke", sure="yes").text
    assert api.call("GET", "/v1/keys", key=old["key"]).status == 403
    assert console.get(f"/console/key?id={old['key_id']}").status == 404


def test_revoking_the_key_of_the_session_ends_it(api: ControlApi) -> None:
    own = api.admin("POST", "/v1/keys", {"name": "own", "scope": "admin"})
    visitor = Visitor(api).sign_in(own["key"])
    page = visitor.get(f"/console/key?id={own['key_id']}")
    assert "You are signed in with this key" in page.text
    assert visitor.submit(page, "/console/key/revoke", sure="yes").heading == "Sign in to Sluice"


def test_a_reader_sees_keys_and_cannot_change_them(api: ControlApi, reader: Visitor) -> None:
    key_id = made(api, "only seen")
    assert "Create a key" not in reader.get("/console/keys").text
    page = reader.get(f"/console/key?id={key_id}")
    assert page.status == 200
    assert not page.main.find_all("form")
    assert reader.get("/console/keys/new").status == 403
    csrf = page.page.find("input", name="csrf").attributes["value"]
    for action in ("keys/create", "key/binding", "key/rotate", "key/revoke"):
        fields = {"csrf": csrf, "id": key_id, "sure": "yes", "name": "x", "scope": "read"}
        assert reader.post(f"/console/{action}", fields).status == 403
    assert api.call("GET", f"/v1/keys/{key_id}").status == 200


def test_another_tenant_s_key_is_not_found(api: ControlApi, console: Visitor) -> None:
    theirs = api.admin("POST", "/v1/admin/tenants", {"name": "others"})["admin_key"]
    body = {"name": "theirs", "scope": "read"}
    key_id = api.call("POST", "/v1/keys", body, key=theirs).body["key_id"]
    assert console.get(f"/console/key?id={key_id}").status == 404
    csrf = console.get("/console/keys/new").page.find("input", name="csrf").attributes["value"]
    for action in ("binding", "rotate", "revoke"):
        fields = {"csrf": csrf, "id": key_id, "sure": "yes"}
        assert console.post(f"/console/key/{action}", fields).status == 404
    assert api.call("GET", f"/v1/keys/{key_id}", key=theirs).status == 200
