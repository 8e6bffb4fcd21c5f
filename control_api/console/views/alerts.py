"""Shows the pages of alerts, of the rules that fire them, and of the emergency freeze.

A webhook's secret is shown in the answer to the form that creates it, and nowhere else. The form of
a new rule carries a random text (`Idempotency-Key`), and that of a change the time of the rule's
last change. So a page that is loaded again creates no second rule, and no second secret.
"""

from typing import Any

import orjson

from control_api.alerts.models import AlertRule, AlertRuleWithSecret
from control_api.alerts.operations import (
    create_alert_rule,
    delete_alert_rule,
    get_alert_rule,
    list_alert_rules,
    list_fired_alerts,
    update_alert_rule,
)
from control_api.audit.change_operations import list_changes
from control_api.console.page import NULL, HtmlPage, PageRedirect, Visit, address, get, post
from control_api.edge.requests import Repeated
from control_api.tenants.operations import freeze_tenant, lift_freeze, show_freeze
from policies.ground.canonical import micros, rfc3339
from policies.ground.errors import Conflict, SluiceError, invalid

DONE = {
    "created": "The rule is created.",
    "changed": "The rule is changed.",
    "deleted": "The rule is deleted.",
}
NUMBERS = ("threshold", "window_minutes", "cooldown_minutes", "min_events")
_NEW = {
    "rule_type": "denial_spike",
    "threshold": "20",
    "window_minutes": "60",
    "cooldown_minutes": "60",
    "min_events": "5",
    "enabled": "yes",
}


async def show_alerts(visit: Visit) -> HtmlPage:
    page = await visit.call(list_fired_alerts, limit="50", **visit.filled("cursor"))
    values = {
        "alerts": [
            (each, orjson.dumps(each.detail, option=orjson.OPT_INDENT_2).decode())
            for each in page.rows
        ],
        "next": page.next,
    }
    return HtmlPage("alerts/fired.html", values)


async def show_rules(visit: Visit) -> HtmlPage:
    page = await visit.call(list_alert_rules, limit="50", **visit.filled("cursor"))
    values = {
        "rules": page,
        "may_create": visit.may_call(create_alert_rule),
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return HtmlPage("alerts/rules.html", values)


async def show_new_rule(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    values = {
        "given": visit.form or _NEW,
        "idempotency_key": visit.console.signin.entropy(16).hex(),
    }
    return HtmlPage("alerts/new.html", values, problem)


async def create_rule(visit: Visit) -> HtmlPage | PageRedirect:
    try:
        made = await visit.call(
            create_alert_rule,
            rule_type=visit.form.get("rule_type", ""),
            idempotency_key=visit.form.get("idempotency_key", ""),
            **_fields(visit),
        )
    except Repeated as error:
        return HtmlPage(
            "alerts/created_already.html", {"rule_id": error.created}, status=error.status
        )
    return _made(made, "created", 201)


async def show_rule(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    rule = await visit.call(get_alert_rule, rule_id=visit.required("id"))
    is_change = problem is not None and "name" in visit.form
    values = {
        "rule": rule,
        "given": visit.form if is_change else _form_of(rule),
        "may_change": visit.may_call(update_alert_rule),
        "done_text": DONE.get(visit.query.get("done", "")),
    }
    return HtmlPage("alerts/rule.html", values, problem)


async def change_rule(visit: Visit) -> HtmlPage | PageRedirect:
    rule = await _seen_rule(visit)
    made = await visit.call(
        update_alert_rule, rule_id=rule.rule_id, rule_type=rule.rule_type, **_fields(visit)
    )
    return _made(made, "changed", 200)


async def make_secret(visit: Visit) -> HtmlPage | PageRedirect:
    rule = await _seen_rule(visit)
    visit.form.require_checked()
    made = await visit.call(
        update_alert_rule, rule_id=rule.rule_id, rule_type=rule.rule_type, webhook_secret=NULL
    )
    return _made(made, "changed", 200)


async def delete_rule(visit: Visit) -> PageRedirect:
    """Delete the rule. Alerts that it has fired already are still delivered."""
    visit.form.require_checked()
    await visit.call(delete_alert_rule, rule_id=visit.required("id"))
    return PageRedirect(address("/alerts/rules", done="deleted"))


def _made(rule: AlertRule, done: str, status: int) -> HtmlPage | PageRedirect:
    if isinstance(rule, AlertRuleWithSecret):
        return HtmlPage(
            "alerts/secret.html", {"rule": rule, "is_new": done == "created"}, status=status
        )
    return PageRedirect(address("/alert/rule", id=rule.rule_id, done=done))


def _fields(visit: Visit) -> dict[str, Any]:
    form = visit.form
    return {
        "name": form.get("name", ""),
        "webhook_url": form.text("webhook_url") or NULL,
        "email": form.text("email") or NULL,
        "enabled": form.get("enabled") == "yes",
        **{name: form.number(name) for name in NUMBERS},
    }


def _form_of(rule: AlertRule) -> dict[str, str]:
    """Return the form's fields, filled in from the rule."""
    names = ("name", "webhook_url", "email", *NUMBERS)
    given = {name: str(value) for name in names if (value := getattr(rule, name)) is not None}
    return {**given, **({"enabled": "yes"} if rule.enabled else {})}


async def _seen_rule(visit: Visit) -> AlertRule:
    """Return the rule. Raises `Conflict` if it has changed since the form's page showed it."""
    rule: AlertRule = await visit.call(get_alert_rule, rule_id=visit.required("id"))
    if visit.form.get("updated_at") != rule.updated_at:
        raise Conflict(
            "the rule has changed since this form was shown: look at it, and send the form again"
        )
    return rule


FREEZE_DONE = {
    "frozen": "The tenant is frozen: every evaluation is denied.",
    "lifted": "The freeze is lifted: policies decide again.",
}
_SECOND = 1_000_000  # microseconds


async def show_freeze_page(visit: Visit, problem: SluiceError | None = None) -> HtmlPage:
    state = await visit.call(show_freeze)
    values = {
        "state": state,
        "by": None if state.frozen_at is None else await _who_froze(visit, state.frozen_at),
        "reason": visit.form.get("reason", ""),
        "may_freeze": visit.may_call(freeze_tenant),
        "done_text": FREEZE_DONE.get(visit.query.get("done", "")),
    }
    return HtmlPage("alerts/freeze.html", values, problem)


async def _who_froze(visit: Visit, frozen_at: str) -> str | None:
    """Return who froze the tenant, from the audit trail; None if that entry is not kept any
    more."""
    # The entry is written within the transaction, which waits for others of the tenant.
    begin = micros(frozen_at)
    times = {"from": rfc3339(begin - _SECOND), "to": rfc3339(begin + 60 * _SECOND)}
    found = await visit.call(
        list_changes, object_type="tenant", action="frozen", limit="1", **times
    )
    return found.rows[0].actor if found.rows else None


async def freeze(visit: Visit) -> PageRedirect:
    reason = visit.form.text("reason")
    if reason is None:
        raise invalid(["reason: say why, for those who will ask"], "form")
    await visit.call(freeze_tenant, reason=reason)
    return PageRedirect(address("/alerts/freeze", done="frozen"))


async def lift(visit: Visit) -> PageRedirect:
    visit.form.require_checked()
    await visit.call(lift_freeze)
    return PageRedirect(address("/alerts/freeze", done="lifted"))


PAGES = (
    get("/alerts", list_fired_alerts, show_alerts),
    get("/alerts/rules", list_alert_rules, show_rules),
    get("/alerts/new", create_alert_rule, show_new_rule),
    post("/alerts/create", create_alert_rule, create_rule, show_new_rule),
    get("/alert/rule", get_alert_rule, show_rule),
    post("/alert/change", update_alert_rule, change_rule, show_rule),
    post("/alert/new-secret", update_alert_rule, make_secret, show_rule),
    post("/alert/delete", delete_alert_rule, delete_rule, show_rule),
    get("/alerts/freeze", show_freeze, show_freeze_page),
    post("/alerts/freeze/begin", freeze_tenant, freeze, show_freeze_page),
    post("/alerts/freeze/lift", lift_freeze, lift, show_freeze_page),
)
