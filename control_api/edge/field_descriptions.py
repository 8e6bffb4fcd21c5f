"""Describes each field of a request or response in one sentence.

A field's sentence stands at the field: `Annotated[int, says("…")]`, or `Field(…, description="…")`
if it has a `Field` anyway. `FIELDS` is the shared vocabulary, by name: what means the same in two
types or more, and the fields of a record, from their table. A test fails on a field without a
sentence, and on a name here that is not shared.
"""

from typing import Any

from pydantic import Field

from policies.trail import fields

_OF_EVENT = {each.shown: each.says for each in fields.FIELDS if each.shown}
FIELDS = {
    **_OF_EVENT,
    "action": "What was done to the object, such as `created` or `status`.",
    "action_type": "What the agent did after the decision: any label.",
    "active": "Whether the tenant's keys work. `false` once the tenant is deactivated.",
    "actor": "Who did it: a key's id, `disk` (a policy file), `enrolment` or `system`.",
    "agent_ids": "The registered agents among `agents` that may read it now.",
    "agents": "Agents as patterns, with exceptions; `absent` is the call without one.",
    "allowed": "Events with the decision `ALLOW`.",
    "allowed_sources": "Sources the role may read. `*` matches any characters, `?` matches one. An "
    "empty list allows no source.",
    "allowed_tasks": "Tasks the role may perform. An empty list allows every task.",
    "always": "Requests of which every one must be allowed. `null` if the guardrail has `never`.",
    "anchor": "Where the last purge cut the log. `null` if nothing has been purged.",
    "bound_agent_id": "The only agent that may use this key. `null` if the key is not bound.",
    "bound_key_id": "The only key that may present this agent's identity. `null` for any key.",
    "broken_at": "The `event_id` (or `seq`) of the first entry that fails. `null` if none does.",
    "broken_guardrails": "The guardrails that the policies would break.",
    "by": "The id of the key that asked for it, or `operator` for the command.",
    "changed_by": "Who made the change: a key's id, or the policy file.",
    "check": "The name of the check. `null` if no single check decided.",
    "checkpoint": "The log's latest signed checkpoint. `null` before the first one.",
    "checks": "The ten checks, in the order they run.",
    "cooldown_minutes": "How long the rule stays quiet after it fires, in minutes.",
    "created_at": "The time of creation (RFC 3339, UTC).",
    "credential_type": "How the agent proves its identity.",
    "denied": "Events with the decision `DENY`.",
    "denied_sources": "Sources the role may not read, even if `allowed_sources` matches them. The "
    "wildcards are the same.",
    "denied_tasks": "Tasks the role may not perform, even if `allowed_tasks` lists them.",
    "deny_rate": "The share of events that were denied, from 0 to 1.",
    "description": "What the agent is for, and why it needs the data.",
    "display_name": "The agent's display name.",
    "email": "The email address that alerts are sent to.",
    "enabled": "Whether the rule is evaluated.",
    "enrolled_until": "When the sidecar's enrolled keys expire. `null` if it has a key of its own.",
    "epoch": "The id of the store that revisions belong to. It changes if the store is replaced.",
    "event": "The audit event.",
    "events": "Audit events.",
    "except_roles": "Roles that the guardrail is not about, with the wildcards `*` and `?`.",
    "expires_at": "When it expires (RFC 3339, UTC). `null` if never.",
    "file": "The file that defines it, in the policy directory. `null` if the API made it.",
    "forked": "How the log contradicts the checkpoint that the sidecar has pinned, as the "
    "sidecar reports it. `null` if it does not.",
    "framework": "The framework that the agent is built with.",
    "from": "Only events at or after this time (RFC 3339).",
    "frozen_at": "When the tenant was frozen (RFC 3339, UTC). `null` if it is not.",
    "groups": "The decisions that change, by role, source and policies, the largest first.",
    "hashes": "The hashes that prove it (RFC 9162), in base64, in the order of the RFC.",
    "hold_id": "The legal hold's id.",
    "impact_id": "The impact run's id.",
    "industry": "A label to filter by. In policy files it defaults to the folder's name.",
    "instance": "The id of one instance of the sidecar's spool.",
    "key_id": "The key's id, which does not reveal the key.",
    "last_active": "The time of the latest event (RFC 3339, UTC). `null` without events.",
    "last_seen": "When the sidecar last reported (RFC 3339, UTC).",
    "left_out": "Decisions that change too, and whose group is past the limit of 1,000.",
    "level": "What it proves: nothing (`unsigned`), that the log's key signed it (`signed`), or "
    "that the quorum of witnesses cosigned it too (`witnessed`).",
    "levels": "The sensitivities.",
    "log_key": "The public key that signs the log.",
    "log_key_history": "Earlier log keys, oldest first. Each key endorses the next one.",
    "max_sensitivity": "The highest sensitivity the role may read.",
    "min_events": "The fewest events in the window for `high_deny_rate` to fire.",
    "nearest_miss": "The smallest change that would have allowed the call. `null` on an `ALLOW`.",
    "never": "Requests of which not one may be allowed. `null` if the guardrail has `always`.",
    "newly_allowed": "Decisions that were denied, and would be allowed.",
    "newly_denied": "Decisions that were allowed, and would be denied.",
    "now": "The control API's time (RFC 3339, UTC).",
    "object_id": "The id of the session, agent or user that is held.",
    "object_type": "The kind of object that is held.",
    "oldest_unshipped_ms": "The age of the oldest undelivered record, in milliseconds.",
    "owner": "The team or person responsible for the agent.",
    "permitted_agent_ids": "Agents the policy applies to, with the wildcards of `allowed_sources`. "
    "An empty list means every agent.",
    "permitted_roles": "Roles a caller may claim. If empty, a key allows every role, an agent only "
    "its own `agent_role`.",
    "pii_masking": "Whether personal data is masked before anything is written.",
    "policy_id": "The policy's id.",
    "policy_set_age_ms": "The age of the sidecar's policy set, in milliseconds.",
    "process_group": "A label to filter by. In policy files it defaults to the file's name.",
    "refusing": "Why the sidecar denies every request: it is not ready, its tenant is frozen, "
    "or its own key was revoked (`key revoked`)."
    " `null` if it does not.",
    "require_agent_id": "Whether every evaluation must name an `agent_id`.",
    "retention_days": "Days that audit events are kept. `0` keeps them forever.",
    "revision": "The revision of the tenant's policy set. It only ever grows.",
    "roles": "Roles; with the wildcards `*` and `?` in `never`, by their exact names in `always`.",
    "root_hash": "The root of the log's Merkle tree, in hex.",
    "rule_id": "The alert rule's id.",
    "rule_type": "What the rule measures.",
    "scope": "What the key may do.",
    "session_retention_days": "Days that ended sessions are kept. `0` keeps them forever.",
    "session_ttl_minutes": "How long a session lasts from its first call, in minutes.",
    "sidecar_ids": "The sidecars that a key of scope `sidecar` speaks as, with the wildcards `*` "
    "and `?`. `null` is any id that no other live key uses.",
    "size": "How many entries the checkpoint covers.",
    "source": "The sidecar that the spool belongs to.",
    "source_levels": "Whether the sidecar applies the tenant's levels of sources.",
    "source_pattern": "A pattern of source ids, with the wildcards `*` and `?`.",
    "spool_depth": "How many records are not delivered yet.",
    "suggestion": "How a policy should name the source, if one names only the end of its id; else "
    "`null`.",
    "tasks": "Tasks by their names, `absent` for the call without one, or `*`, with exceptions.",
    "tenant_id": "The tenant's id.",
    "threshold": "The rule fires when its measure reaches this value.",
    "to": "Only events before this time (RFC 3339).",
    "total": "The total number.",
    "unchanged": "The names of policies that did not change.",
    "updated_at": "When it last changed (RFC 3339, UTC).",
    "user_id": "The user on whose behalf the agent acts.",
    "webhook_url": "The URL that alerts are posted to.",
    "window_minutes": "The time window that the rule measures, in minutes.",
    "witnesses": "How many witnesses have cosigned it.",
    "workload": "The service account whose pods are this agent: "
    "`<issuer>:system:serviceaccount:<namespace>:<name>`. `null` if none.",
}


def says(sentence: str) -> Any:
    """Describe a field in its annotation: `Annotated[int, says("The total number.")]`."""
    return Field(description=sentence)


def describe_fields(type_name: str, schema: dict[str, Any]) -> None:
    """Add a description to every property of an object's schema that has none."""
    # An audit event's fields are the record's, also where other types mean something else.
    sentences = {**FIELDS, **_OF_EVENT} if type_name == "AuditEvent" else FIELDS
    for name, member in schema.get("properties", {}).items():
        if name in sentences:
            member.setdefault("description", sentences[name])
