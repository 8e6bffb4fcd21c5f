"""Bring a tenant's policies to what its files say: all of it, or nothing (contract, section 4).

Called by the operation, at the start, and whenever the directory changes; one tenant's bad file
holds up no other.
"""

import asyncio
import hashlib
import logging

from control_api.asked import Nothing
from control_api.caller import Caller
from control_api.management_shapes import Reloaded
from control_api.metrics import Reload
from control_api.policy_plan import Plan, plan
from control_api.service import Service
from control_api.store import policies
from control_api.store.policies import StoredPolicy
from control_api.store.transaction import Transaction
from policies.definition import Definition, Fault, LoadError
from policies.ground.canonical import encode
from policies.ground.errors import Invalid
from policies.ground.ids import prefixed
from policies.load import load_tenant
from policies.model import Policy
from policies.policy_set import role_document, role_name
from policies.record import Record, change_record

_log = logging.getLogger("sluice.policies")
_CHUNK = 500


async def reload_policies(service: Service, caller: Caller, _: Nothing) -> Reloaded:
    """Read the tenant's policy files again; one bad file, and nothing changes."""
    try:
        return await reload_tenant(service, caller.tenant.tenant_id, caller.by)
    except LoadError as error:
        raise Invalid(
            "the policy files can't be used; nothing was changed", details=str(error)
        ) from (error)


async def reload_tenant(service: Service, tenant_id: str, by: str) -> Reloaded:
    """What changed; `LoadError`, and nothing did."""
    try:
        # A directory is read by waiting, and may lie on a slow disk: not in the loop's thread.
        definitions = await asyncio.to_thread(load_tenant, service.settings.policy_dir, tenant_id)

        async def work(tx: Transaction) -> Plan:
            return await _apply(service, tx, definitions, by)

        done = await service.store.write(tenant_id, work)
    except LoadError as error:
        service.instruments.reloads.labels(Reload.refused).inc()
        _log.error("policies of a tenant refused: %d faults", len(error.faults))
        raise
    changed = done.added or done.updated or done.removed
    outcome = Reload.changed if changed else Reload.unchanged
    service.instruments.reloads.labels(outcome).inc()
    return _answer(done)


async def _apply(service: Service, tx: Transaction, definitions: list[Definition], by: str) -> Plan:
    # Held to the end: of two replicas that see the same change, the second finds it made.
    await tx.lock()
    done = plan(
        definitions,
        await policies.of_files(tx.connection, tx.tenant_id),
        await _names(tx, [definition.body["name"] for definition in definitions]),
        tx.now,
        lambda: prefixed("pol_", service.entropy(16)),
    )
    if done.taken:
        raise LoadError([_taken(definition) for definition in done.taken])
    # Removed before added: a name that is given up may be taken over.
    for row in (*done.removed, *done.moved, *done.updated):
        await policies.put(tx.connection, tx.tenant_id, row)
    await policies.add(tx.connection, tx.tenant_id, done.added)
    for change, rows in (
        ("added", done.added),
        ("updated", done.updated),
        ("removed", done.removed),
    ):
        await policies.add_versions(tx.connection, tx.tenant_id, rows, by, change)
        for row in rows:
            await tx.append(_record(row, change, by, service.new_id()))
    await _publish(tx, sorted(done.roles))
    return done


async def _names(tx: Transaction, names: list[str]) -> set[str]:
    """Those of the names that active policies have."""
    found: set[str] = set()
    for at in range(0, len(names), _CHUNK):
        found |= await policies.taken(tx.connection, tx.tenant_id, names[at : at + _CHUNK])
    return found


async def _publish(tx: Transaction, roles: list[str]) -> None:
    """The documents of these roles, as their policies now are."""
    documents: dict[str, bytes | None] = {}
    for at in range(0, len(roles), _CHUNK):
        chunk = roles[at : at + _CHUNK]
        active: dict[str, list[Policy]] = {role: [] for role in chunk}
        for row in await policies.of_roles(tx.connection, tx.tenant_id, chunk):
            active[row.agent_role].append(row.published())
        documents |= {role_name(role): role_document(active[role]) for role in chunk}
    await tx.publish(documents)


def _record(row: StoredPolicy, change: str, by: str, record_id: str) -> Record:
    digest = hashlib.sha256(encode(row.body)).hexdigest()
    detail = {"name": row.name, "version": row.version, "sha256": digest}
    return change_record(f"policy.{change}", row.policy_id, by, detail, record_id=record_id)


def _taken(definition: Definition) -> Fault:
    message = f"`{definition.body['name']}` is the name of another active policy"
    return Fault(definition.file, definition.line, "name", message)


def _answer(done: Plan) -> Reloaded:
    return Reloaded(
        status="reloaded",
        added=sorted(row.name for row in done.added),
        updated=sorted(row.name for row in done.updated),
        unchanged=sorted(done.unchanged),
        removed=sorted(row.name for row in done.removed),
        skipped=sorted(done.skipped),
    )
