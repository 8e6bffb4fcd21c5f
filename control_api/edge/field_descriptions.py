"""Describes each field of a request or response in one sentence.

Most field names mean the same everywhere, so `FIELDS` is keyed by name alone. `OF_TYPE` holds the
names whose meaning depends on their type, and the descriptions of an audit event's fields come from
the table of the record's fields. A description at the field itself overrides all of these. A test
fails on a field without a description, and on a description without a field.
"""

from typing import Any

from policies.trail import fields

_OF_EVENT = {each.shown: each.says for each in fields.FIELDS if each.shown}
FIELDS = {
    **_OF_EVENT,
    "action": "What was done to the object, such as `created` or `status`.",
    "action_type": "What the agent did after the decision: any label.",
    "actions": "What followed from the event, oldest first.",
    "active": "Whether the tenant's keys work. `false` once the tenant is deactivated.",
    "activity": "The agent's activity during the last 7 days.",
    "actor": "Who did it: a key's id, `disk` (a policy file), `enrolment` or `system`.",
    "actor_name": "The name of the key that did it, also of a revoked one; null if no key did.",
    "added": "The names of policies that are new in the files.",
    "admin_key": "The tenant's first admin key. Shown only in this response.",
    "after": "The object afterwards: a whole policy, or the members that differ.",
    "agent_ids": "The registered agents among `agents` that may read it now.",
    "agent_key": "The agent's key, which speaks for this agent alone. Shown only in this response.",
    "agent_key_id": "The id of the agent's key.",
    "agents": "Agents as patterns, with exceptions; `absent` is the call without one.",
    "allowed": "Events with the decision `ALLOW`.",
    "allowed_sources": "Sources the role may read. `*` matches any characters, `?` matches one. An "
    "empty list allows no source.",
    "allowed_tasks": "Tasks the role may perform. An empty list allows every task.",
    "always": "Requests of which every one must be allowed. `null` if the guardrail has `never`.",
    "anchor": "Where the last purge cut the log. `null` if nothing has been purged.",
    "applied": "The live sidecars whose records show the revision, by id.",
    "approved": "Agents with the status `approved`.",
    "at": "When the sidecar made the record, by its own clock (RFC 3339, UTC).",
    "attempts": "How many times delivery was attempted.",
    "audit_policy": "What happens to old audit events, in words.",
    "before": "The object before, as in `after`.",
    "begin": "When the span began (RFC 3339, UTC).",
    "body": "The document as canonical JSON. `null` if the document was removed.",
    "broken_guardrails": "The guardrails that the policies would break.",
    "bound_agent_id": "The only agent that may use this key. `null` if the key is not bound.",
    "bound_key_id": "The only key that may present this agent's identity. `null` for any key.",
    "broken_at": "The `event_id` (or `seq`) of the first entry that fails. `null` if none does.",
    "browser": "A short label of the browser, such as `Firefox on Linux`.",
    "broken_seq": "The `seq` of the first entry that fails. `null` if none does, or if what fails "
    "is not an entry.",
    "by": "The id of the key that asked for it, or `operator` for the command.",
    "by_source_type": "Counts for each source type.",
    "cells": "What the role's policies allow of each of the `sources`, in their order. `null` with "
    "a `fault`.",
    "changed_at": "When the change was made (RFC 3339, UTC).",
    "changed_by": "Who made the change: a key's id, or the policy file.",
    "channel": "How the alert is delivered. `none` if the rule names no destination.",
    "check": "The name of the check. `null` if no single check decided.",
    "checked_at": "When the log was verified (RFC 3339, UTC).",
    "checkpoint": "The log's latest signed checkpoint. `null` before the first one.",
    "checkpoint_size": "The size of the signed checkpoint that proves what was read. `null` until "
    "the run is done.",
    "checks": "The ten checks, in the order they run.",
    "cooldown_minutes": "How long the rule stays quiet after it fires, in minutes.",
    "created_at": "The time of creation (RFC 3339, UTC).",
    "counterexample": "A request that breaks the guardrail, as the body of an evaluation.",
    "credential_type": "How the agent proves its identity.",
    "decided": "Events that the candidate was evaluated for.",
    "delivery_id": "The delivery's id.",
    "denied": "Events with the decision `DENY`.",
    "denied_sources": "Sources the role may not read, even if `allowed_sources` matches them. The "
    "wildcards are the same.",
    "denied_tasks": "Tasks the role may not perform, even if `allowed_tasks` lists them.",
    "deny_rate": "The share of events that were denied, from 0 to 1.",
    "deny_rates": "For each agent, the share of its events that were denied, from 0 to 1.",
    "depends_on": "What decides whether a request at `level` is allowed. Empty if every one is.",
    "deprecated": "Agents with the status `deprecated`.",
    "description": "What the agent is for, and why it needs the data.",
    "digest": "SHA-256 of the document, in hex. `null` if the document was removed.",
    "display_name": "The agent's display name.",
    "documents": "The documents that were requested or that changed.",
    "draft": "Agents with the status `draft`.",
    "dry_run": "Count the sessions, and revoke none.",
    "duplicate": "Whether two running sidecars report the same id.",
    "email": "The email address that alerts are sent to.",
    "enabled": "Whether the rule is evaluated.",
    "entry": "The entry, byte for byte as it was hashed.",
    "direction": "What changes. `unchanged` is the same decision by another policy.",
    "ended_at": "When the run ended (RFC 3339, UTC). `null` while it goes on.",
    "enrolled_until": "When the sidecar's enrolled keys expire. `null` if it has a key of its own.",
    "enrolment": "The generation that the keys belong to. They die when the agent's changes.",
    "epoch": "The id of the store that revisions belong to. It changes if the store is replaced.",
    "error": "Events for which the candidate could not be read or evaluated.",
    "event": "The audit event.",
    "event_ids": "The events whose personal values to erase.",
    "events": "Audit events.",
    "example": "A request that the row matches, as the body of an evaluation.",
    "example_event_ids": "The events of the group's first decisions, at most five.",
    "except_roles": "Roles that the guardrail is not about, with the wildcards `*` and `?`.",
    "expires_at": "When it expires (RFC 3339, UTC). `null` if never.",
    "expires_days": "Days until the key expires. `null` for a key that never expires. The default "
    "is 365, or never for a key of scope `sidecar`.",
    "expires_in": "In how many seconds both keys expire.",
    "facts": "What the check compared.",
    "fault": "Why the role's patterns can't be analysed. `null` if they can.",
    "file": "The file that defines it, in the policy directory. `null` if the API made it.",
    "finished_at": "When the oldest of the last complete verifications ended. `null` before.",
    "finished_size": "How many entries the log had then. `null` before.",
    "fired_at": "When the rule fired (RFC 3339, UTC).",
    "first_seen": "When the sidecar first reported (RFC 3339, UTC).",
    "first_seq": "The sequence number of the log's oldest entry.",
    "forked": "How the log contradicts the checkpoint that the sidecar has pinned, as the "
    "sidecar reports it. `null` if it does not.",
    "framework": "The framework that the agent is built with.",
    "from": "Only events at or after this time (RFC 3339).",
    "frozen": "Whether the tenant is frozen.",
    "frozen_at": "When the tenant was frozen (RFC 3339, UTC). `null` if it is not.",
    "granted_by": "The group that gave the scope, by OpenID Connect. `null` otherwise.",
    "hashes": "The hashes that prove it (RFC 9162), in base64, in the order of the RFC.",
    "head_hash": "The leaf hash of the latest entry, in hex.",
    "index": "The entry's number in the log, from 0: its `seq`.",
    "guardrail": "The guardrail's name.",
    "groups": "The decisions that change, by role, source and policies, the largest first.",
    "held_from": "The first entry that a legal hold keeps: retention removes none from there on. "
    "`null` without one.",
    "hold_id": "The legal hold's id.",
    "impact_id": "The impact run's id.",
    "industry": "A label to filter by. In policy files it defaults to the folder's name.",
    "instance": "The id of one instance of the sidecar's spool.",
    "issuer": "The OpenID Connect provider that the person signed in at. `null` otherwise.",
    "items": "1 to 100 evaluations.",
    "key": "The key itself. Shown only in this response.",
    "key_id": "The key's id, which does not reveal the key.",
    "last_active": "The time of the latest event (RFC 3339, UTC). `null` without events.",
    "last_error": "Why the last attempt failed. `null` if it did not fail.",
    "last_fired_at": "When the rule last fired (RFC 3339, UTC). `null` if it never has.",
    "last_hash": "The leaf hash of the last purged entry, in hex.",
    "last_revision": "The newest revision that the sidecar's records show. `null` for none.",
    "last_seen": "When the sidecar last reported (RFC 3339, UTC).",
    "last_seq": "The sequence number of the last entry.",
    "levels": "The sensitivities.",
    "live": "Whether the sidecar reported recently.",
    "left_out": "Decisions that change too, and whose group is past the limit of 1,000.",
    "level": "What it proves: nothing (`unsigned`), that the log's key signed it (`signed`), or "
    "that the quorum of witnesses cosigned it too (`witnessed`).",
    "consistency": "The hashes of the consistency proof (RFC 9162) from the size that was asked "
    "for; `null` if there is none to show.",
    "method": "How the person signed in: `key`, `link` (one-time) or `oidc`.",
    "never": "Requests of which not one may be allowed. `null` if the guardrail has `always`.",
    "next_source": "The `source_after` of the next page of sources. `null` on the last.",
    "person": "The name in the audit trail: a key's id, or the one that OpenID Connect gave.",
    "pinned_size": "The size of the checkpoint that the sidecar has pinned, 0 for none. With it, "
    "the answer shows the latest checkpoint.",
    "log_key": "The public key that signs the log.",
    "incarnation": "Set if an operator accepted that the log goes on although it is behind a "
    "checkpoint of its own; `null` in a log's first incarnation.",
    "log_key_history": "Earlier log keys, oldest first. Each key endorses the next one.",
    "max_sensitivity": "The highest sensitivity the role may read.",
    "min_events": "The fewest events in the window for `high_deny_rate` to fire.",
    "missing": "The live sidecars whose records do not show the revision yet, by id.",
    "more": "Whether more documents remain. Ask again: from this revision, or for the missing "
    "names.",
    "n": "The number of the last record from this spool that is in the log.",
    "names": "The names of documents, for example `role/support`.",
    "nearest_miss": "The smallest change that would have allowed the call. `null` on an `ALLOW`.",
    "newly_allowed": "Decisions that were denied, and would be allowed.",
    "newly_denied": "Decisions that were allowed, and would be denied.",
    "next_attempt_at": "When delivery is tried again (RFC 3339, UTC). `null` if it is not.",
    "note": "The checkpoint as a signed note (C2SP `tlog-checkpoint`).",
    "now": "The control API's time (RFC 3339, UTC).",
    "object_id": "The id of the session, agent or user that is held.",
    "object_type": "The kind of object that is held.",
    "oldest_unshipped_ms": "The age of the oldest undelivered record, in milliseconds.",
    "openings": "What is still stored of the values that the entry commits to: for each path, "
    "salt and value.",
    "origin": "The name under which the checkpoint was signed.",
    "outcome": "The outcome of the action: any label.",
    "over_time": "Decisions over the `window` that was asked for. `null` without one.",
    "owner": "The team or person responsible for the agent.",
    "pending": "The same number as `pending_approval`.",
    "pending_approval": "Agents with the status `pending_approval`.",
    "permitted_agent_ids": "Agents the policy applies to, with the wildcards of `allowed_sources`. "
    "An empty list means every agent.",
    "permitted_roles": "Roles a caller may claim. If empty, a key allows every role, an agent only "
    "its own `agent_role`.",
    "pii_masking": "Whether personal data is masked before anything is written.",
    "placed_at": "When the hold was placed.",
    "placed_by": "The id of the key that placed the hold.",
    "policy_id": "The policy's id.",
    "policy_name_after": "The policy, or the check, that would decide.",
    "policy_name_before": "The policy, or the check, that decided.",
    "policy_set_age_ms": "The age of the sidecar's policy set, in milliseconds.",
    "process_group": "A label to filter by. In policy files it defaults to the file's name.",
    "progress": "How much of the part has been read, from 0 to 1.",
    "purged_at": "When the purge ran (RFC 3339, UTC).",
    "purged_before": "Entries recorded before this time were purged (RFC 3339, UTC).",
    "purged_count": "How many entries have been purged so far.",
    "queued": "Whether the walk is to begin, and no process has begun it yet.",
    "reached": "The walk has verified the entries before this one.",
    "read": "Decisions that were read: unchanged, changed and unreplayable together.",
    "rejected": "The records of this batch that the sidecar's key may not deliver. Each is in the "
    "log as an entry of kind `rejected_record`; none is to be sent again.",
    "record": "The record as its sidecar spooled it: its fields in clear, and commitments. `null` "
    "if it was too large to be kept.",
    "records": "The records as in the spool, in order and without gaps.",
    "redacted": "How many entries lost their personal values.",
    "refusing": "Why the sidecar denies every request: it is not ready, its tenant is frozen, "
    "or its own key was revoked (`key revoked`)."
    " `null` if it does not.",
    "released_at": "When the hold was released. `null` while it is active.",
    "released_by": "The id of the key that released the hold. `null` while it is active.",
    "removed": "The names of policies that are no longer in the files.",
    "renamed": "Unchanged decisions that another policy would make.",
    "require_agent_id": "Whether every evaluation must name an `agent_id`.",
    "reset": "Whether to drop the local copy first: the documents that follow are a complete set.",
    "results": "The decisions, in the order of `items`.",
    "retention_days": "Days that audit events are kept. `0` keeps them forever.",
    "revision": "The revision of the tenant's policy set. It only ever grows.",
    "revocation_reason": "Why the session was revoked. `null` if it was not.",
    "revoked": "How many sessions this request revoked.",
    "revoked_at": "When the session was revoked (RFC 3339, UTC). `null` if it was not.",
    "roles": "Roles; with the wildcards `*` and `?` in `never`, by their exact names in `always`.",
    "root": "The root of the log's Merkle tree, in base64.",
    "root_hash": "The root of the log's Merkle tree, in hex.",
    "rows": "The answer. No two rows match the same request.",
    "rule_id": "The alert rule's id.",
    "rule_name": "The alert rule's name.",
    "rule_type": "What the rule measures.",
    "running": "Whether a walk over the log is under way, or is to begin (`queued`).",
    "run_id": "The id of one run of the sidecar's process.",
    "same": "Events that the candidate decides alike.",
    "scope": "What the key may do.",
    "seen_at": "The last request, exact to a minute (RFC 3339, UTC).",
    "watched": "Whether the service reads policies from files (`SLUICE_POLICY_DIR`).",
    "refused_at": "Since when the files are refused; null if they are in force.",
    "faults": "Why the files are refused, at most 20 faults, each with its file and line.",
    "held": "The highest level that is stated, by which the decision was made.",
    "source_pattern": "A pattern of source ids, with the wildcards `*` and `?`.",
    "source_levels": "Whether the sidecar applies the tenant's levels of sources.",
    "self_verification": "What the scheduled verification found, over all logs.",
    "semantics": "`all` evaluates every item. `stop_on_deny` and `stop_on_allow` stop after the "
    "first `DENY` or `ALLOW`.",
    "session_policy": "What happens to ended sessions, in words.",
    "session_retention_days": "Days that ended sessions are kept. `0` keeps them forever.",
    "session_ttl_minutes": "How long a session lasts from its first call, in minutes.",
    "sessions": "How many sessions lost their user.",
    "sidecar_ids": "The sidecars that a key of scope `sidecar` speaks as, with the wildcards `*` "
    "and `?`. `null` is any id that no other live key uses.",
    "sidecar_key": "The sidecar's key. Shown only in this response.",
    "sidecars": "The sidecar ids that the key is used under, at most 100.",
    "signature": "The log key's signature on the receipt (Ed25519, base64).",
    "signed_at": "When the log's key signed it (RFC 3339, UTC).",
    "since": "The revision the sidecar has.",
    "size": "How many entries the checkpoint covers.",
    "skipped": "The names of policies left unchanged because a user modified or deleted them.",
    "source": "The sidecar that the spool belongs to.",
    "source_after": "Only sources after this one, by their text.",
    "sources": "The sources that the agent requested most.",
    "span_minutes": "How many minutes each span lasts.",
    "spans": "The decisions of each span, oldest first. The last one has not ended yet.",
    "spool_depth": "How many records are not delivered yet.",
    "started_at": "When it began (RFC 3339, UTC).",
    "state": "Whether the session is active, expired or revoked.",
    "subject": "The person's id at the OpenID Connect provider. `null` otherwise.",
    "suspended": "Agents with the status `suspended`.",
    "target": "Where the alert goes, without secrets.",
    "task": "Only for this task.",
    "tasks": "Tasks by their names, `absent` for the call without one, or `*`, with exceptions.",
    "tenant_id": "The tenant's id.",
    "threshold": "The rule fires when its measure reaches this value.",
    "suggestion": "How a policy should name the source, if one names only the end of its id; else "
    "`null`.",
    "to": "Only events before this time (RFC 3339).",
    "token": "The projected token of the pod's service account, with the audience `sluice`.",
    "top_roles": "The roles with the most events.",
    "top_sources": "The sources with the most events.",
    "total": "The total number.",
    "tree_size": "How many entries the log held when it was cut.",
    "unexplained": "Why the decision can't be explained, in words. `null` if it is explained.",
    "unchanged": "The names of policies that did not change.",
    "updated": "The names of policies whose files changed.",
    "updated_at": "When it last changed (RFC 3339, UTC).",
    "url": "The link. Its code is in the fragment, and works once.",
    "user_id": "The user on whose behalf the agent acts.",
    "user_modified": "Whether a user has changed the policy since its file defined it.",
    "valid": "Whether every entry, hash and signature is valid.",
    "verified_at": "All entries and counts were found right at this time or later, but for what "
    "`reason` says. `null` until then.",
    "wait": "The most seconds to wait for a change.",
    "warnings": "Policy folders that match no tenant but have a name close to this tenant's.",
    "webhook_secret": "The secret that signs this rule's webhooks (Standard Webhooks).",
    "webhook_url": "The URL that alerts are posted to.",
    "window_minutes": "The time window that the rule measures, in minutes.",
    "witnesses": "How many witnesses have cosigned it.",
    "witness_names": "The names of the witnesses whose cosignatures are on its note, of those that "
    "the service asks now.",
    "workload": "The service account whose pods are this agent: "
    "`<issuer>:system:serviceaccount:<namespace>:<name>`. `null` if none.",
}

# Keyed by field, then by the types that share a text.
_BY_TYPE = {
    "agents": {
        "AlwaysAllowed DescribedRequests NeverAllowed": "Agents, with the wildcards `*` and `?`; "
        "`absent` is the call without one."
    },
    "tasks": {
        "AlwaysAllowed DescribedRequests NeverAllowed": "Tasks, by their exact names; `absent` is "
        "the call without one."
    },
    "newly_denied": {"PolicyDifference": "Requests that are allowed now and would be denied."},
    "newly_allowed": {"PolicyDifference": "Requests that are denied now and would be allowed."},
    "level": {
        "AccessRequest": "Only at this sensitivity.",
        "AccessCell": "The highest sensitivity at which some request is allowed, or `null`.",
    },
    "always": {
        "AccessCell": "The highest sensitivity at which every request is allowed, or `null`."
    },
    "agent_ids": {
        "ListedKey NewKey ShownKey": "The agents that a key of scope `sidecar` speaks for, with "
        "the wildcards `*` and `?`; `absent` is a call without one. `null` for other scopes."
    },
    "over_time": {"Activity": "The decisions of the 7 days, in spans of 4 hours."},
    "roles": {"AccessMatrix": "The roles of this page, by name."},
    "after": {"ChangedRow": "What would be decided about it."},
    "before": {"ChangedRow": "What is decided about the example now."},
    "sources": {
        "AlwaysAllowed DescribedRequests NeverAllowed": "Sources, with the wildcards `*` and `?`.",
        "ChangedRow AccessRow": "Sources as patterns, with exceptions.",
        "AccessMatrix": "The columns: sources and patterns, as policies name them.",
        "AccessMatrixRequest": "The most sources to return.",
    },
    "agent_role": {"AccessMatrixRequest": "Only roles that this name or pattern matches."},
    "source_id": {
        "AccessMatrixRequest": "Only sources that overlap this name or pattern, which comes first."
    },
    "answer": {"PolicyReview": "How the request in `ask` would be decided. `null` without one."},
    "ask": {"FailedTest": "What the case asked."},
    "cases": {"TestRun": "How many cases were decided."},
    "failed": {"TestRun": "How many were decided otherwise than they expect."},
    "failures": {"TestRun": "Those cases, at most the first thousand."},
    "faults": {"TestRun": "What is wrong with the file. Nothing is decided if there are some."},
    "line": {"FailedTest FaultInTests": "The line in the file, from 1. `0` is the whole file."},
    "key": {"FaultInTests": "The key that the fault is about. Empty if it is about none."},
    "message": {"FaultInTests": "What is wrong."},
    "expected": {"FailedTest": "What the case expected of the decision."},
    "tests": {"PolicyReview": "How the tests came out. `null` without tests."},
    "changed_since": {
        "CandidateReview": "The roles whose policies in force changed after the candidate was "
        "published, at most a hundred. A promotion undoes such changes."
    },
    "added": {"CandidatePromoted CandidateReview": "The names of policies that are new."},
    "removed": {
        "CandidatePromoted CandidateReview": "The names of policies that the candidate lacks: "
        "deleted."
    },
    "updated": {"CandidatePromoted CandidateReview": "The names of policies that are changed."},
    "change": {
        "PolicyVersion": "What kind of change made this version.",
        "NearestMiss": "The smallest change that would have allowed the call, in words.",
    },
    "number": {"AcceptedIncarnation": "Its place among the log's incarnations; the first is 0."},
    "accepted_at": {"AcceptedIncarnation": "When the operator accepted it (RFC 3339, UTC)."},
    "origin": {"AcceptedIncarnation": "The name under which checkpoints are signed since then."},
    "event_id": {
        "AcceptedIncarnation": "The id of the log's entry, which `GET /v1/audit/proof` proves.",
        "Simulated": "Always `null`: a simulation writes no event.",
    },
    "witnesses": {"LogKeys": "The verifier keys (C2SP) of the witnesses that are asked to cosign."},
    "checkpoint": {
        "ConsistencyProof InclusionProof": "The signed checkpoint that the hashes lead to (C2SP "
        "`tlog-checkpoint`), with its cosignatures."
    },
    "detail": {
        "FiredAlert": "What the rule measured when it fired.",
        "LineageAction": "Any details of the action. `null` if they were erased.",
        "NewAction": "Any details of the action, as an object.",
    },
    "expires_at": {"EnrolledSidecar": "When both keys expire (RFC 3339, UTC)."},
    "explain": {
        "Explained": "The outcome of each check, and what would have allowed the call.",
        "ExplainedEvent": "The outcome of each check, and what would have allowed the call, by the "
        "policies that decided. `null` if that can't be told.",
    },
    "from": {
        "ConsistencyProof": "The size from which growth is proven.",
        "ConsistencyRequest": "How many entries the checkpoint covers that you hold.",
    },
    "last_seq": {"PurgeAnchor": "The sequence number of the last purged entry."},
    "name": {
        "CandidateRequest CandidatePolicies CandidateListed CandidateResponse CandidatePublished "
        "CandidatePromoted CandidateReview PromotedCandidate": "The candidate's name, unique in "
        "the tenant.",
        "AlertRule AlertRuleWithSecret ChangedRule NewRule": "The rule's name, unique in the "
        "tenant.",
        "CreatedKey ListedKey NewKey ProvisionedKey ShownKey": "The key's display name.",
        "FailedTest": "The case's name.",
        "PoliciesRequest": "Part of a policy's name, in any case.",
        "PolicyBody PolicyFields PolicyResponse ReplacedPolicy": "The policy's name, unique among "
        "the tenant's active policies.",
        "GuardrailBody GuardrailRequest GuardrailResponse NewGuardrail": "The guardrail's name, "
        "unique in the tenant.",
        "SetDocument": "The document's name, for example `role/support` or `agent/agt_loans`.",
        "NewTenant TenantResponse": "The tenant's name, unique in this installation.",
    },
    "levels": {
        "Explanation": "Who states which level of the source. `null` if only the request does."
    },
    "request": {"LevelsResponse": "The request's level. `null` if it states none."},
    "sidecar": {"LevelsResponse": "The level in the sidecar's settings. `null` if there is none."},
    "tenant": {"LevelsResponse": "The tenant's level (`/v1/sources`). `null` if there is none."},
    "object_id": {"ChangeResponse ChangesRequest": "The id of what was changed."},
    "object_type": {
        "ChangeResponse ChangesRequest": "The kind of object: `policy`, `agent`, `key`, `session`, "
        "`alert`, `settings`, `tenant`, `candidate`, `guardrail`, `source`, `sidecar`, "
        "`enrolment` or `log`."
    },
    "outcome": {
        "ExplainedCheck": "The outcome of the check.",
        "LineageAction": "The outcome of the action. `null` if none was recorded.",
    },
    "policy": {
        "PolicyVersion": "The policy as this version defined it.",
        "Retention": "What happens to old audit events, in words.",
    },
    "events": {
        "RedactionResponse": "The ranges `[first, last]` of the entries whose values were erased."
    },
    "more": {"Redacted": "Whether more is left: send the same request again."},
    "n": {"Rejected RejectedRecord": "The number of the record in its spool."},
    "reason": {
        "Rejected RejectedRecord": "Why, in a word: see `control_api/log/README.md`.",
        "NewStatus ChangedAgent": "Why. The log keeps it forever: nothing personal.",
        "ChangeResponse": "Why it was made. `null` if no reason was recorded.",
        "ImpactResponse": "Why the run failed. `null` unless it did.",
        "Redaction RedactionResponse": "Why. The log keeps it forever: nothing personal.",
        "NewHold HoldResponse": "Why it is held. The log keeps it forever: nothing personal.",
        "Release": "Why the hold ends. The log keeps it forever: nothing personal.",
        "Verified": "What fails at `broken_at`: `code: sentence`. `null` if the log is valid.",
        "RevokeSessionRequest": "Why the session is revoked.",
        "Verification": "What fails first: `code: sentence`. `null` if nothing does.",
    },
    "revision": {
        "SetDocument": "The revision in which the document last changed.",
        "CandidateListed CandidateResponse CandidatePublished": "The revision of the policy set "
        "from which the candidate is evaluated. Its counts begin there.",
    },
    "size": {"ProofRequest": "The size of the checkpoint to prove it in. The latest if left out."},
    "count": {
        "DecisionGroup": "The decisions of the group.",
        "Renamed Unreplayable": "How many decisions.",
    },
    "entries": {"ImpactResponse": "Entries of every kind that were read."},
    "first_seq": {"ImpactResponse": "The first entry of the part."},
    "finished_at": {"Verification": "When the walk was last at the log's end. `null` before."},
    "first": {
        "DecisionGroup": "When the earliest was made (RFC 3339, UTC).",
        "Verification": "The `seq` of the log's oldest entry.",
    },
    "last": {"DecisionGroup": "When the latest was made (RFC 3339, UTC)."},
    "policies": {
        "ImpactRequest": "All policies that would be in force, without ids.",
        "ComparedPolicies ReviewedPolicies": "The tenant's policies, as they would be.",
        "AccessRow": "The policies that allow it, by name.",
        "CandidatePolicies": "All policies of the candidate, without ids.",
        "CandidatePublished": "How many policies the candidate has.",
    },
    "state": {
        "SelfVerified": "Whether every log verifies: `valid`, `damaged` or `pending`.",
        "ImpactResponse": "Whether the run goes on, or how it ended.",
        "Verification": "What is known of the log: `valid`, `damaged`, or `pending` at first.",
    },
    "unchanged": {"ImpactResponse": "Decisions that stay the same, by whichever policy."},
    "unreplayable": {"ImpactResponse": "Decisions that can't be made again, by the reason."},
    "until_seq": {"ImpactResponse": "The first entry that is left out."},
    "why": {
        "Unreplayable": "What the entry lacks. `no_facts`: it was made outside of the ten checks, "
        "as with a stale policy set. `masked`: a field that policies ask about is masked."
    },
    "source": {
        "PoliciesRequest": "Part of an entry that the policy allows or denies, as it is written.",
        "GuardrailResponse": "Whether a `file` or the `api` defines it.",
    },
    "status": {
        "EnrolledSidecar": "The agent's status. There are keys only if it is `approved`.",
        "AgentDetail AgentResponse": "The agent's status. Only an `approved` agent may evaluate.",
        "NewAgent": "Only `draft` is accepted. Approve the agent in a separate step.",
        "NewStatus": "The status to move the agent to.",
        "AgentsRequest": "Only agents with this status.",
        "SessionsRequest": "Only sessions with this status.",
        "SessionDetail SessionResponse": "Whether the session is active, expired or revoked.",
        "FiredAlert": "The status of the delivery.",
        "Alive Done Ready": "Always `ok`.",
        "Reloaded": "Always `reloaded`.",
    },
    "to": {
        "ConsistencyProof": "The size of the checkpoint.",
        "ConsistencyRequest": "The size of a later checkpoint. The latest if left out.",
    },
    "total": {
        "Verified": "How many entries of every kind were verified.",
        "RegistryCounts": "Registered agents.",
        "Verification": "How many entries the log has now, those that were purged included.",
    },
    "user_id": {"Redaction": "The user whose values to erase, exactly as recorded."},
    "version": {
        "CandidateReview": "What was reviewed, for `If-Match` of the promotion.",
        "Alive Ready": "The software's version.",
        "Report SidecarResponse": "The sidecar's software version.",
        "PolicyResponse PolicyVersion": "The version's number, counted from 1.",
    },
    "webhook_secret": {"ChangedRule": "`null` makes a new secret, shown once in the answer."},
}

OF_TYPE = {
    f"AuditEvent.{field}": text for field, text in _OF_EVENT.items() if FIELDS[field] != text
} | {
    f"{type_name}.{field}": text
    for field, texts in _BY_TYPE.items()
    for type_names, text in texts.items()
    for type_name in type_names.split()
}


def describe_fields(type_name: str, schema: dict[str, Any]) -> None:
    """Add a description to every property of an object's schema that has none."""
    for name, member in schema.get("properties", {}).items():
        text = describe(type_name, name)
        if text is not None and "description" not in member:
            member["description"] = text


def describe(type_name: str, field: str) -> str | None:
    """Return the description of `field` in `type_name`, or None if neither table has one."""
    return OF_TYPE.get(f"{type_name}.{field}") or FIELDS.get(field)
