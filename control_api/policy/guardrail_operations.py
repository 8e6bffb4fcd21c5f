"""Creates, shows, lists, replaces and deletes guardrails, by API and from files. All changes share
the same steps: write the row, append an entry to the log, return what is shown of the guardrail.

`control_api.policy.policy_change` checks that policies and guardrails agree.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.auth import Caller
from control_api.edge.answers import Empty, Page, page_of
from control_api.edge.requests import ListRequest
from control_api.policy import guardrails
from control_api.policy.bundle import Policies
from control_api.policy.guardrails import (
    GuardrailBody,
    GuardrailRequest,
    GuardrailResponse,
    NewGuardrail,
    StoredGuardrail,
)
from control_api.policy.models import DescribedRequests
from control_api.policy.policy_change import require_new
from control_api.store.transaction import Transaction
from policies.definitions.definition import DefinitionFault, LoadError
from policies.definitions.guardrail import MAX_GUARDRAILS, DefinedGuardrail, Guardrail
from policies.ground.canonical import rfc3339
from policies.ground.errors import Conflict, NotFound
from policies.trail.change import ObjectChange


def shown_guardrail(row: StoredGuardrail) -> GuardrailResponse:
    rule = row.guardrail
    members = (list(getattr(rule, name)) or None for name in DescribedRequests.__slots__)
    described = DescribedRequests(*members)
    return GuardrailResponse(
        name=rule.name,
        never=described if rule.kind == "never" else None,
        always=described if rule.kind == "always" else None,
        source="api" if row.file is None else "file",
        file=row.file,
        created_at=rfc3339(row.created_at),
        updated_at=rfc3339(row.updated_at),
    )


def refuse_defined_in_files(row: StoredGuardrail) -> None:
    """Raise `Conflict` if a file defines the guardrail."""
    if row.file is not None:
        raise Conflict(
            f"guardrail `{row.guardrail.name}` is defined by the file `{row.file}`: change it there"
        )


async def _existing(connection: AsyncConnection, tenant_id: str, name: str) -> StoredGuardrail:
    if (row := await guardrails.get_guardrail_row(connection, tenant_id, name)) is None:
        raise NotFound(f"no such guardrail: `{name}`")
    return row


async def insert_guardrail(
    policies: Policies, tx: Transaction, guardrail: Guardrail, by: str, file: str | None = None
) -> StoredGuardrail:
    """Add a guardrail. Raise `Conflict` if the tenant has too many. The caller has checked that its
    name is free, and must check that the policies in force keep it (`require_new`)."""
    if await guardrails.count_guardrails(tx.connection, tx.tenant_id) >= MAX_GUARDRAILS:
        raise Conflict(
            f"the tenant already has {MAX_GUARDRAILS} guardrails, the most allowed: delete one"
        )
    row = StoredGuardrail(guardrail, file, tx.now, tx.now)
    await guardrails.add_guardrail(tx.connection, tx.tenant_id, row)
    await _record(policies, tx, "created", by, None, row)
    return row


async def update_guardrail(
    policies: Policies, tx: Transaction, row: StoredGuardrail, guardrail: Guardrail, by: str
) -> StoredGuardrail:
    """Replace a guardrail by another of the same name. The caller must check that the policies in
    force keep the new one."""
    changed = replace(row, guardrail=guardrail, updated_at=tx.now)
    await guardrails.put_guardrail(tx.connection, tx.tenant_id, changed)
    await _record(policies, tx, "updated", by, row, changed)
    return changed


async def drop_guardrail_row(
    policies: Policies, tx: Transaction, row: StoredGuardrail, by: str
) -> None:
    await guardrails.remove_guardrail(tx.connection, tx.tenant_id, row.guardrail.name)
    await _record(policies, tx, "deleted", by, row, None)


async def _record(
    policies: Policies,
    tx: Transaction,
    what: str,
    by: str,
    before: StoredGuardrail | None,
    after: StoredGuardrail | None,
) -> None:
    row = after or before
    assert row is not None  # there is one side at least
    detail = {"source": "api" if row.file is None else "file"}
    shown = [None if row is None else asdict(shown_guardrail(row)) for row in (before, after)]
    change, name = ObjectChange(shown[0], shown[1]), row.guardrail.name
    await policies.changes.record(tx, f"guardrail.{what}", name, by, detail, change)


class FilePlan(NamedTuple):
    """The changes that a tenant's guardrail file makes to its stored guardrails."""

    added: list[DefinedGuardrail]
    changed: list[tuple[StoredGuardrail, DefinedGuardrail]]
    removed: list[StoredGuardrail]

    @property
    def rules(self) -> list[Guardrail]:
        """The added and changed guardrails, which must be proven for every role."""
        defined = [*self.added, *(new for _, new in self.changed)]
        return [each.guardrail for each in defined]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def plan_files(stored: Sequence[StoredGuardrail], defined: Sequence[DefinedGuardrail]) -> FilePlan:
    """Compare the guardrails of a tenant's file with the stored ones, and return the changes. Raise
    `LoadError` if the file uses the name of a guardrail that was created by the API."""
    rows = {each.guardrail.name: each for each in stored}
    of_api = {name for name, row in rows.items() if row.file is None}
    if taken := [each for each in defined if each.guardrail.name in of_api]:
        raise LoadError([_name_taken(each) for each in taken])
    added, changed = [], []
    for each in defined:
        row = rows.pop(each.guardrail.name, None)
        if row is None:
            added.append(each)
        elif row.guardrail != each.guardrail:
            changed.append((row, each))
    return FilePlan(added, changed, [row for row in rows.values() if row.file is not None])


async def apply_files(policies: Policies, tx: Transaction, plan: FilePlan, by: str) -> None:
    """Write the planned changes. The caller must then check `plan.rules`, after it has written the
    policies of the same files."""
    for row in plan.removed:
        await drop_guardrail_row(policies, tx, row, by)
    for row, new in plan.changed:
        await update_guardrail(policies, tx, row, new.guardrail, by)
    for new in plan.added:
        await insert_guardrail(policies, tx, new.guardrail, by, new.file)


def _name_taken(each: DefinedGuardrail) -> DefinitionFault:
    message = f"`{each.guardrail.name}` is the name of a guardrail that was made through the API"
    return DefinitionFault(each.file, each.line, "name", message)


async def create_guardrail(
    policies: Policies, caller: Caller, request: NewGuardrail
) -> GuardrailResponse:
    """Create a guardrail; one that the policies in force break is refused with a request that
    shows it."""

    async def work(tx: Transaction) -> StoredGuardrail:
        if await guardrails.get_guardrail_row(tx.connection, tx.tenant_id, request.name):
            raise Conflict(f"a guardrail named `{request.name}` already exists")
        guardrail = request.guardrail()
        await require_new(tx, [guardrail])
        return await insert_guardrail(policies, tx, guardrail, caller.by)

    return shown_guardrail(await policies.store.write(caller.tenant_id, work))


async def delete_guardrail(policies: Policies, caller: Caller, request: GuardrailRequest) -> Empty:
    """Delete a guardrail; one deleted before is not found."""

    async def work(tx: Transaction) -> None:
        row = await _existing(tx.connection, tx.tenant_id, request.name)
        refuse_defined_in_files(row)
        await drop_guardrail_row(policies, tx, row, caller.by)

    await policies.store.write(caller.tenant_id, work)
    return Empty()


async def get_guardrail(
    policies: Policies, caller: Caller, request: GuardrailRequest
) -> GuardrailResponse:
    """Show one guardrail."""
    async with policies.store.reading(caller.tenant_id) as connection:
        return shown_guardrail(await _existing(connection, caller.tenant_id, request.name))


async def list_guardrails(
    policies: Policies, caller: Caller, request: ListRequest
) -> Page[GuardrailResponse]:
    """List guardrails, newest first."""
    async with policies.store.reading(caller.tenant_id) as connection:
        rows = await guardrails.page_of_guardrails(
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
        row = await _existing(tx.connection, tx.tenant_id, request.name)
        refuse_defined_in_files(row)
        guardrail = request.guardrail()
        if row.guardrail == guardrail:
            return row  # so that a retry of the same request changes nothing
        await require_new(tx, [guardrail])
        return await update_guardrail(policies, tx, row, guardrail, caller.by)

    return shown_guardrail(await policies.store.write(caller.tenant_id, work))
