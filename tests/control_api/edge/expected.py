"""What each route may be asked by whom, written down from `CONTRACT.md`, Scopes, and from no line
of the implementation: a route that stands here and not there, or there and not here, is a fault.

`own` is the status for an object of one's own tenant. Knows no route's code.
"""

from __future__ import annotations

from typing import NamedTuple

SCOPES = ("evaluate", "read", "admin", "sidecar", "superadmin")

# The classes of scopes: who may.
EVALUATE = frozenset({"evaluate", "admin"})
READ = frozenset({"read", "admin"})
ADMIN = frozenset({"admin"})
SIDECAR = frozenset({"sidecar", "admin"})
SUPERADMIN = frozenset({"superadmin"})
PEOPLE = READ | SUPERADMIN


class Expected(NamedTuple):
    may: frozenset[str]
    own: int = 200


EXPECTED = {
    ("POST", "/v1/context/evaluate"): Expected(EVALUATE),
    ("POST", "/v1/context/evaluate/batch"): Expected(EVALUATE),
    ("POST", "/v1/context/simulate"): Expected(READ),
    ("GET", "/v1/audit/events"): Expected(READ),
    ("GET", "/v1/audit/events/{event_id}"): Expected(READ),
    ("GET", "/v1/audit/changes"): Expected(READ),
    ("GET", "/v1/audit/rejected-records"): Expected(READ),
    ("GET", "/v1/audit/log-keys"): Expected(READ),
    ("GET", "/v1/audit/acknowledgements"): Expected(READ),
    ("GET", "/v1/audit/stats"): Expected(READ),
    ("GET", "/v1/audit/verify"): Expected(READ),
    ("GET", "/v1/audit/verification"): Expected(READ),
    ("POST", "/v1/audit/verification"): Expected(READ, 202),
    ("GET", "/v1/audit/checkpoint"): Expected(READ),
    ("GET", "/v1/audit/checkpoints"): Expected(READ),
    ("GET", "/v1/audit/export"): Expected(READ),
    ("GET", "/v1/audit/proof/{event_id}"): Expected(READ),
    ("GET", "/v1/audit/consistency"): Expected(READ),
    ("GET", "/v1/audit/retention"): Expected(READ),
    ("GET", "/v1/audit/sessions/{session_id}"): Expected(READ),
    ("POST", "/v1/audit/lineage"): Expected(EVALUATE, 201),
    ("GET", "/v1/audit/lineage/{event_id}"): Expected(READ),
    ("POST", "/v1/audit/redact"): Expected(ADMIN),
    ("GET", "/v1/audit/redactions"): Expected(READ),
    ("GET", "/v1/audit/holds"): Expected(READ),
    ("POST", "/v1/audit/holds"): Expected(ADMIN, 201),
    ("POST", "/v1/audit/holds/{hold_id}/release"): Expected(ADMIN),
    ("GET", "/v1/policies"): Expected(READ),
    ("POST", "/v1/policies"): Expected(ADMIN, 201),
    ("POST", "/v1/policies/diff"): Expected(READ),
    ("POST", "/v1/policies/review"): Expected(READ),
    ("GET", "/v1/policies/access"): Expected(READ),
    ("GET", "/v1/policies/access/matrix"): Expected(READ),
    ("GET", "/v1/policies/files"): Expected(READ),
    ("POST", "/v1/policies/reload"): Expected(ADMIN),
    ("POST", "/v1/policies/impact"): Expected(ADMIN, 202),
    ("GET", "/v1/policies/impact/{impact_id}"): Expected(READ),
    ("DELETE", "/v1/policies/impact/{impact_id}"): Expected(ADMIN),
    ("GET", "/v1/policies/candidates"): Expected(READ),
    ("GET", "/v1/policies/candidates/{name}"): Expected(READ),
    ("PUT", "/v1/policies/candidates/{name}"): Expected(ADMIN),
    ("DELETE", "/v1/policies/candidates/{name}"): Expected(ADMIN),
    ("GET", "/v1/policies/candidates/{name}/review"): Expected(READ),
    ("POST", "/v1/policies/candidates/{name}/promote"): Expected(ADMIN),
    ("GET", "/v1/policies/{policy_id}"): Expected(READ),
    ("PUT", "/v1/policies/{policy_id}"): Expected(ADMIN),
    ("DELETE", "/v1/policies/{policy_id}"): Expected(ADMIN),
    ("GET", "/v1/policies/{policy_id}/history"): Expected(READ),
    # What no file defines can't be restored.
    ("GET", "/v1/policies/{policy_id}/file"): Expected(READ, 404),
    ("POST", "/v1/policies/{policy_id}/restore"): Expected(ADMIN, 409),
    ("GET", "/v1/sources"): Expected(READ),
    ("PUT", "/v1/sources/{source_pattern}"): Expected(ADMIN),
    ("DELETE", "/v1/sources/{source_pattern}"): Expected(ADMIN),
    ("GET", "/v1/guardrails"): Expected(READ),
    ("POST", "/v1/guardrails"): Expected(ADMIN, 201),
    ("GET", "/v1/guardrails/{name}"): Expected(READ),
    ("PUT", "/v1/guardrails/{name}"): Expected(ADMIN),
    ("DELETE", "/v1/guardrails/{name}"): Expected(ADMIN),
    ("GET", "/v1/agents"): Expected(READ),
    ("POST", "/v1/agents"): Expected(ADMIN, 201),
    ("GET", "/v1/agents/stats/summary"): Expected(READ),
    ("GET", "/v1/agents/{agent_id}"): Expected(READ),
    ("PUT", "/v1/agents/{agent_id}"): Expected(ADMIN),
    ("PATCH", "/v1/agents/{agent_id}/status"): Expected(ADMIN),
    ("GET", "/v1/keys"): Expected(READ),
    ("POST", "/v1/keys"): Expected(ADMIN, 201),
    ("GET", "/v1/keys/{key_id}"): Expected(READ),
    ("DELETE", "/v1/keys/{key_id}"): Expected(ADMIN),
    ("PATCH", "/v1/keys/{key_id}/binding"): Expected(ADMIN),
    ("POST", "/v1/keys/{key_id}/rotate"): Expected(ADMIN, 201),
    ("GET", "/v1/sessions"): Expected(READ),
    ("POST", "/v1/sessions/revoke"): Expected(ADMIN),
    ("GET", "/v1/sessions/{session_id}"): Expected(READ),
    ("DELETE", "/v1/sessions/{session_id}"): Expected(ADMIN),
    ("POST", "/v1/console/sign-in-links"): Expected(PEOPLE, 201),
    ("GET", "/v1/console/sessions"): Expected(PEOPLE),
    ("DELETE", "/v1/console/sessions/{session_id}"): Expected(PEOPLE),
    ("GET", "/v1/freeze"): Expected(READ),
    ("POST", "/v1/freeze"): Expected(ADMIN),
    ("DELETE", "/v1/freeze"): Expected(ADMIN),
    ("GET", "/v1/settings/retention"): Expected(READ),
    ("PUT", "/v1/settings/retention"): Expected(ADMIN),
    ("GET", "/v1/alerts/rules"): Expected(READ),
    ("POST", "/v1/alerts/rules"): Expected(ADMIN, 201),
    ("GET", "/v1/alerts/rules/{rule_id}"): Expected(READ),
    ("PUT", "/v1/alerts/rules/{rule_id}"): Expected(ADMIN),
    ("DELETE", "/v1/alerts/rules/{rule_id}"): Expected(ADMIN),
    ("GET", "/v1/alerts/fired"): Expected(READ),
    ("GET", "/v1/sidecars"): Expected(READ),
    ("POST", "/v1/sidecars/report"): Expected(SIDECAR),
    ("GET", "/v1/sidecars/policy-set"): Expected(SIDECAR),
    ("POST", "/v1/sidecars/policy-set/documents"): Expected(SIDECAR),
    ("POST", "/v1/sidecars/sessions/claim"): Expected(SIDECAR),
    ("POST", "/v1/sidecars/events"): Expected(SIDECAR),
    ("GET", "/v1/admin/tenants"): Expected(SUPERADMIN),
    ("POST", "/v1/admin/tenants"): Expected(SUPERADMIN, 201),
    ("GET", "/v1/admin/tenants/{tenant_id}"): Expected(SUPERADMIN),
    ("DELETE", "/v1/admin/tenants/{tenant_id}"): Expected(SUPERADMIN),
    ("POST", "/v1/admin/tenants/{tenant_id}/reactivate"): Expected(SUPERADMIN),
    ("PATCH", "/v1/admin/tenants/{tenant_id}/settings"): Expected(SUPERADMIN),
    ("POST", "/v1/admin/tenants/{tenant_id}/keys"): Expected(SUPERADMIN, 201),
}

NAMED_IN_BODY = {("POST", "/v1/audit/lineage"): "event_id"}
"""Routes that name their object in the body."""

PERSONAL = {("DELETE", "/v1/console/sessions/{session_id}")}
"""Routes to whose objects a scope below the admin's is not enough: a `read` key ends its own
sessions of the console, and the superadmin's belong to no tenant."""

CREATES = {("PUT", "/v1/policies/candidates/{name}"), ("PUT", "/v1/sources/{source_pattern}")}
"""Routes to which no object is unknown: they create it under the name that they are given."""
