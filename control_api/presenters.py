"""Rows as the API shows them. Knows the fields of both, and nothing of how a row came about."""

from typing import Any

from control_api.alerts.evaluator import target_of
from control_api.responses.agents import AgentShown
from control_api.responses.alerts import AlertRule, AlertRuleWithSecret
from control_api.responses.management import CreatedKey, ListedKey, PolicyShown
from control_api.responses.tenants import SessionDetail, TenantShown
from control_api.store.counters.queries import CountedValue
from control_api.store.queries.agents import StoredAgent
from control_api.store.queries.alerts import StoredRule
from control_api.store.queries.keys import StoredKey
from control_api.store.queries.policies import StoredPolicy
from control_api.store.queries.sessions import SessionRow
from control_api.store.queries.tenants import StoredTenant
from policies.ground.canonical import rfc3339
from policies.ground.errors import NotFound


def created_key(key: StoredKey, secret: str) -> CreatedKey:
    return CreatedKey(
        key_id=key.key_id,
        name=key.name,
        key=secret,
        scope=key.scope,  # type: ignore[arg-type]  # the row was written from the same set
        expires_at=time_or_none(key.expires_at),
        created_at=rfc3339(key.created_at),
    )


def listed_key(key: StoredKey) -> ListedKey:
    return ListedKey(
        key_id=key.key_id,
        name=key.name,
        scope=key.scope,  # type: ignore[arg-type]
        bound_agent_id=key.bound_agent_id,
        permitted_roles=list(key.permitted_roles),
        expires_at=time_or_none(key.expires_at),
        created_at=rfc3339(key.created_at),
    )


def shown_agent(agent: StoredAgent) -> AgentShown:
    return AgentShown(**agent_fields(agent))


def agent_fields(agent: StoredAgent) -> dict[str, Any]:
    """The fields of `AgentShown`."""
    return {
        **{name: getattr(agent, name) for name in StoredAgent.__slots__},
        "permitted_roles": list(agent.permitted_roles or (agent.agent_role,)),
        "created_at": rfc3339(agent.created_at),
        "updated_at": rfc3339(agent.updated_at),
    }


def shown_policy(policy: StoredPolicy) -> PolicyShown:
    return PolicyShown(
        policy_id=policy.policy_id,
        version=policy.version,
        **policy.body,
        user_modified=policy.user_modified,
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
        last_active=time_or_none(counted.last_ts or None),
    )


def shown_tenant(tenant: StoredTenant) -> TenantShown:
    return TenantShown(
        tenant_id=tenant.tenant_id,
        name=tenant.name,
        created_at=rfc3339(tenant.created_at),
        require_agent_id=tenant.require_agent_id,
        active=tenant.active,
    )


def shown_rule(
    rule: StoredRule, *, whole: bool, secret: str | None = None
) -> AlertRule | AlertRuleWithSecret:
    """With its webhook's secret where that is to be shown; `whole` with the webhook's whole URL,
    whose path is often a secret, too."""
    url = rule.webhook_url
    fields: dict[str, Any] = {
        name: getattr(rule, name) for name in StoredRule.__slots__ if name != "webhook_secret"
    }
    fields["webhook_url"] = url if whole or url is None else target_of("webhook", url)
    for name in ("created_at", "updated_at", "last_fired_at"):
        fields[name] = time_or_none(fields[name])
    return (
        AlertRule(**fields)
        if secret is None
        else AlertRuleWithSecret(**fields, webhook_secret=secret)
    )


def active_policy(policy: StoredPolicy | None, policy_id: str) -> StoredPolicy:
    """`NotFound` where there is none, or it was deleted."""
    if policy is None or policy.deleted_at is not None:
        raise NotFound(f"no such policy: `{policy_id}`")
    return policy


def deny_rate(allowed: int, denied: int) -> float:
    """A fraction from 0 to 1; 0 where nothing was decided."""
    return denied / (allowed + denied) if denied else 0.0


def time_or_none(micros: int | None) -> str | None:
    return None if micros is None else rfc3339(micros)
