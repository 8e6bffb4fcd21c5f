"""The superadmin's pages of tenants: list, create, settings, keys, deactivate, reactivate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.control_api.console.reader import Shown, Visitor
from tests.support.control_api import ControlApi, running_control_api


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    """One whose operator masks personal data of all tenants."""
    folder = tmp_path_factory.mktemp("masked")
    with running_control_api(folder, SLUICE_PII_MASKING="1") as started:
        yield started


def made(api: ControlApi, name: str) -> tuple[str, str]:
    """A new tenant's id and its admin key."""
    answer = api.admin("POST", "/v1/admin/tenants", {"name": name})
    return answer["tenant_id"], answer["admin_key"]


def shown_secret(shown: Shown) -> str:
    return shown.main.find("code", id="secret").text


def test_a_new_tenant_s_key_is_shown_once(api: ControlApi, superadmin: Visitor) -> None:
    form = superadmin.get("/console/tenants/new")
    created = superadmin.submit(form, "/console/tenants/create", name="northway")
    assert (created.status, created.heading) == (201, "Tenant created")
    assert created.headers.get_all("Cache-Control") == ["no-store"]
    secret = shown_secret(created)
    assert api.call("GET", "/v1/keys", key=secret).status == 200
    again = superadmin.submit(form, "/console/tenants/create", name="northway")
    assert again.status == 409
    assert "a tenant named `northway` already exists" in again.text
    assert again.main.find("input", name="name").attributes["value"] == "northway"
    page = superadmin.get(created.main.find("a", class_="primary").attributes["href"])
    assert page.heading == "northway active"
    listed = superadmin.get("/console/tenants")
    assert "northway" in listed.text
    for each in (again, page, listed):
        assert secret not in each.raw.decode()


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_a_wrong_name_is_kept_as_typed(superadmin: Visitor, name: str) -> None:
    form = superadmin.get("/console/tenants/new")
    shown = superadmin.submit(form, "/console/tenants/create", name=name)
    assert shown.status == 422
    assert "name: " in shown.text
    assert shown.main.find("input", name="name").attributes["value"] == name


def test_settings_are_changed_and_shown(api: ControlApi, superadmin: Visitor) -> None:
    tenant_id, _ = made(api, "to set")
    page = superadmin.get(f"/console/tenant?id={tenant_id}")
    changed = superadmin.submit(page, "/console/tenant/settings", pii_masking="yes")
    assert "The settings are in force" in changed.text
    stored = api.admin("GET", f"/v1/admin/tenants/{tenant_id}")
    assert (stored["require_agent_id"], stored["pii_masking"]) == (False, True)
    assert "checked" in changed.main.find("input", name="pii_masking").attributes
    assert "checked" not in changed.main.find("input", name="require_agent_id").attributes


def test_settings_that_the_operator_sets_for_all_are_marked(superadmin: Visitor) -> None:
    shown = superadmin.get("/console/tenant?id=default")
    hint = shown.main.find("p", id="h-pii_masking").text
    assert "switched it on for every tenant" in hint
    assert "switched it on" not in shown.main.find("p", id="h-require_agent_id").text


def test_a_key_for_a_tenant_is_shown_once(api: ControlApi, superadmin: Visitor) -> None:
    tenant_id, _ = made(api, "locked out")
    page = superadmin.get(f"/console/tenant?id={tenant_id}")
    created = superadmin.submit(page, "/console/tenant/create-key", name="rescue", scope="read")
    assert (created.status, created.heading) == (201, "Key created")
    assert api.call("GET", "/v1/keys", key=shown_secret(created)).status == 200
    again = superadmin.submit(page, "/console/tenant/create-key", name="rescue", scope="read")
    assert (again.status, again.heading) == (409, "This key has been created already")
    assert shown_secret(created) not in again.raw.decode()


def test_a_wrong_key_is_kept_as_typed(api: ControlApi, superadmin: Visitor) -> None:
    page = superadmin.get(f"/console/tenant?id={made(api, 'keyless')[0]}")
    fields = {"name": "rescue", "expires_days": "0"}
    refused = superadmin.submit(page, "/console/tenant/create-key", **fields)
    assert refused.status == 422
    assert "expires_days: " in refused.main.find("div", role="alert").text
    assert refused.main.find("input", name="name").attributes["value"] == "rescue"
    assert "open" in refused.main.find("details").attributes


def test_a_tenant_is_deactivated_by_its_name(api: ControlApi, superadmin: Visitor) -> None:
    tenant_id, key = made(api, "Aldermoor")
    visitor = Visitor(api).sign_in(key)
    page = superadmin.get(f"/console/tenant?id={tenant_id}")
    refused = superadmin.submit(page, "/console/tenant/deactivate", confirm="aldermoor")
    assert refused.status == 422
    assert refused.main.find("input", name="confirm").attributes["value"] == "aldermoor"
    assert api.call("GET", "/v1/keys", key=key).status == 200
    off = superadmin.submit(page, "/console/tenant/deactivate", confirm="Aldermoor")
    assert off.heading == "Aldermoor deactivated"
    assert api.call("GET", "/v1/keys", key=key).status == 403
    assert visitor.get("/console/keys").heading == "Sign in to Sluice"
    on = superadmin.submit(off, "/console/tenant/reactivate")
    assert on.heading == "Aldermoor active"
    assert api.call("GET", "/v1/keys", key=key).status == 200


def test_a_frozen_tenant_is_marked_without_its_reason(api: ControlApi, superadmin: Visitor) -> None:
    tenant_id, key = made(api, "frozen one")
    assert api.call("POST", "/v1/freeze", {"reason": "theirs"}, key=key).status == 200
    shown = superadmin.get(f"/console/tenant?id={tenant_id}")
    assert shown.heading == "frozen one active frozen"
    # The reason is the tenant's own.
    assert "theirs" not in shown.text


def test_an_absent_tenant_is_not_found(superadmin: Visitor) -> None:
    assert superadmin.get("/console/tenant?id=ten_none").status == 404
    assert superadmin.get("/console/tenant").status == 422
    form = superadmin.get("/console/tenants/new").page
    csrf = form.find("input", name="csrf").attributes["value"]
    for action in ("settings", "create-key", "deactivate", "reactivate"):
        fields = {"csrf": csrf, "id": "ten_none", "confirm": "x", "name": "x", "scope": "read"}
        assert superadmin.post(f"/console/tenant/{action}", fields).status == 404


def test_an_admin_has_no_page_of_tenants(api: ControlApi, console: Visitor) -> None:
    shown = console.get("/console/account")
    assert "Tenants" not in shown.page.find("nav").text
    csrf = shown.page.find("input", name="csrf").attributes["value"]
    for path in ("tenants", "tenants/new", "tenant?id=default"):
        assert console.get(f"/console/{path}").status == 403
    actions = ("tenant/settings", "tenant/create-key", "tenant/deactivate", "tenant/reactivate")
    for action in ("tenants/create", *actions):
        fields = {"csrf": csrf, "id": "default", "confirm": "default", "name": "x"}
        assert console.post(f"/console/{action}", fields).status == 403
    assert api.admin("GET", "/v1/admin/tenants/default")["active"]
