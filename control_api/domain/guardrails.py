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
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import orjson

from control_api.store.queries import guardrails, policies
from control_api.store.queries.policies import StoredPolicy
from control_api.store.transaction import Transaction
from policies.analysis.difference import by_role
from policies.analysis.examples import body, decided
from policies.analysis.guardrails import Broken, counterexample, first_broken
from policies.analysis.names import TooManyClasses
from policies.definitions.guardrail import Guardrail
from policies.definitions.model import Policy
from policies.ground.errors import Conflict
from policies.sets.role import compile_role

T = TypeVar("T")
Roles = Mapping[str, Sequence[Policy]]


class GuardrailBroken(Conflict):
    """the change would break a guardrail; `details` has a request that shows it"""

    def __init__(self, broken: Broken, policies: Sequence[Policy]) -> None:
        """`policies` are those that the request's role would have."""
        request = broken.counterexample
        # Decided by the core itself: what is reported is what an evaluation would say.
        role = compile_role(request.agent_role, policies) if policies else None
        self.guardrail = broken.guardrail
        self.policy_name = str(decided(request, role)["policy_name"])
        allowed = "allows" if self.guardrail.kind == "never" else "denies"
        shown = {"guardrail": self.guardrail.name, "counterexample": body(request)}
        super().__init__(
            f"guardrail `{self.guardrail.name}` would be broken: `{self.policy_name}` {allowed} "
            "the request in `details`; nothing was changed",
            details=orjson.dumps(shown).decode(),
        )


async def require_guardrails(tx: Transaction, touched: Roles) -> None:
    """Raise `GuardrailBroken` if `touched`, the roles that a change touches with all the policies
    that each will have, break a guardrail."""
    rules = [each.guardrail for each in await guardrails.every(tx.connection, tx.tenant_id)]
    if rules:
        _refuse(await _analysed(lambda: first_broken(rules, touched)), touched)


async def require_new(tx: Transaction, rules: Sequence[Guardrail]) -> None:
    """Raise `GuardrailBroken` if the policies in force, as this transaction leaves them, break one
    of the rules."""
    if not rules:
        return
    rows = await policies.in_force(tx.connection, tx.tenant_id)

    def broken() -> tuple[Broken | None, Roles]:
        roles = by_role(StoredPolicy.from_row(row).published() for row in rows)
        for rule in rules:
            found = counterexample(rule, roles)
            if found is not None:
                return Broken(rule, found), roles
        return None, roles

    found, roles = await _analysed(broken)
    _refuse(found, roles)


async def _analysed(analyse: Callable[[], T]) -> T:
    """In a thread: the event loop decides for other tenants meanwhile."""
    try:
        return await asyncio.to_thread(analyse)
    except TooManyClasses as error:
        # Without an answer nothing is proven, so nothing changes.
        raise Conflict(
            f"the guardrails can't be checked, and nothing was changed: {error}"
        ) from error


def _refuse(broken: Broken | None, roles: Roles) -> None:
    if broken is not None:
        raise GuardrailBroken(broken, roles.get(broken.counterexample.agent_role, ()))
