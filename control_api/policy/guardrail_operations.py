"""Creates, shows, lists, replaces and deletes guardrails."""

from control_api.auth.principal import Caller
from control_api.edge.answers import Empty, Page, page_of
from control_api.edge.requests import ListRequest
from control_api.policy import guardrail_change, guardrail_queries
from control_api.policy.bundle import Policies
from control_api.policy.guardrail_change import shown_guardrail
from control_api.policy.guardrail_models import (
    GuardrailBody,
    GuardrailRequest,
    GuardrailResponse,
    NewGuardrail,
)
from control_api.policy.guardrail_queries import StoredGuardrail
from control_api.policy.policy_change import require_new
from control_api.store.transaction import Transaction
from policies.ground.errors import Conflict, NotFound


async def create_guardrail(
    policies: Policies, caller: Caller, request: NewGuardrail
) -> GuardrailResponse:
    """Create a guardrail; one that the policies in force break is refused with a request that
    shows it."""

    async def work(tx: Transaction) -> StoredGuardrail:
        if await guardrail_queries.get(tx.connection, tx.tenant_id, request.name) is not None:
            raise Conflict(f"a guardrail named `{request.name}` already exists")
        guardrail = request.guardrail()
        await require_new(tx, [guardrail])
        return await guardrail_change.create(policies, tx, guardrail, caller.by)

    return shown_guardrail(await policies.store.write(caller.tenant_id, work))


async def delete_guardrail(policies: Policies, caller: Caller, request: GuardrailRequest) -> Empty:
    """Delete a guardrail; one deleted before is not found."""

    async def work(tx: Transaction) -> None:
        row = await guardrail_change.existing(tx, request.name)
        guardrail_change.refuse_defined(row)
        await guardrail_change.delete(policies, tx, row, caller.by)

    await policies.store.write(caller.tenant_id, work)
    return Empty()


async def get_guardrail(
    policies: Policies, caller: Caller, request: GuardrailRequest
) -> GuardrailResponse:
    """Show one guardrail."""
    async with policies.store.reading(caller.tenant_id) as connection:
        row = await guardrail_queries.get(connection, caller.tenant_id, request.name)
    if row is None:
        raise NotFound(f"no such guardrail: `{request.name}`")
    return shown_guardrail(row)


async def list_guardrails(
    policies: Policies, caller: Caller, request: ListRequest
) -> Page[GuardrailResponse]:
    """List guardrails, newest first."""
    async with policies.store.reading(caller.tenant_id) as connection:
        rows = await guardrail_queries.page(
            connection, caller.tenant_id, request.after(int, str), request.limit + 1
        )
    return page_of(
        rows, request.limit, lambda row: (row.created_at, row.guardrail.name), shown_guardrail
    )


async def replace_guardrail(
    policies: Policies, caller: Caller, request: GuardrailBody
) -> GuardrailResponse:
    """Replace a guardrail; one that the policies in force break is refused with a request that
    shows it."""

    async def work(tx: Transaction) -> StoredGuardrail:
        row = await guardrail_change.existing(tx, request.name)
        guardrail_change.refuse_defined(row)
        guardrail = request.guardrail()
        if row.guardrail == guardrail:
            return row  # so that a retry of the same request changes nothing
        await require_new(tx, [guardrail])
        return await guardrail_change.change(policies, tx, row, guardrail, caller.by)

    return shown_guardrail(await policies.store.write(caller.tenant_id, work))
