"""Takes the steps that every change of a tenant's candidates shares.

INVARIANT: the candidates change together in three places, in one transaction: the tenant's row, its
document in the policy set, and the head of its log. A record of the change moves that head, so no
process can append behind one that names other candidates (`control_api.store.counters.queries`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, cast

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.log.tenant_change import effective, stored
from control_api.policy.bundle import Policies
from control_api.policy.candidate_models import CandidateListed, CandidateResponse
from control_api.policy.impact_counts import DecisionGroup
from control_api.policy.policy_change import within_limit
from control_api.settings import Settings
from control_api.store.queries import policy_rows, tenant_rows
from control_api.store.queries.documents import last_change
from control_api.store.queries.policy_rows import (
    CandidateTotals,
    CountedGroup,
    StoredCandidate,
    read_candidates,
    write_candidates,
)
from control_api.store.transaction import Transaction
from policies.ground.canonical import rfc3339
from policies.ground.errors import NotFound
from policies.sets.policy_set import ROLE, TENANT, candidate_name, tenant_document
from policies.trail.change import ObjectChange


def held(listed: Iterable[StoredCandidate], name: str) -> StoredCandidate:
    """Return the candidate of this name. Raises `NotFound`."""
    for each in listed:
        if each.name == name:
            return each
    raise NotFound(f"no such candidate: `{name}`")


async def listed(tx: Transaction) -> tuple[StoredCandidate, ...]:
    """Return the tenant's candidates."""
    return read_candidates((await stored(tx.connection, tx.tenant_id)).candidates)


async def version(connection: AsyncConnection, tenant_id: str, candidate: StoredCandidate) -> str:
    """Another one after each change of the candidate, and of the policies in force."""
    return f"{candidate.revision}-{await last_change(connection, tenant_id, ROLE)}"


def documents(name: str, by_role: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """Return the documents of a candidate, from those of its roles. Raises `Conflict` if one is
    larger than a role's may be."""
    return {candidate_name(name, role): within_limit(role, body) for role, body in by_role.items()}


async def publish(tx: Transaction, name: str, bodies: Mapping[str, bytes | None]) -> bool:
    """Make these the candidate's documents. Returns whether that changed any."""
    before = await tx.lock()
    gone = set(await policy_rows.document_names(tx.connection, tx.tenant_id, name)) - bodies.keys()
    return await tx.publish({**dict.fromkeys(sorted(gone)), **bodies}) != before


async def put_list(tx: Transaction, settings: Settings, wanted: Iterable[StoredCandidate]) -> None:
    """Make these the tenant's candidates, and forget what was counted of the others."""
    after = write_candidates(wanted)
    tenant = await stored(tx.connection, tx.tenant_id)
    gone = set(read_candidates(tenant.candidates)) - set(read_candidates(after))
    tenant = replace(tenant, candidates=after)
    await tenant_rows.put(tx.connection, tenant)
    await tx.publish({TENANT: tenant_document(effective(tenant, settings))})
    # First the head's lock, then the counts, as in every append: otherwise the two could deadlock.
    await tx.list_candidates(each.listed for each in read_candidates(after))
    for each in gone:
        await policy_rows.forget(tx.connection, tx.tenant_id, each.name)


async def drop_all(tx: Transaction) -> dict[str, bytes | None]:
    """Forget every candidate, whose list in the tenant's row the caller removes. Returns the
    documents to remove."""
    await tx.list_candidates(())
    gone: dict[str, bytes | None] = {}
    for each in await listed(tx):
        await policy_rows.forget(tx.connection, tx.tenant_id, each.name)
        names = await policy_rows.document_names(tx.connection, tx.tenant_id, each.name)
        gone |= dict.fromkeys(names)
    return gone


async def drop(
    policies: Policies, tx: Transaction, candidate: StoredCandidate, change: str, by: str
) -> None:
    """Remove a candidate, and record it as `change`."""
    await publish(tx, candidate.name, {})
    await put_list(tx, policies.settings, [each for each in await listed(tx) if each != candidate])
    await record(policies, tx, candidate, None, change, by, {})


async def record(
    policies: Policies,
    tx: Transaction,
    before: StoredCandidate | None,
    after: StoredCandidate | None,
    change: str,
    by: str,
    detail: dict[str, Any],
) -> None:
    """Record a change of a candidate, after `put_list`. Its documents are too many for an entry;
    only the tenant's is named."""
    named = after or before
    assert named is not None
    both = ObjectChange(_shown(before), _shown(after), published=tx.published(TENANT))
    await policies.changes.record(tx, f"candidate.{change}", named.name, by, detail, both)


def _shown(candidate: StoredCandidate | None) -> dict[str, Any] | None:
    if candidate is None:
        return None
    return {**candidate._asdict(), "created_at": rfc3339(candidate.created_at)}


def listed_candidate(candidate: StoredCandidate, counts: CandidateTotals) -> CandidateListed:
    names = ("decided", "same", "newly_denied", "newly_allowed", "error")
    counted = {name: getattr(counts, name) for name in names}
    created_at = rfc3339(candidate.created_at)
    return CandidateListed(candidate.name, candidate.revision, created_at, **counted)


def shown_candidate(
    candidate: StoredCandidate, counts: CandidateTotals, groups: Iterable[CountedGroup]
) -> CandidateResponse:
    return CandidateResponse(
        **asdict(listed_candidate(candidate, counts)),
        groups=[
            DecisionGroup(
                direction=cast(Any, each.outcome),
                agent_role=each.agent_role,
                source_id=each.source_id,
                policy_name_before=each.policy_name_before,
                policy_name_after=each.policy_name_after,
                count=each.counted,
                first=rfc3339(each.first_ts),
                last=rfc3339(each.last_ts),
                example_event_ids=each.examples,
            )
            for each in groups
        ],
    )
