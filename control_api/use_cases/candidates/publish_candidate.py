"""Publishes a whole policy set beside the active one."""

from typing import Annotated

from control_api.analyses.job import Job
from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import candidates
from control_api.requests.base import UndecodedRequest
from control_api.requests.candidate import (
    CandidatePolicies,
    CandidateRequest,
    Prepared,
    prepare,
    read_prepared,
)
from control_api.responses.candidates import CandidatePublished
from control_api.store.queries import documents
from control_api.store.queries.candidates import StoredCandidate
from control_api.store.transaction import Transaction
from policies.definitions.model import MAX_CANDIDATES
from policies.ground.canonical import rfc3339
from policies.ground.errors import Conflict
from policies.sets.policy_set import ROLE

MAX_HERE = 64 * 1024
"""Bytes of a body, and of what is in force, that take a millisecond or two to decode."""


async def publish_candidate(
    app: AppContext, caller: Caller, request: Annotated[UndecodedRequest, CandidatePolicies]
) -> CandidatePublished:
    """Publish a candidate, a whole policy set that is evaluated beside the active one and never
    decides.

    One of the same name is replaced, and its counts begin again; the same policies again change
    nothing. A tenant has at most three.
    """
    name = CandidateRequest.read({"name": request.fields["name"]}).name
    asked = await _prepared(app, caller, name, request.body)
    bodies = candidates.documents(name, asked.documents)

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
            tx, app.settings, [*(each for each in listed if each != before), candidate]
        )
        detail = {"policies": asked.policies, "sha256": asked.sha256}
        await candidates.record(app, tx, before, candidate, "published", caller.by, detail)
        return candidate

    done = await app.store.write(caller.tenant_id, work)
    return CandidatePublished(name, done.revision, rfc3339(done.created_at), asked.policies)


async def _prepared(app: AppContext, caller: Caller, name: str, body: bytes) -> Prepared:
    """The decoded request. A large one is decoded in another process: here, everything else would
    wait for it."""
    async with app.store.snapshot(caller.tenant_id) as connection:
        in_force = await documents.array_of(connection, caller.tenant_id, ROLE)
    if len(body) + len(in_force) <= MAX_HERE:
        return read_prepared(prepare(name, body, in_force))
    job = Job("candidate", {"name": name}, (body, in_force))
    return read_prepared(await app.analyses.answer(caller.tenant_id, job))
