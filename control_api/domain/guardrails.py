"""Refuses, in the transaction of a change, what would break one of the tenant's guardrails.

    require_guardrails    a change of policies; `policy_change.publish` calls it, so each one does
    require_new           a change of guardrails

INVARIANT: at each commit, what is in force breaks no guardrail. What a role is allowed depends on
that role's policies alone (`policies/analysis/guardrails.py`). So a change of policies is checked
for the roles that it touches, and a new guardrail for every role. The transaction has locked the
tenant's row (`Transaction.begin`) before its first read: of two changes at once, on any replicas,
the second sees what the first made.
"""

import asyncio
from collections.abc import Mapping, Sequence

import orjson
from sqlalchemy import text

from control_api.store.queries import guardrails, policies
from control_api.store.queries.policies import StoredPolicy
from control_api.store.transaction import Transaction
from policies.analysis.difference import by_role
from policies.analysis.examples import body, decided
from policies.analysis.guardrails import GuardedRoles
from policies.analysis.names import TooManyClasses
from policies.definitions.guardrail import Guardrail
from policies.definitions.model import Policy
from policies.ground.errors import Conflict
from policies.retrieval import Retrieval
from policies.sets.role import compile_role

_TOGETHER = 20
"""How many guardrails are tried between two signs of life to the database."""


class GuardrailBroken(Conflict):
    """the change would break a guardrail; `details` has a request that shows it"""

    def __init__(
        self, guardrail: Guardrail, request: Retrieval, policies: Sequence[Policy]
    ) -> None:
        """`policies` are those that the request's role would have."""
        # Decided by the core itself: what is reported is what an evaluation would say.
        role = compile_role(request.agent_role, policies) if policies else None
        self.guardrail = guardrail
        self.policy_name = str(decided(request, role)["policy_name"])
        decision = "allows" if guardrail.kind == "never" else "denies"
        shown = {"guardrail": guardrail.name, "counterexample": body(request)}
        super().__init__(
            f"guardrail `{guardrail.name}` would be broken: `{self.policy_name}` {decision} the "
            "request in `details`; nothing was changed",
            details=orjson.dumps(shown).decode(),
        )


async def require_guardrails(tx: Transaction, touched: Mapping[str, Sequence[Policy]]) -> None:
    """Raise `GuardrailBroken` if `touched`, the roles that a change touches with all the policies
    that each will have, break a guardrail."""
    rules = [each.guardrail for each in await guardrails.every(tx.connection, tx.tenant_id)]
    if rules:
        await _require(tx, rules, GuardedRoles(touched, every=False))


async def require_new(tx: Transaction, rules: Sequence[Guardrail]) -> None:
    """Raise `GuardrailBroken` if the policies in force, as this transaction leaves them, break one
    of the rules."""
    if not rules:
        return
    rows = await policies.in_force(tx.connection, tx.tenant_id)

    def read() -> GuardedRoles:
        found = by_role(StoredPolicy.from_row(row).published() for row in rows)
        return GuardedRoles(found, every=True)

    await _require(tx, rules, await asyncio.to_thread(read))


async def _require(tx: Transaction, rules: Sequence[Guardrail], roles: GuardedRoles) -> None:
    def first_broken(some: Sequence[Guardrail]) -> tuple[Guardrail, Retrieval] | None:
        tried = ((rule, roles.counterexample(rule)) for rule in some)
        return next(((rule, found) for rule, found in tried if found is not None), None)

    for at in range(0, len(rules), _TOGETHER):
        try:
            # In a thread: the event loop decides for other tenants meanwhile.
            broken = await asyncio.to_thread(first_broken, rules[at : at + _TOGETHER])
        except TooManyClasses as error:
            # Without an answer nothing is proven, so nothing changes.
            raise Conflict(
                f"the guardrails can't be checked, and nothing was changed: {error}"
            ) from error
        if broken is not None:
            rule, request = broken
            role = roles.roles.get(request.agent_role)
            raise GuardrailBroken(rule, request, role.policies if role else ())
        # PostgreSQL ends a writing transaction that is silent for seconds.
        await tx.connection.execute(text("SELECT 1"))
