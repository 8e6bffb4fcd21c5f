"""Turns stored rows and decisions into the responses of the API.

Knows the fields of both sides. Knows nothing of how a row came about.
"""

from collections.abc import Mapping
from typing import Any, cast

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.caches.page_reads import EncodedPage
from control_api.log.read import EventPage
from control_api.responses.agents import AgentShown
from control_api.responses.audit import AuditEvent
from control_api.responses.console import ConsoleSessionShown
from control_api.responses.evaluations import (
    CheckShown,
    Evaluated,
    Explained,
    Explanation,
    LevelsShown,
    NearestMiss,
    Simulated,
)
from control_api.responses.keys import CreatedKey, ListedKey
from control_api.responses.management import PolicyShown, RetentionSettings
from control_api.responses.paging import Page
from control_api.responses.sidecars import PolicySetPage, SetDocument
from control_api.responses.tenants import SessionDetail, TenantShown
from control_api.responses.times import time_or_none
from control_api.store.counters.queries import CountedValue
from control_api.store.queries.agents import StoredAgent
from control_api.store.queries.console_sessions import ConsoleSession
from control_api.store.queries.keys import StoredKey
from control_api.store.queries.policies import StoredPolicy
from control_api.store.queries.sessions import SessionRow
from control_api.store.queries.tenants import StoredTenant
from policies.checks.finding import Facts
from policies.evaluate import Decision
from policies.explain import explain
from policies.ground.canonical import b64, rfc3339
from policies.retrieval import Retrieval


def created_key(key: StoredKey, secret: str) -> CreatedKey:
    return CreatedKey(
        key_id=key.key_id,
        name=key.name,
        key=secret,
        scope=key.scope,
        expires_at=time_or_none(key.expires_at),
        created_at=rfc3339(key.created_at),
    )


def listed_key(key: StoredKey) -> ListedKey:
    return ListedKey(
        key_id=key.key_id,
        name=key.name,
        scope=key.scope,
        bound_agent_id=key.bound_agent_id,
        permitted_roles=list(key.permitted_roles),
        expires_at=time_or_none(key.expires_at),
        created_at=rfc3339(key.created_at),
        agent_ids=key.shown_patterns(key.agent_ids),
        sidecar_ids=key.shown_patterns(key.sidecar_ids),
    )


def shown_console_session(session: ConsoleSession) -> ConsoleSessionShown:
    return ConsoleSessionShown(
        session_id=session.session_id,
        person=session.person,
        method=session.method,
        scope=session.scope,
        issuer=session.issuer,
        subject=session.subject,
        granted_by=session.granted_by,
        browser=session.browser,
        created_at=rfc3339(session.created_at),
        seen_at=rfc3339(session.seen_at),
        expires_at=rfc3339(session.expires_at),
    )


def shown_agent(agent: StoredAgent) -> AgentShown:
    return AgentShown(**agent.shown())


def shown_policy(policy: StoredPolicy, changed_by: str) -> PolicyShown:
    return PolicyShown(
        policy_id=policy.policy_id,
        version=policy.version,
        **policy.body,
        user_modified=policy.user_modified,
        file=policy.file,
        changed_by=changed_by,
        created_at=rfc3339(policy.created_at),
        updated_at=rfc3339(policy.updated_at),
    )


def session_fields(row: SessionRow, now: int) -> dict[str, Any]:
    """The fields of `SessionShown`."""
    return {
        "session_id": row.session_id,
        "agent_role": row.agent_role,
        "status": row.state(now),
        "created_at": rfc3339(row.created_at),
        "expires_at": rfc3339(row.expires_at),
    }


def session_detail(row: SessionRow, counted: CountedValue, now: int) -> SessionDetail:
    return SessionDetail(
        **session_fields(row, now),
        agent_id=row.agent_id,
        user_id=row.user_id,
        revoked_at=time_or_none(row.revoked_at),
        revocation_reason=row.revocation_reason,
        events=counted.total,
        allowed=counted.allowed,
        denied=counted.denied,
        # The counter has 0 if no decision names the session.
        last_active=time_or_none(counted.last_ts or None),
    )


def shown_tenant(tenant: StoredTenant) -> TenantShown:
    fields: dict[str, Any] = {name: getattr(tenant, name) for name in TenantShown.__slots__}
    fields["created_at"] = rfc3339(tenant.created_at)
    fields["frozen_at"] = time_or_none(tenant.frozen_at)
    return TenantShown(**fields)


def shown_retention(tenant: StoredTenant) -> RetentionSettings:
    return RetentionSettings(
        tenant.retention_days,
        tenant.session_retention_days,
        audit_policy_text(tenant.retention_days),
        _session_policy_text(tenant.session_retention_days),
    )


def audit_policy_text(days: int) -> str:
    """What happens to old audit events, in words; 0 days keeps them forever."""
    if not days:
        return "audit events are kept forever"
    return (
        f"audit events recorded more than {_days(days)} ago are removed every hour, the oldest "
        "first; the rest still verifies, from the anchor on"
    )


def _session_policy_text(days: int) -> str:
    if not days:
        return "expired and revoked sessions are kept forever"
    return (
        f"sessions that expired or were revoked more than {_days(days)} ago are removed every "
        "hour; their ids are never used again"
    )


def _days(days: int) -> str:
    return "1 day" if days == 1 else f"{days} days"


def policy_set_page(
    app: AppContext, caller: Caller, found: EncodedPage, *, reset: bool
) -> PolicySetPage:
    """A page of the policy set as a sidecar reads it, with the log keys that sign for the tenant.

    `reset` tells the sidecar to drop its copy first.
    """
    return PolicySetPage(
        epoch=app.epoch,
        revision=found.page.revision,
        reset=reset,
        more=found.page.more,
        now=rfc3339(app.clock.now()),
        tenant_id=caller.tenant.tenant_id,
        log_key=b64(app.signer.public),
        log_key_history=[each.to_wire() for each in app.ring.history],
        # Encoded once for all sidecars that get the page.
        documents=cast("list[SetDocument]", found.documents),
    )


def event_page(trail: EventPage) -> Page[AuditEvent]:
    return Page(
        [AuditEvent(**event) for event in trail.events],
        None if trail.next is None else (trail.next,),
    )


def explained(
    answer: Evaluated | Simulated, retrieval: Retrieval, facts: Facts | None, decision: Decision
) -> Explained:
    """The same answer, with the outcome of each check and the nearest miss."""
    shown = explanation_shown(explain(retrieval, facts, decision))
    return Explained(answer.decision, answer.policy_name, answer.reason, answer.event_id, shown)


def explanation_shown(explanation: Mapping[str, Any]) -> Explanation:
    """What `policies.explain.explain` gives, as a response shows it."""
    checks = [CheckShown(**check) for check in explanation["checks"]]
    miss = explanation["nearest_miss"]
    levels = explanation.get("levels")
    shown = None if levels is None else LevelsShown(**levels)
    return Explanation(checks, None if miss is None else NearestMiss(**miss), shown)


def deny_rate(allowed: int, denied: int) -> float:
    """The share of decisions that were `DENY`, from 0 to 1; 0 if there were none."""
    return denied / (allowed + denied) if denied else 0.0
