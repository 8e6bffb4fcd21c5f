"""Checks for denials that a call escapes by naming no agent, by the policy set that is on disk."""

import sqlite3
from collections.abc import Iterator

from policies.analysis.agentless import Escape, escapes
from sidecar.doctor.cached_documents import CachedDocuments
from sidecar.doctor.context import DoctorContext
from sidecar.doctor.finding import DoctorFinding, Severity

_WHY = "a key that is bound to no agent reads there by leaving out its `agent_id`"
_DO = (
    "set the tenant's `require_agent_id`, or deny it in a policy without `permitted_agent_ids`; "
    "`sluice policy lint` names all"
)
_SHOWN = 3
"""How many denials of a role are named."""


def escaped_denials(context: DoctorContext) -> Iterator[DoctorFinding]:
    """Report the roles with such denials, unless calls without an agent are denied anyway."""
    documents = CachedDocuments(context.settings)
    try:
        tenant, key, roles = documents.tenant(), documents.own_key(), documents.roles()
        if tenant is None or tenant.require_agent_id:
            return
        if key is not None and not key.may_speak_for_agent(None):
            return  # this sidecar denies calls that name none
        found = [(each[0].agent_role, list(escapes(each))) for each in roles if each]
    except (ValueError, LookupError, TypeError, sqlite3.Error) as error:
        seen = f"the policies can't be looked up: {error}"
        yield DoctorFinding(Severity.UNKNOWN, seen, _WHY, _DO)
        return
    for role, escaped in found:
        if escaped:
            yield DoctorFinding(Severity.MEDIUM, _seen(role, escaped), _WHY, _DO)


def _seen(role: str, escaped: list[Escape]) -> str:
    named = [f"`{each.entry}` of policy `{each.policy.name}`" for each in escaped[:_SHOWN]]
    if len(escaped) > _SHOWN:
        named.append(f"{len(escaped) - _SHOWN} more")
    return f"in role `{role}`, a call that names no agent is not denied: {', '.join(named)}"
