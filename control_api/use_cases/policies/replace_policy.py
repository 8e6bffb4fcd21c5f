"""Replaces a policy's body with a new version: it is in force in this process, and published to
sidecars, before the response is sent."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import policy_change
from control_api.requests.base import Identifier
from control_api.requests.policy import PolicyAsked
from control_api.requests.precondition import TAGS, IfMatch, is_met
from control_api.responses.management import PolicyShown
from control_api.store.queries import policies
from control_api.store.queries.policies import StoredPolicy
from control_api.store.transaction import Transaction
from policies.ground.canonical import encode
from policies.ground.errors import PreconditionFailed


class ReplacedPolicy(PolicyAsked):
    """The complete new policy. With `If-Match`, it replaces only the version named there."""

    shown = PolicyShown
    in_header: ClassVar[Mapping[str, str]] = {"if_match": "If-Match"}

    policy_id: Identifier
    if_match: IfMatch | None = Field(
        None,
        description='Replace only this version, for example `"3"`.',
        json_schema_extra={"pattern": TAGS, "examples": ['"3"', "*"]},
    )


async def replace_policy(app: AppContext, caller: Caller, request: ReplacedPolicy) -> PolicyShown:
    """Replace a policy; the previous version stays in its history."""

    async def work(tx: Transaction) -> PolicyShown:
        row = policy_change.active_policy(
            await policies.get(tx.connection, tx.tenant_id, request.policy_id), request.policy_id
        )
        _check_precondition(row, request.if_match)
        body = request.body()
        if encode(row.body) == encode(body):
            # No new version, so that a retry of the same request changes nothing.
            return await policy_change.shown(tx, row)
        if request.name != row.name:
            await policy_change.refuse_taken(tx, request.name)
        changed = replace(
            row,
            name=request.name,
            agent_role=request.agent_role,
            body=body,
            version=row.version + 1,
            user_modified=True,  # from now on, a reload of the files skips this policy
            updated_at=tx.now,
        )
        await policies.put(tx.connection, tx.tenant_id, changed)
        # Publish both roles: the policy may have moved from one to the other.
        await policy_change.publish(tx, {row.agent_role, changed.agent_role})
        both = policy_change.Changed(row, changed)
        await policy_change.record(app, tx, [both], "updated", caller.by)
        return await policy_change.shown(tx, changed)

    return await app.store.write(caller.tenant_id, work)


def _check_precondition(row: StoredPolicy, if_match: str | None) -> None:
    """Raise `PreconditionFailed` if `If-Match` is given and does not name the current version."""
    if not is_met(if_match, row.version):
        raise PreconditionFailed(
            f"policy `{row.policy_id}` is at version {row.version}: read it again, then retry"
        )
