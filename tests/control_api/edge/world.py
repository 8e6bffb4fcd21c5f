"""Two tenants on one control API, and an object of either for each parameter that a path may have.

Knows how an object of each kind is made, by the API itself; a route with a new kind of object needs
one line in `MAKERS`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from control_api.edge.route import Route
from tests.control_api.console.reader import Visitor
from tests.control_api.edge.expected import NAMED_IN_BODY, SCOPES
from tests.support.control_api import SUPERADMIN, Answer, ControlApi, asked
from tests.support.waiting import until

REQUIRED_QUERY = {"prove_consistency": "?from=0", "show_access": "?source_id=handbook"}
CANDIDATES = "/v1/policies/candidates"
GUARDRAILS = "/v1/guardrails"
_numbers = itertools.count(1)


class Tenant:
    """One tenant: a key of each scope, and objects made on demand."""

    def __init__(self, api: ControlApi, tenant_id: str, admin_key: str) -> None:
        self.api, self.tenant_id = api, tenant_id
        self.keys = {"admin": admin_key, "superadmin": SUPERADMIN}
        self.impact_id: str | None = None
        for scope in SCOPES:
            if scope not in self.keys:
                fields = {"agent_ids": ["*"]} if scope == "sidecar" else {}
                body = {"name": scope, "scope": scope, **fields}
                self.keys[scope] = self.post("/v1/keys", body)["key"]

    @classmethod
    def made(cls, api: ControlApi, name: str) -> Tenant:
        answer = api.call("POST", "/v1/admin/tenants", {"name": name}, key=SUPERADMIN)
        assert answer.status == 201, answer.raw
        return cls(api, answer.body["tenant_id"], answer.body["admin_key"])

    def prepare(self, route: Route, object_id: str = "") -> None:
        """Waits for the checkpoint that the route shows or needs."""
        if route.name in ("show_checkpoint", "prove_consistency", "prove_event"):
            path, key = path_of(route, object_id), self.keys["admin"]
            needs = {404, 409} if route.name == "show_checkpoint" else {409}
            until("a checkpoint", lambda: self.api.call("GET", path, key=key).status not in needs)

    def post(self, path: str, body: Any) -> Any:
        answer = self.api.call("POST", path, body, key=self.keys["admin"])
        assert answer.status < 300, answer.raw
        return answer.body

    def call(self, route: Route, scope: str, object_id: str) -> Answer:
        """A request to the route for this object; without an object, one that succeeds."""
        self.prepare(route, object_id)
        path, body = path_of(route, object_id), body_of(route, object_id)
        answer = self.api.call(route.method, path, body, key=self.keys[scope])
        if route.name == "freeze_tenant":
            # Objects made later need a tenant that evaluates.
            lifted = self.api.call("DELETE", path, key=self.keys["admin"])
            assert lifted.status == 200, lifted.raw
        return answer


def path_of(route: Route, object_id: str) -> str:
    assert len(route.parameters) <= 1, "a path with two objects needs a world that knows both"
    path = route.path.replace("{" + "".join(route.parameters) + "}", object_id)
    return path + REQUIRED_QUERY.get(route.name, "")


def body_of(route: Route, object_id: str) -> Any:
    """The example of the request model, with an unused name."""
    if not route.body:
        return None
    special = {
        "evaluate_context": asked(),
        "ingest_events": {"source": "s", "instance": "i", "records": []},
        # From the first status, which every new agent has.
        "change_agent_status": {"status": "pending_approval"},
    }
    body = dict(special.get(route.name, route.request_type.example))
    for name in {"name", "agent_id"} & body.keys():
        if not route.parameters or name == "name":
            body[name] = f"made {next(_numbers)}"
    if body.get("bound_key_id"):
        del body["bound_key_id"]
    if field := NAMED_IN_BODY.get((route.method, route.path)):
        body[field] = object_id
    return body


def _event(tenant: Tenant) -> str:
    made: str = tenant.post("/v1/context/evaluate", asked())["event_id"]
    return made


def _session(tenant: Tenant) -> str:
    """A session with an event, so that it has a trail. The denied call still claims it."""
    session_id = f"session-{next(_numbers):08}"
    tenant.post("/v1/context/evaluate", asked(session_id=session_id))
    return session_id


def _console_session(tenant: Tenant) -> str:
    Visitor(tenant.api).sign_in(tenant.keys["admin"])
    newest = tenant.api.call("GET", "/v1/console/sessions?limit=1", key=tenant.keys["admin"])
    return str(newest.body[0]["session_id"])


def _policy(tenant: Tenant) -> str:
    body = {
        "name": f"policy {next(_numbers)}",
        "agent_role": "walker",
        "allowed_sources": ["handbook"],
        "denied_sources": [],
        "max_sensitivity": "low",
    }
    made: str = tenant.post("/v1/policies", body)["policy_id"]
    return made


def _agent(tenant: Tenant) -> str:
    made: str = tenant.post("/v1/agents", {"agent_role": "walker"})["agent_id"]
    return made


def _key(tenant: Tenant) -> str:
    made: str = tenant.post("/v1/keys", {"name": "walked", "scope": "read"})["key_id"]
    return made


def _rule(tenant: Tenant) -> str:
    body = {"name": f"rule {next(_numbers)}", "rule_type": "denial_spike", "threshold": 5}
    made: str = tenant.post("/v1/alerts/rules", body)["rule_id"]
    return made


def _source(tenant: Tenant) -> str:
    pattern = f"source-{next(_numbers)}"
    key = tenant.keys["admin"]
    body = {"sensitivity_level": "critical"}
    answer = tenant.api.call("PUT", f"/v1/sources/{pattern}", body, key=key)
    assert answer.status == 200, answer.raw
    return pattern


def _hold(tenant: Tenant) -> str:
    # On an object that does not exist, so that it holds nothing that the walk removes.
    body = {"object_type": "session", "object_id": "absent", "reason": "walked"}
    made: str = tenant.post("/v1/audit/holds", body)["hold_id"]
    return made


def _impact(tenant: Tenant) -> str:
    """One run for all tests: only a few may go on at a time, and no call makes it disappear."""
    if tenant.impact_id is None:
        started = tenant.post("/v1/policies/impact", {"policies": []})
        tenant.impact_id = str(started["impact_id"])
    return tenant.impact_id


def _candidate(tenant: Tenant) -> str:
    """The only one: there are at most three."""
    for held in tenant.api.call("GET", CANDIDATES, key=tenant.keys["admin"]).body:
        tenant.api.call("DELETE", f"{CANDIDATES}/{held['name']}", key=tenant.keys["admin"])
    name = f"made_{next(_numbers):08}"
    body: object = {"policies": []}
    answer = tenant.api.call("PUT", f"{CANDIDATES}/{name}", body, key=tenant.keys["admin"])
    assert answer.status == 200, answer.raw
    return name


def _guardrail(tenant: Tenant) -> str:
    """The only one, about sources that no policy allows: there are at most 200."""
    for held in tenant.api.call("GET", GUARDRAILS, key=tenant.keys["admin"]).body:
        path = f"{GUARDRAILS}/{quote(held['name'])}"
        tenant.api.call("DELETE", path, key=tenant.keys["admin"])
    rule = {"name": f"made_{next(_numbers):08}", "never": {"sources": ["a source of no policy"]}}
    made: str = tenant.post(GUARDRAILS, rule)["name"]
    return made


def _tenant(tenant: Tenant) -> str:
    return Tenant.made(tenant.api, f"tenant {next(_numbers)}").tenant_id


MAKERS: dict[str, Callable[[Tenant], str]] = {
    "event_id": _event,
    "session_id": _session,
    "console_session": _console_session,
    "policy_id": _policy,
    "agent_id": _agent,
    "key_id": _key,
    "rule_id": _rule,
    "hold_id": _hold,
    "impact_id": _impact,
    "name": _candidate,
    "guardrail": _guardrail,
    "source_pattern": _source,
    "tenant_id": _tenant,
}


def object_kind(route: Route) -> str | None:
    """The kind of object that the route's path or body names."""
    named = NAMED_IN_BODY.get((route.method, route.path))
    if route.parameters and route.path.startswith(GUARDRAILS):
        return "guardrail"  # candidates have a `name` too
    if route.parameters and route.path.startswith("/v1/console/"):
        return "console_session"
    return route.parameters[0] if route.parameters else named


def absent_like(object_id: str) -> str:
    """An unused id of the same form and length."""
    head, mark, tail = object_id.rpartition("_" if "_" in object_id else "-")
    # What ends a UUID is hexadecimal.
    letters = "abcdefghijklmnopqrstuvwxyz" if mark == "_" else "abcdef"
    digits = "0123456789"
    swap = str.maketrans(letters + digits, letters[1:] + "a" + digits[1:] + "0")
    return head + mark + tail.translate(swap)
