"""The pages of alerts: rules, the webhook's secret that is shown once, what fired, the freeze."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control_api.console.reader import Shown, Visitor
from tests.support.control_api import ControlApi
from tests.support.waiting import until

HOOK = "https://hooks.example.com/path-is-secret"


def made(api: ControlApi, name: str, **fields: Any) -> str:
    """The id of a new rule."""
    body = {"name": name, "rule_type": "denial_spike", "threshold": 20, **fields}
    rule_id: str = api.admin("POST", "/v1/alerts/rules", body)["rule_id"]
    return rule_id


def rule(api: ControlApi, rule_id: str) -> dict[str, Any]:
    found: dict[str, Any] = api.admin("GET", f"/v1/alerts/rules/{rule_id}")
    return found


def shown_secret(shown: Shown) -> str:
    return shown.main.find("code", id="secret").text


def test_a_fired_alert_is_listed_with_its_delivery(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    assert "No alert fired" in console.get("/console/alerts").text
    rule_id = made(tenant, "each denial", threshold=1)
    tenant.evaluate(source_id="payroll")
    until("it fired", lambda: tenant.admin("GET", "/v1/alerts/fired"))
    shown = console.get("/console/alerts")
    row = shown.main.find("tbody").find("tr")
    assert "each denial number of denials 1 1 no destination" in row.text
    assert '"measured": 1' in row.find("pre").text
    rule_page = console.get(row.find("a").attributes["href"])
    assert rule_page.address == f"/console/alert/rule?id={rule_id}"
    assert rule_page.heading == "each denial on"


def test_a_rule_without_a_webhook_has_no_secret(api: ControlApi, console: Visitor) -> None:
    form = console.get("/console/alerts/new")
    shown = console.submit(form, "/console/alerts/create", name="plain", threshold="3")
    assert (shown.status, shown.heading) == (200, "plain on")
    assert "The rule is created" in shown.text
    assert "plain on number of denials 3 60 min" in console.get("/console/alerts/rules").text


def test_a_webhook_s_secret_is_shown_once(api: ControlApi, console: Visitor) -> None:
    form = console.get("/console/alerts/new")
    fields = {"name": "hooked", "webhook_url": HOOK, "rule_type": "high_deny_rate"}
    created = console.submit(form, "/console/alerts/create", **fields)
    assert (created.status, created.heading) == (201, "Alert rule created")
    assert created.headers.get_all("Cache-Control") == ["no-store"]
    secret = shown_secret(created)
    assert secret.startswith("whsec_")
    again = console.submit(form, "/console/alerts/create", **fields)
    assert (again.status, again.heading) == (409, "This rule has been created already")
    page = console.get(again.main.find("a", class_="primary").attributes["href"])
    for each in (again, page, console.get("/console/alerts/rules")):
        assert secret not in each.raw.decode()
    names = [each["name"] for each in api.admin("GET", "/v1/alerts/rules")]
    assert names.count("hooked") == 1


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": ""}, "name: "),
        ({"name": "a", "threshold": "many"}, "threshold: "),
        ({"name": "a", "threshold": ""}, "threshold: "),
        ({"name": "a", "rule_type": "high_deny_rate", "threshold": "101"}, "a percentage"),
        ({"name": "a", "window_minutes": "10081"}, "window_minutes: "),
        ({"name": "a", "webhook_url": "http://127.0.0.1/x"}, "its address is not public"),
        ({"name": "a", "email": "no address"}, "email: "),
    ],
)
def test_wrong_input_for_a_new_rule_is_refused_and_kept(
    api: ControlApi, console: Visitor, fields: dict[str, str], told: str
) -> None:
    before = len(api.admin("GET", "/v1/alerts/rules"))
    shown = console.submit(console.get("/console/alerts/new"), "/console/alerts/create", **fields)
    assert shown.status == 422
    assert told in shown.main.find("div", role="alert").text
    for name in fields.keys() - {"rule_type"}:
        assert shown.main.find("input", name=name).attributes["value"] == fields[name]
    assert len(api.admin("GET", "/v1/alerts/rules")) == before


def test_a_rule_is_changed(api: ControlApi, console: Visitor) -> None:
    rule_id = made(api, "to change", email="ops@example.org")
    page = console.get(f"/console/alert/rule?id={rule_id}")
    changed = console.submit(page, "/console/alert/change", threshold="50", email="")
    assert "The rule is changed" in changed.text
    assert (rule(api, rule_id)["threshold"], rule(api, rule_id)["email"]) == (50, None)
    # A box that is not checked is not sent at all.
    held = changed.main.find("form", action="/console/alert/change")
    fields = {
        each.attributes["name"]: each.attributes["value"]
        for each in held.find_all("input")
        if each.attributes["name"] != "enabled"
    }
    assert console.post("/console/alert/change", fields).heading == "to change off"
    assert rule(api, rule_id)["enabled"] is False


def test_an_outdated_form_changes_nothing(api: ControlApi, console: Visitor) -> None:
    rule_id = made(api, "of two people")
    page = console.get(f"/console/alert/rule?id={rule_id}")
    body = {"rule_type": "denial_spike", "threshold": 7}
    api.admin("PUT", f"/v1/alerts/rules/{rule_id}", body)
    refused = console.submit(page, "/console/alert/change", threshold="9")
    assert refused.status == 409
    assert "has changed since this form was shown" in refused.text
    assert refused.main.find("input", name="threshold").attributes["value"] == "9"
    assert rule(api, rule_id)["threshold"] == 7
    assert "The rule is changed" in console.submit(refused, "/console/alert/change").text
    assert rule(api, rule_id)["threshold"] == 9


def test_wrong_input_for_a_change_is_refused_and_kept(api: ControlApi, console: Visitor) -> None:
    page = console.get(f"/console/alert/rule?id={made(api, 'stays')}")
    refused = console.submit(page, "/console/alert/change", threshold="none", name="other")
    assert refused.status == 422
    assert refused.main.find("input", name="threshold").attributes["value"] == "none"
    assert refused.main.find("input", name="name").attributes["value"] == "other"


def test_a_new_webhook_secret_is_shown_once(api: ControlApi, console: Visitor) -> None:
    rule_id = made(api, "to renew", webhook_url=HOOK)
    page = console.get(f"/console/alert/rule?id={rule_id}")
    assert console.submit(page, "/console/alert/new-secret").status == 422  # the box
    renewed = console.submit(page, "/console/alert/new-secret", sure="yes")
    assert (renewed.status, renewed.heading) == (200, "Webhook secret made")
    secret = shown_secret(renewed)
    # Loaded again, which would replace the secret that was just handed over.
    again = console.submit(page, "/console/alert/new-secret", sure="yes")
    assert again.status == 409
    assert secret not in again.raw.decode()


def test_a_webhook_that_is_set_later_gets_a_secret(api: ControlApi, console: Visitor) -> None:
    page = console.get(f"/console/alert/rule?id={made(api, 'hooked later')}")
    shown = console.submit(page, "/console/alert/change", webhook_url=HOOK)
    assert shown_secret(shown).startswith("whsec_")


def test_a_rule_is_deleted(api: ControlApi, console: Visitor) -> None:
    rule_id = made(api, "to delete")
    page = console.get(f"/console/alert/rule?id={rule_id}")
    assert console.submit(page, "/console/alert/delete").status == 422
    assert "The rule is deleted" in console.submit(page, "/console/alert/delete", sure="yes").text
    assert console.get(f"/console/alert/rule?id={rule_id}").status == 404


def test_a_reader_sees_rules_without_a_webhook_s_path(api: ControlApi, reader: Visitor) -> None:
    rule_id = made(api, "read only", webhook_url=HOOK)
    for address in ("/console/alerts/rules", f"/console/alert/rule?id={rule_id}"):
        shown = reader.get(address)
        assert "https://hooks.example.com" in shown.text
        assert "path-is-secret" not in shown.raw.decode()
        assert not shown.main.find_all("form")
    assert reader.get("/console/alerts/new").status == 403
    frozen = reader.get("/console/alerts/freeze")
    csrf = frozen.page.find("input", name="csrf").attributes["value"]
    actions = ("alerts/create", "alert/change", "alert/new-secret", "alert/delete")
    for action in (*actions, "alerts/freeze/begin", "alerts/freeze/lift"):
        fields = {"csrf": csrf, "id": rule_id, "sure": "yes", "reason": "x"}
        assert reader.post(f"/console/{action}", fields).status == 403
    assert "Freeze the tenant" not in frozen.text
    assert not api.admin("GET", "/v1/freeze")["frozen"]


def test_another_tenant_s_rule_is_not_found(api: ControlApi, console: Visitor) -> None:
    theirs = api.admin("POST", "/v1/admin/tenants", {"name": "others"})["admin_key"]
    body = {"name": "theirs", "rule_type": "denial_spike", "threshold": 1}
    rule_id = api.call("POST", "/v1/alerts/rules", body, key=theirs).body["rule_id"]
    assert console.get(f"/console/alert/rule?id={rule_id}").status == 404
    csrf = console.get("/console/alerts/new").page.find("input", name="csrf").attributes["value"]
    for action in ("change", "new-secret", "delete"):
        fields = {"csrf": csrf, "id": rule_id, "sure": "yes"}
        assert console.post(f"/console/alert/{action}", fields).status == 404
    path = f"/v1/alerts/rules/{rule_id}"
    assert api.call("GET", path, key=theirs).status == 200


def test_a_freeze_is_begun_shown_and_lifted(tenant: ControlApi) -> None:
    console = Visitor(tenant).sign_in(tenant.admin_key)
    page = console.get("/console/alerts/freeze")
    assert console.submit(page, "/console/alerts/freeze/begin", reason="  ").status == 422
    too_long = console.submit(page, "/console/alerts/freeze/begin", reason="x" * 4097)
    assert too_long.status == 422
    assert "x" * 4097 in too_long.main.find("textarea", name="reason").text
    frozen = console.submit(page, "/console/alerts/freeze/begin", reason="a leaked key")
    assert frozen.heading == "Freeze frozen"
    assert "a leaked key" in frozen.text
    assert tenant.evaluate()["policy_name"] == "tenant_frozen"
    reader = Visitor(tenant).sign_in(tenant.new_key("read"))
    for visitor, address in ((console, "/console/keys"), (reader, "/console/decisions")):
        banner = visitor.get(address).page.find("aside", class_="banner")
        assert "every evaluation is denied" in banner.text
    assert console.submit(frozen, "/console/alerts/freeze/lift").status == 422  # the box
    lifted = console.submit(frozen, "/console/alerts/freeze/lift", sure="yes")
    assert not lifted.page.find_all("aside", class_="banner")
    assert tenant.evaluate()["decision"] == "ALLOW"


@pytest.mark.deep(stands_in="test_a_freeze_is_begun_shown_and_lifted")
def test_a_freeze_is_shown_on_every_page(fresh: ControlApi) -> None:
    made_key = fresh.admin("POST", "/v1/keys", {"name": "duty", "scope": "admin"})
    console = Visitor(fresh).sign_in(made_key["key"])
    page = console.get("/console/alerts/freeze")
    assert page.heading == "Freeze not frozen"
    refused = console.submit(page, "/console/alerts/freeze/begin", reason="  ")
    assert refused.status == 422
    assert "say why" in refused.text
    too_long = console.submit(page, "/console/alerts/freeze/begin", reason="x" * 4097)
    assert too_long.status == 422
    assert "x" * 4097 in too_long.main.find("textarea", name="reason").text
    frozen = console.submit(page, "/console/alerts/freeze/begin", reason="a leaked key")
    assert frozen.heading == "Freeze frozen"
    assert "a leaked key" in frozen.text
    assert made_key["key_id"] in frozen.text
    assert fresh.evaluate()["policy_name"] == "tenant_frozen"
    reader = Visitor(fresh).sign_in(fresh.new_key("read"))
    for visitor in (console, reader):
        for address in ("/console", "/console/keys", "/console/decisions", "/console/account"):
            banner = visitor.get(address).page.find("aside", class_="banner")
            assert "every evaluation is denied" in banner.text
    assert console.submit(frozen, "/console/alerts/freeze/lift").status == 422  # the box
    lifted = console.submit(frozen, "/console/alerts/freeze/lift", sure="yes")
    assert "The freeze is lifted" in lifted.text
    assert not lifted.page.find_all("aside", class_="banner")
    assert fresh.evaluate()["decision"] == "ALLOW"
