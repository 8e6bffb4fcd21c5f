"""Publishes, shows, reviews, promotes and drops candidates: whole policy sets that are evaluated
beside the one in force."""

from typing import Annotated

import orjson

from control_api.auth import Caller
from control_api.current_request import ends_with_client
from control_api.edge.answers import Document, Empty, Page, page_of
from control_api.edge.requests import ListRequest, UndecodedRequest, if_match_holds
from control_api.log.tenant_change import stored
from control_api.policy import candidates, guardrails, policy_change
from control_api.policy.analyses import questions
from control_api.policy.analyses.process import Job
from control_api.policy.bundle import Policies
from control_api.policy.candidate_models import (
    CandidateListed,
    CandidatePolicies,
    CandidatePromoted,
    CandidatePublished,
    CandidateRequest,
    CandidateResponse,
    CandidateReview,
    PreparedCandidate,
    PromotedCandidate,
    prepare,
    read_prepared,
)
from control_api.policy.candidates import held, listed_candidate, shown_candidate, version
from control_api.policy.plan import Promotion, promotion
from control_api.store.queries import documents, policy_rows
from control_api.store.queries.policy_rows import StoredCandidate, StoredPolicy, bodies
from control_api.store.transaction import Transaction
from policies.definitions.model import MAX_CANDIDATES
from policies.ground.canonical import rfc3339
from policies.ground.errors import Conflict, PreconditionFailed
from policies.ground.ids import prefixed
from policies.sets.policy_set import ROLE


async def drop_candidate(policies: Policies, caller: Caller, request: CandidateRequest) -> Empty:
    """Drop a candidate; the active policies stay as they are."""

    async def work(tx: Transaction) -> None:
        found = candidates.held(await candidates.listed(tx), request.name)
        await candidates.drop(policies, tx, found, "dropped", caller.by)

    await policies.store.write(caller.tenant_id, work)
    return Empty()


async def get_candidate(
    policies: Policies, caller: Caller, request: CandidateRequest
) -> CandidateResponse:
    """Show a candidate with its counts, and the groups of events that it decides otherwise."""
    tenant_id = caller.tenant_id
    async with policies.store.reading(tenant_id) as connection:
        tenant = await stored(connection, tenant_id)
        found = held(policy_rows.read_candidates(tenant.candidates), request.name)
        counts = await policy_rows.totals(connection, tenant_id, found.listed)
        groups = await policy_rows.groups(connection, tenant_id, found.listed)
    return shown_candidate(found, counts, groups)


async def list_candidates(
    policies: Policies, caller: Caller, request: ListRequest
) -> Page[CandidateListed]:
    """List the candidates in order of name, each with its counts."""
    after = request.after(str)
    async with policies.store.reading(caller.tenant_id) as connection:
        tenant = await stored(connection, caller.tenant_id)
        rows = [
            (each, await policy_rows.totals(connection, caller.tenant_id, each.listed))
            for each in policy_rows.read_candidates(tenant.candidates)
            if after is None or each.name > str(after[0])
        ]
    return page_of(
        rows, request.limit, lambda row: (row[0].name,), lambda row: listed_candidate(*row)
    )


async def promote_candidate(
    policies: Policies, caller: Caller, request: PromotedCandidate
) -> CandidatePromoted:
    """Make a candidate the active policy set; the candidate is then dropped.

    Policies keep their id and history by name. What the candidate changes is `user_modified`, and
    what it lacks is deleted, so a reload of the files changes neither.
    """

    async def work(tx: Transaction) -> Promotion:
        found = candidates.held(await candidates.listed(tx), request.name)
        version = await candidates.version(tx.connection, tx.tenant_id, found)
        if not if_match_holds(request.if_match, version):
            raise PreconditionFailed(
                f"candidate `{found.name}`, or the policies in force, changed since the review: "
                "review it again, then retry"
            )
        documents = await bodies(tx.connection, tx.tenant_id, found.name)
        rows = await policy_rows.in_force(tx.connection, tx.tenant_id)
        active = map(StoredPolicy.from_row, rows)
        done = promotion(active, documents, tx.now, lambda: prefixed("pol_", policies.entropy(16)))
        # Removals come first: a name is free again once its policy is deleted.
        for each in (*done.removed, *done.updated):
            await policy_rows.put(tx.connection, tx.tenant_id, each.after)
        await policy_rows.add(tx.connection, tx.tenant_id, [each.after for each in done.added])
        await policy_change.publish(tx, done.roles)
        for change, changed in done.changes:
            await policy_change.record(policies, tx, changed, change, caller.by)
        # Decisions go by the new set or by the old one, never by a part: a policy set's documents
        # come into force together, at the revision of this commit.
        await candidates.drop(policies, tx, found, "promoted", caller.by)
        return done

    done = await policies.store.write(caller.tenant_id, work)
    return CandidatePromoted(
        request.name,
        sorted(each.after.name for each in done.added),
        sorted(each.after.name for each in done.updated),
        sorted(done.unchanged),
        sorted(each.after.name for each in done.removed),
    )


MAX_HERE = 64 * 1024
"""The most bytes, in a body and the documents in force together, that are decoded in this process:
that takes a millisecond or two."""


async def publish_candidate(
    policies: Policies, caller: Caller, request: Annotated[UndecodedRequest, CandidatePolicies]
) -> CandidatePublished:
    """Publish a candidate, a whole policy set that is evaluated beside the active one and never
    decides.

    One of the same name is replaced, and its counts begin again; the same policies again change
    nothing. A tenant has at most three.
    """
    name = CandidateRequest.read({"name": request.fields["name"]}).name
    prepared = await _prepared(policies, caller, name, request.body)
    bodies = candidates.documents(name, prepared.documents)

    async def work(tx: Transaction) -> StoredCandidate:
        listed = await candidates.listed(tx)
        before = next((each for each in listed if each.name == name), None)
        if before is None and len(listed) >= MAX_CANDIDATES:
            names = ", ".join(f"`{each.name}`" for each in listed)
            raise Conflict(
                f"there are {MAX_CANDIDATES} candidates, {names}: promote or drop one first"
            )
        if not await candidates.publish(tx, name, bodies) and before is not None:
            return before
        # The next revision is that of the tenant's document, which lists the candidate: a policy
        # set at that revision has all of it.
        candidate = StoredCandidate(name, await tx.lock() + 1, tx.now)
        await candidates.put_list(
            tx, policies.settings, [*(each for each in listed if each != before), candidate]
        )
        detail = {"policies": prepared.policies, "sha256": prepared.sha256}
        await candidates.record(policies, tx, before, candidate, "published", caller.by, detail)
        return candidate

    done = await policies.store.write(caller.tenant_id, work)
    return CandidatePublished(name, done.revision, rfc3339(done.created_at), prepared.policies)


async def _prepared(
    policies: Policies, caller: Caller, name: str, body: bytes
) -> PreparedCandidate:
    """Return the decoded and validated request. A large one is decoded in another process, so that
    it does not hold up the event loop."""
    async with policies.store.snapshot(caller.tenant_id) as connection:
        in_force = await documents.array_of(connection, caller.tenant_id, ROLE)
    if len(body) + len(in_force) <= MAX_HERE:
        return read_prepared(prepare(name, body, in_force))
    job = Job("candidate", {"name": name}, (body, in_force))
    return read_prepared(await policies.analyses.answer(caller.tenant_id, job))


_MOST_ROLES = 100


@ends_with_client
async def review_candidate(
    policies: Policies, caller: Caller, request: CandidateRequest
) -> CandidateReview | Document:
    """Say exactly what the promotion of a candidate would newly allow and deny, and what would
    refuse it.

    Changes nothing. All of it is about the same policies in force, which `version` stands for: as
    `If-Match` of the promotion, it refuses to promote what was not reviewed.
    """
    tenant_id = caller.tenant_id
    async with policies.store.snapshot(tenant_id) as connection:
        tenant = await stored(connection, tenant_id)
        found = held(policy_rows.read_candidates(tenant.candidates), request.name)
        reviewed = await version(connection, tenant_id, found)
        bodies = {*await policy_rows.bodies(connection, tenant_id, found.name)}
        in_force = {*await documents.all_of(connection, tenant_id, ROLE)}
        rows = await guardrails.every_guardrail(connection, tenant_id)
        changed = await documents.changed_names(
            connection, tenant_id, ROLE, found.revision, _MOST_ROLES
        )
    rules = orjson.dumps([each.guardrail.to_wire() for each in rows])
    options = {
        "name": found.name,
        "version": reviewed,
        "changed_since": sorted(name.removeprefix(ROLE) for name in changed),
    }
    # A role that the candidate leaves as it is has the same document
    # (`policy/candidate_models.py`).
    after, before = bodies - in_force, in_force - bodies
    parts = (documents.json_array(after), documents.json_array(before), rules)
    job = Job("candidate_review", options, parts)
    analyses_needed = (len(after) + len(before)) * (1 + len(rows))
    return Document(
        "application/json",
        await questions.answer(policies.analyses, tenant_id, job, analyses_needed),
    )
