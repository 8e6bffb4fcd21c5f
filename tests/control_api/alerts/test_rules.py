"""Alert rules as operations: made, shown without secrets, changed, deleted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.control_api import ControlApi

RULES = "/v1/alerts/rules"
RULE: dict[str, Any] = {"name": "many", "rule_type": "denial_spike", "threshold": 20}
HOOK = "https://hooks.example.com/services/T0/secret?token=x"


def test_a_rule_is_listed_with_its_defaults_until_it_is_deleted(api: ControlApi) -> None:
    rule = api.admin("POST", RULES, {**RULE, "name": "by default"})
    names = ("window_minutes", "cooldown_minutes", "min_events", "enabled", "last_fired_at")
    assert [rule[each] for each in names] == [60, 60, 5, True, None]
    assert (rule["webhook_url"], rule["email"]) == (None, None)
    assert rule["rule_id"].startswith("alr_")
    assert rule["updated_at"] == rule["created_at"]
    assert rule in api.admin("GET", RULES)
    assert api.call("DELETE", f"{RULES}/{rule['rule_id']}").body == {}
    assert rule not in api.admin("GET", RULES)
    assert api.call("DELETE", f"{RULES}/{rule['rule_id']}").status == 404


@pytest.mark.deep(stands_in="test_a_rule_is_listed_with_its_defaults_until_it_is_deleted")
def test_a_rule_has_its_defaults_and_is_listed(either: ControlApi) -> None:
    answer = either.call("POST", RULES, RULE)
    rule = answer.body
    assert answer.status == 201
    assert rule["rule_id"].startswith("alr_")
    assert {name: rule[name] for name in rule if name not in ("rule_id", "created_at")} == {
        **RULE,
        "window_minutes": 60,
        "cooldown_minutes": 60,
        "min_events": 5,
        "webhook_url": None,
        "email": None,
        "enabled": True,
        "updated_at": rule["created_at"],
        "last_fired_at": None,
    }
    assert either.admin("GET", RULES) == [rule]
    assert either.call("DELETE", f"{RULES}/{rule['rule_id']}").body == {}
    assert either.call("DELETE", f"{RULES}/{rule['rule_id']}").status == 404
    assert either.admin("GET", RULES) == []
    assert either.verified()["valid"]


def test_a_webhooks_secret_is_shown_once_and_can_be_replaced(api: ControlApi) -> None:
    made = api.admin("POST", RULES, {**RULE, "webhook_url": HOOK})
    path, kind = f"{RULES}/{made['rule_id']}", {"rule_type": "denial_spike"}
    first = made.pop("webhook_secret")
    assert first.startswith("whsec_")
    assert made in api.admin("GET", RULES)
    assert "webhook_secret" not in api.admin("PUT", path, {**kind, "threshold": 7})
    second = api.admin("PUT", path, {**kind, "webhook_secret": None})["webhook_secret"]
    assert second not in (None, first)
    other = {**kind, "webhook_url": None}
    assert "webhook_secret" not in api.admin("PUT", path, other)
    again = api.admin("PUT", path, {**kind, "webhook_url": HOOK})
    assert again["webhook_secret"] not in (first, second)
    reader = api.new_key("read")
    shown = api.call("GET", RULES, key=reader).raw.decode()
    assert "https://hooks.example.com" in shown
    assert "secret" not in shown
    assert "token" not in shown


def test_a_change_keeps_the_fields_it_leaves_out(api: ControlApi) -> None:
    made = api.admin("POST", RULES, {**RULE, "email": "ops@example.com", "window_minutes": 5})
    path = f"{RULES}/{made['rule_id']}"
    changed = api.admin("PUT", path, {"rule_type": "denial_spike", "enabled": False})
    assert {**changed, "updated_at": ""} == {**made, "enabled": False, "updated_at": ""}
    entries = api.verified()["total"]
    assert api.admin("PUT", path, {"rule_type": "denial_spike"}) == changed
    assert api.verified()["total"] == entries
    wrong = api.call("PUT", path, {"rule_type": "high_deny_rate"})
    assert wrong.status == 422
    assert wrong.body["details"].startswith("rule_type: ")
    assert api.call("PUT", path, {"threshold": 3}).status == 422
    missing = {"rule_type": "denial_spike"}
    assert api.call("PUT", f"{RULES}/none", missing).status == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {"rule_type": "spike"},
        {"threshold": 0},
        {"threshold": True},
        {"threshold": 101, "rule_type": "high_deny_rate"},
        {"window_minutes": 0},
        {"window_minutes": 10_081},
        {"cooldown_minutes": 0},
        {"min_events": 0},
        {"email": "nobody"},
        {"email": "a@b\r\nBcc: c@d"},
        {"webhook_url": "ftp://example.com"},
        {"webhook_url": "http://user:pw@example.com/"},
        {"webhook_url": "http://example.com/#part"},
        {"webhook_url": "http://127.0.0.1/"},
        {"webhook_url": "http://169.254.169.254/latest"},
        {"webhook_url": "http://10.0.0.1:8080/x"},
        {"webhook_url": "http://example.com:0/"},
        {"webhook_url": "http://example.com:65536/"},
        {"webhook_url": "http://exa mple.com/"},
        {"webhook_secret": "whsec_mine"},
        {"treshold": 3},
    ],
    ids=str,
)
def test_an_impossible_rule_is_refused_with_422(api: ControlApi, wrong: dict[str, Any]) -> None:
    before = api.admin("GET", RULES)
    assert api.call("POST", RULES, {**RULE, **wrong}).status == 422
    assert api.admin("GET", RULES) == before
