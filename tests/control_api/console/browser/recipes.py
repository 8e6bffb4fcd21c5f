"""How a person does each action of the table by the keyboard: where its form is, and what goes into
it. An action without a recipe fails the test that does them all."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode

from tests.support.company_week import CompanyWeek, policy
from tests.support.waiting import until

_numbers = itertools.count(1)


class Recipe(NamedTuple):
    """`page` is where the form is, and `query` makes what it needs and says how to find it."""

    page: str
    fields: Callable[[CompanyWeek], dict[str, str]] = lambda _: {}
    query: Callable[[CompanyWeek], dict[str, str]] = lambda _: {}
    held: Callable[[dict[str, str]], dict[str, str]] = lambda _: {}
    """Hidden values of the form among several with the same action, by the query."""
    button: str = ""
    """The text of the button, if the form has several."""
    by: Literal["admin", "superadmin", "other", "anyone", "someone"] = "admin"
    """`someone` signs in for this action alone, which ends the session; `other` is the admin of
    another tenant."""
    statuses: tuple[int, ...] = (303,)
    first: tuple[str, Callable[[CompanyWeek], dict[str, str]]] | None = None
    """An action of the page, and its fields, whose answer is the page that the form is on."""
    fragment: Callable[[CompanyWeek], str] = lambda _: ""
    """What stands behind `#` in the address."""

    def address(self, query: dict[str, Any]) -> str:
        return self.page + (f"?{urlencode(query)}" if query else "")


def _link_code(world: CompanyWeek) -> str:
    made = world.api.admin("POST", "/v1/console/sign-in-links")
    return str(made["url"]).partition("#")[2]


_CANDIDATES = "/v1/policies/candidates"
_POLICY = """name: press_reads
agent_role: press
allowed_sources: [press_kit]
denied_sources: []
max_sensitivity: low
"""


def _room(world: CompanyWeek) -> dict[str, str]:
    """Room for a candidate; no query."""
    for each in world.api.admin("GET", _CANDIDATES):
        if each["name"].startswith("trial-"):
            world.api.call("DELETE", f"{_CANDIDATES}/{each['name']}")
    return {}


def _candidate(world: CompanyWeek) -> dict[str, str]:
    """A new candidate."""
    _room(world)
    name = f"trial-{next(_numbers)}"
    world.api.admin("PUT", f"{_CANDIDATES}/{name}", {"policies": [], "keep_others": True})
    return {"id": name}


def _made_policy(world: CompanyWeek) -> dict[str, str]:
    body = policy("marketing_writer", name=f"made-{next(_numbers)}", allowed_sources=[])
    return {"id": world.api.admin("POST", "/v1/policies", body)["policy_id"]}


def _policy_text(_: CompanyWeek) -> dict[str, str]:
    return {
        "text": f"name: typed-{next(_numbers)}\nagent_role: marketing_writer\n"
        "allowed_sources: [products]\ndenied_sources: []\nmax_sensitivity: low\n"
    }


def _verified(world: CompanyWeek) -> dict[str, str]:
    """The button is there once no verification runs."""
    path = "/v1/audit/verification"
    until("the end of the verification", lambda: not world.api.admin("GET", path)["running"])
    return {}


def _held(world: CompanyWeek) -> dict[str, str]:
    body = {"object_type": "agent", "object_id": "agt_press", "reason": "a question of 2026"}
    return {"hold_id": world.api.admin("POST", "/v1/audit/holds", body)["hold_id"]}


def _guardrail(world: CompanyWeek) -> dict[str, str]:
    """A new guardrail."""
    name = f"trial-{next(_numbers)}"
    never = {"sources": ["vault"]}
    world.api.admin("POST", "/v1/guardrails", {"name": name, "never": never})
    return {"id": name}


def _level(world: CompanyWeek) -> dict[str, str]:
    """A new level of a source that nothing reads."""
    pattern = f"trial-{next(_numbers)}"
    body = {"sensitivity_level": "low"}
    world.api.admin("PUT", f"/v1/sources/{pattern}", body)
    return {"id": pattern}


def _held_run(world: CompanyWeek) -> dict[str, str]:
    """An impact run that does not end: another process seems to continue it."""
    body: dict[str, Any] = {"policies": []}
    impact_id = world.api.admin("POST", "/v1/policies/impact", body)["impact_id"]
    with closing(sqlite3.connect(world.api.directory / "data" / "sluice.db")) as store, store:
        held = "UPDATE impact_runs SET lease = 'held', leased_until = ? WHERE impact_id = ?"
        store.execute(held, (2**62, impact_id))
    return {"id": impact_id}


def _spare_key(world: CompanyWeek) -> dict[str, str]:
    body = {"name": f"spare {next(_numbers)}", "scope": "evaluate"}
    return {"id": world.api.admin("POST", "/v1/keys", body)["key_id"]}


def _spare_rule(world: CompanyWeek) -> dict[str, str]:
    body = {"name": f"spare {next(_numbers)}", "rule_type": "denial_spike", "threshold": 9999}
    body["webhook_url"] = "https://hooks.example.com/x"
    return {"id": world.api.admin("POST", "/v1/alerts/rules", body)["rule_id"]}


def _spare_tenant(world: CompanyWeek) -> dict[str, str]:
    body = {"name": "spare"}
    for tenant in world.api.admin("GET", "/v1/admin/tenants"):
        if tenant["name"] == body["name"]:
            world.api.admin("POST", f"/v1/admin/tenants/{tenant['tenant_id']}/reactivate")
            return {"id": tenant["tenant_id"]}
    return {"id": world.api.admin("POST", "/v1/admin/tenants", body)["tenant_id"]}


def _spare_tenant_off(world: CompanyWeek) -> dict[str, str]:
    found = _spare_tenant(world)
    world.api.admin("DELETE", f"/v1/admin/tenants/{found['id']}")
    return found


def _freeze(world: CompanyWeek, method: str) -> dict[str, str]:
    body = {"reason": "a drill"} if method == "POST" else None
    assert world.api.call(method, "/v1/freeze", body, key=world.tenant_key).status == 200
    return {}


def _draft(world: CompanyWeek) -> dict[str, str]:
    agent_id = f"agt_recipe_{next(_numbers)}"
    world.api.admin("POST", "/v1/agents", {"agent_id": agent_id, "agent_role": "hr_analyst"})
    return {"id": agent_id}


def _session(world: CompanyWeek) -> dict[str, str]:
    session_id = f"recipe-{next(_numbers)}"
    world.api.evaluate(session_id=session_id)
    return {"id": session_id}


RECIPES: dict[str, Recipe] = {
    "/console/agents/register": Recipe(
        "/console/agents/new",
        lambda _: {"agent_id": f"agt_typed_{next(_numbers)}", "agent_role": "hr_analyst"},
    ),
    "/console/agent/status": Recipe(
        "/console/agent",
        lambda _: {"reason": "reviewed"},
        _draft,
        lambda query: {"id": query["id"], "status": "approved"},
    ),
    "/console/agent/save": Recipe(
        "/console/agent/edit", lambda _: {"owner": "people", "reason": "moved"}, _draft
    ),
    "/console/session/revoke": Recipe(
        "/console/session", lambda _: {"reason": "lost laptop"}, _session
    ),
    "/console/sessions/revoke": Recipe(
        "/console/sessions/revoke",
        lambda _: {"reason": "a leak"},
        lambda _: {"agent_id": "agt_scraper"},
        lambda query: {"agent_id": query["agent_id"]},
    ),
    "/console/sign-in": Recipe(
        "/console/sign-in", lambda world: {"key": world.keys["read"]}, by="anyone"
    ),
    "/console/sign-in/link": Recipe("/console/sign-in", fragment=_link_code, by="anyone"),
    # The newest session, which is one's own.
    "/console/account/end-session": Recipe("/console/account", by="someone"),
    "/console/sign-out": Recipe("/console/agents", by="someone"),
    "/console/candidate/create": Recipe(
        "/console/policies/candidates/new",
        lambda _: {"name": f"trial-{next(_numbers)}", "policies": _POLICY},
        _room,
    ),
    "/console/candidate/promote": Recipe(
        "/console/policies/candidate/review", lambda _: {"confirm": "yes"}, _candidate
    ),
    "/console/candidate/discard": Recipe(
        "/console/policies/candidate", lambda _: {"confirm": "yes"}, _candidate
    ),
    "/console/policies/reload": Recipe("/console/policies"),
    "/console/policy/review": Recipe("/console/policy/new", _policy_text, statuses=(200,)),
    "/console/policy/save": Recipe(
        "/console/policy/new", first=("/console/policy/review", _policy_text)
    ),
    "/console/policy/restore": Recipe(
        "/console/policy/restore", query=lambda world: {"id": world.filed_policy_id}
    ),
    "/console/policy/delete": Recipe(
        "/console/policy/delete", query=_made_policy, held=lambda query: query
    ),
    "/console/audit/verify": Recipe("/console/audit", query=_verified),
    "/console/audit/holds/place": Recipe(
        "/console/audit/holds",
        lambda _: {"object_type": "agent", "object_id": "agt_press", "reason": "litigation 2026-9"},
    ),
    "/console/audit/holds/release": Recipe(
        "/console/audit/holds", lambda _: {"why": "it is settled"}, _held, lambda query: query
    ),
    # A user of no decision: the world stays as it is.
    "/console/audit/erasures/erase": Recipe(
        "/console/audit/erasures",
        lambda _: {"kind": "user_id", "whose": "u-none", "reason": "request 1", "final": "yes"},
    ),
    "/console/audit/retention/change": Recipe(
        "/console/audit/retention", lambda _: {"session_retention_days": "91"}
    ),
    "/console/impact/start": Recipe("/console/policies/impact", lambda _: {"policies": _POLICY}),
    "/console/impact/cancel": Recipe("/console/policies/impact", query=_held_run),
    "/console/guardrail/create": Recipe(
        "/console/policies/guardrails/new",
        lambda _: {"name": f"trial-{next(_numbers)}", "sources": "vault", "levels": "high"},
    ),
    "/console/guardrail/replace": Recipe(
        "/console/policies/guardrail", lambda _: {"except_roles": "keeper"}, _guardrail
    ),
    "/console/guardrail/delete": Recipe(
        "/console/policies/guardrail", lambda _: {"confirm": "yes"}, _guardrail
    ),
    "/console/source/put": Recipe(
        "/console/policies/sources/new",
        lambda _: {"source_pattern": f"trial-{next(_numbers)}", "sensitivity_level": "high"},
    ),
    "/console/source/delete": Recipe(
        "/console/policies/source", lambda _: {"confirm": "yes"}, _level
    ),
    "/console/policies/tests/run": Recipe(
        "/console/policies/tests", lambda _: {"tests": "tests: []"}, statuses=(200,)
    ),
    "/console/keys/create": Recipe(
        "/console/keys/new",
        lambda _: {"name": f"key {next(_numbers)}", "scope": "read", "expires_days": "30"},
        statuses=(201,),
    ),
    "/console/key/binding": Recipe(
        "/console/key", lambda world: {"agent_id": world.agent_id, "roles": "hr"}, _spare_key
    ),
    "/console/key/rotate": Recipe(
        "/console/key", lambda _: {"sure": "yes"}, _spare_key, statuses=(201,)
    ),
    "/console/key/revoke": Recipe("/console/key", lambda _: {"sure": "yes"}, _spare_key),
    "/console/alerts/create": Recipe(
        "/console/alerts/new",
        lambda _: {"name": f"rule {next(_numbers)}", "rule_type": "high_deny_rate"},
    ),
    "/console/alert/change": Recipe(
        "/console/alert/rule", lambda _: {"threshold": "9998"}, _spare_rule
    ),
    "/console/alert/new-secret": Recipe(
        "/console/alert/rule", lambda _: {"sure": "yes"}, _spare_rule, statuses=(200,)
    ),
    "/console/alert/delete": Recipe("/console/alert/rule", lambda _: {"sure": "yes"}, _spare_rule),
    "/console/alerts/freeze/begin": Recipe(
        "/console/alerts/freeze",
        lambda _: {"reason": "a drill"},
        lambda world: _freeze(world, "DELETE"),
        by="other",
    ),
    "/console/alerts/freeze/lift": Recipe(
        "/console/alerts/freeze",
        lambda _: {"sure": "yes"},
        lambda world: _freeze(world, "POST"),
        by="other",
    ),
    "/console/tenants/create": Recipe(
        "/console/tenants/new",
        lambda _: {"name": f"tenant {next(_numbers)}"},
        by="superadmin",
        statuses=(201,),
    ),
    "/console/tenant/settings": Recipe(
        "/console/tenant", lambda _: {"pii_masking": "yes"}, _spare_tenant, by="superadmin"
    ),
    "/console/tenant/create-key": Recipe(
        "/console/tenant",
        lambda _: {"name": f"key {next(_numbers)}", "scope": "read"},
        _spare_tenant,
        by="superadmin",
        statuses=(201,),
    ),
    "/console/tenant/deactivate": Recipe(
        "/console/tenant", lambda _: {"confirm": "spare"}, _spare_tenant, by="superadmin"
    ),
    "/console/tenant/reactivate": Recipe(
        "/console/tenant", query=_spare_tenant_off, by="superadmin"
    ),
}
