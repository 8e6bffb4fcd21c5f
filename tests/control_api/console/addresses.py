"""Where each page of the table is found in the seeded world, with the scope that opens it.

A page that is not in `ADDRESSES` is opened by the admin without a query. If it needs more, it fails
the tests that walk the table until it has a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple
from urllib.parse import urlencode

from control_api.console.page import Page
from control_api.console.pages import PAGES
from tests.control_api.console.hostile import HostileWorld
from tests.support.company_week import CompanyWeek


class Address(NamedTuple):
    """The query that a page needs; `data` is what a page of ours asks for, or a person downloads,
    and `by` who looks."""

    query: Callable[[CompanyWeek], dict[str, str]] = lambda _: {}
    by: Literal["admin", "superadmin", "anyone"] = "admin"
    data: bool = False

    def of(self, page: Page, world: CompanyWeek) -> str:
        """The whole address."""
        query = self.query(world)
        return page.path + (f"?{urlencode(query)}" if query else "")


def _signed(world: CompanyWeek | HostileWorld) -> dict[str, str]:
    return {"size": str(world.api.admin("GET", "/v1/audit/checkpoints")[0]["size"])}


# They lead to an identity provider and back, which the seeded world does not have
# (`test_single_sign_on.py`).
_ELSEWHERE = Address(by="anyone", data=True)
ADDRESSES: dict[str, Address] = {
    "/console/agent": Address(lambda world: {"id": world.agent_id}),
    "/console/agent/history": Address(lambda world: {"id": world.agent_id}),
    "/console/agent/edit": Address(lambda world: {"id": world.agent_id}),
    "/console/access/why": Address(lambda _: {"agent_role": "loan_underwriter"}),
    "/console/session": Address(lambda world: {"id": world.session_id}),
    "/console/sessions/revoke": Address(lambda world: {"agent_id": world.agent_id}),
    "/console/oidc": _ELSEWHERE,
    "/console/oidc/callback": _ELSEWHERE,
    "/console/oidc/sign-out": _ELSEWHERE,
    "/console/sign-in": Address(by="anyone"),
    "/console/alert/rule": Address(lambda world: {"id": world.rule_id}),
    "/console/tenants": Address(by="superadmin"),
    "/console/tenants/new": Address(by="superadmin"),
    "/console/tenant": Address(lambda world: {"id": world.tenant_id}, by="superadmin"),
    "/console/key": Address(lambda world: {"id": world.key_id}),
    "/console/decision": Address(lambda world: {"id": world.denied}),
    "/console/decision/proof": Address(lambda world: {"id": world.denied}, data=True),
    "/console/decision/proof.txt": Address(lambda world: {"id": world.denied}, data=True),
    "/console/decision/evidence.json": Address(lambda world: {"id": world.denied}, data=True),
    "/console/decision/growth": Address(lambda _: {"from": "1"}, data=True),
    "/console/decisions/live": Address(data=True),
    "/console/policy": Address(lambda world: {"id": world.policy_id}),
    "/console/policy/edit": Address(lambda world: {"id": world.policy_id}),
    "/console/policy/delete": Address(lambda world: {"id": world.filed_policy_id}),
    "/console/policy/restore": Address(lambda world: {"id": world.filed_policy_id}),
    "/console/policy/history": Address(lambda world: {"id": world.policy_id}),
    "/console/policy/compare": Address(
        lambda world: {"id": world.policy_id, "from": "1", "to": "2"}
    ),
    "/console/decisions/download": Address(lambda _: {"format": "csv"}, data=True),
    "/console/policies/impact": Address(lambda world: {"id": world.impact_id}),
    "/console/policies/impact/progress": Address(lambda world: {"id": world.impact_id}, data=True),
    "/console/policies/guardrail": Address(lambda world: {"id": world.guardrail}),
    "/console/policies/source": Address(lambda world: {"id": world.source_pattern}),
    "/console/policies/candidate": Address(lambda world: {"id": world.candidate}),
    "/console/policies/candidate/review": Address(lambda world: {"id": world.candidate}),
    "/console/audit/progress": Address(data=True),
    "/console/audit/checkpoint": Address(_signed),
    "/console/audit/checkpoint.txt": Address(_signed, data=True),
    "/console/audit/download": Address(data=True),
    "/console/audit/report": Address(lambda w: {"kind": "event", "id": w.denied}, data=True),
}
HOSTILE_OBJECTS: dict[str, Callable[[HostileWorld], list[dict[str, str]]]] = {
    "/console/agent": lambda world: [{"id": each} for each in world.names],
    "/console/agent/history": lambda world: [{"id": each} for each in world.names[::10]],
    "/console/agent/edit": lambda world: [{"id": each} for each in world.names[::5]],
    "/console/access": lambda world: [{"agent_role": each} for each in world.names[::5]],
    "/console/access/why": lambda world: [
        {"agent_role": each, "source_id": each} for each in world.names[::40]
    ],
    "/console/session": lambda world: [{"id": each} for each in world.sessions],
    "/console/sessions/revoke": lambda world: [{"user_id": each} for each in world.names[::5]],
    "/console/decision": lambda world: [{"id": each} for each in world.events],
    "/console/policies/guardrail": lambda world: [{"id": each} for each in world.guardrails],
    "/console/policies/source": lambda world: [{"id": each} for each in world.source_patterns],
    "/console/policies/impact": lambda world: [{"id": world.impact, "groups": "all"}],
    "/console/policies/candidate": lambda world: [{"id": world.candidate, "groups": "all"}],
    "/console/policies/candidate/review": lambda world: [{"id": world.candidate}],
    "/console/policy": lambda world: [{"id": each} for each in world.policies],
    "/console/policy/edit": lambda world: [{"id": each} for each in world.policies[::9]],
    "/console/policy/history": lambda world: [{"id": each} for each in world.policies[::9]],
    # No file defines them, so that there is a refusal to see.
    "/console/policy/restore": lambda world: [{"id": each} for each in world.policies[:1]],
    # An analysis each.
    "/console/policy/delete": lambda world: [{"id": each} for each in world.policies[::90]],
    "/console/policy/compare": lambda world: [
        {"id": each, "from": "1", "to": "1"} for each in world.policies[::90]
    ],
    "/console/audit/checkpoint": lambda world: [_signed(world)],
    "/console/alert/rule": lambda world: [{"id": each} for each in world.rules],
    "/console/tenant": lambda world: [{"id": each} for each in world.tenants],
    "/console/key": lambda world: [{"id": each} for each in world.keys],
}
"""The queries by which a page shows objects that are full of payloads."""


def hostile_queries(path: str, world: HostileWorld) -> list[dict[str, str]]:
    """All the queries by which this page shows payloads; the empty one for a list."""
    made = HOSTILE_OBJECTS.get(path)
    return [{}] if made is None else made(world)


def address_of(path: str) -> Address:
    """How the page is opened."""
    return ADDRESSES.get(path, Address())


def shown_pages() -> list[Page]:
    """The pages that a person looks at."""
    return [page for page in PAGES if page.method == "GET" and not address_of(page.path).data]
