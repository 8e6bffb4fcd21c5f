"""Defines the steps that all changes of a tenant's candidates share.

INVARIANT: the list of candidates changes together in three places, in one transaction: the tenant's
row, its document in the policy set, and the head of its log. The record of the change moves the
log's head, so a process that still has an older list of candidates can't append behind it
(`control_api.store.counters.candidates`).
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
    """Return the candidate with this name. Raise `NotFound` if there is none."""
    for each in listed:
        if each.name == name:
            return each
    raise NotFound(f"no such candidate: `{name}`")


async def listed(tx: Transaction) -> tuple[StoredCandidate, ...]:
    """Return the tenant's candidates, read from its row."""
    return read_candidates((await stored(tx.connection, tx.tenant_id)).candidates)


async def version(connection: AsyncConnection, tenant_id: str, candidate: StoredCandidate) -> str:
    """Return the version of a candidate's review, for `If-Match`. It changes with each change of
    the candidate and of the policies in force."""
    return f"{candidate.revision}-{await last_change(connection, tenant_id, ROLE)}"


def documents(name: str, by_role: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """Return a candidate's documents by name, made from the document of each of its roles. Raise
    `Conflict` if one is larger than a role's document may be."""
    return {candidate_name(name, role): within_limit(role, body) for role, body in by_role.items()}


async def publish(tx: Transaction, name: str, bodies: Mapping[str, bytes | None]) -> bool:
    """Publish these as the candidate's documents, in place of its earlier ones. Return whether any
    document changed."""
    before = await tx.lock()
    gone = set(await policy_rows.document_names(tx.connection, tx.tenant_id, name)) - bodies.keys()
    return await tx.publish({**dict.fromkeys(sorted(gone)), **bodies}) != before


async def put_list(tx: Transaction, settings: Settings, wanted: Iterable[StoredCandidate]) -> None:
    """Store `wanted` as the tenant's list of candidates, and delete the counts of those that are no
    longer in it."""
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
    """Delete the counts of every candidate, and remove all candidates from the log's head. The
    caller must remove the list in the tenant's row, and the documents whose names are returned."""
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
    """Remove a candidate with its documents and counts, and record that in the log as `change`."""
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
    """Record a change of a candidate in the log; call it after `put_list`. The entry cites only the
    tenant's document: the candidate's own documents are too many for an entry."""
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
