"""Publishes a whole policy set beside the active one."""

import hashlib

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import candidates
from control_api.requests.candidate import CandidatePolicies
from control_api.responses.candidates import CandidatePublished
from control_api.store.queries import policies
from control_api.store.queries.candidates import StoredCandidate
from control_api.store.queries.policies import StoredPolicy
from control_api.store.transaction import Transaction
from policies.definitions.model import MAX_CANDIDATES, Policy
from policies.ground.canonical import encode, rfc3339
from policies.ground.errors import Conflict


async def publish_candidate(
    app: AppContext, caller: Caller, request: CandidatePolicies
) -> CandidatePublished:
    """Publish a candidate, a whole policy set that is evaluated beside the active one and never
    decides.

    One of the same name is replaced, and its counts begin again; the same policies again change
    nothing. A tenant has at most three.
    """
    name = request.name
    found = await _policies(app, caller.tenant_id, request)
    documents = candidates.documents(name, found)
    sha256 = hashlib.sha256(encode([each.body() for each in request.policies])).hexdigest()

    async def work(tx: Transaction) -> StoredCandidate:
        listed = await candidates.listed(tx)
        before = next((each for each in listed if each.name == name), None)
        if before is None and len(listed) >= MAX_CANDIDATES:
            names = ", ".join(f"`{each.name}`" for each in listed)
            raise Conflict(
                f"there are {MAX_CANDIDATES} candidates, {names}: promote or drop one first"
            )
        if not await candidates.publish(tx, name, documents) and before is not None:
            return before
        # The next revision is that of the tenant's document, which lists the candidate: a policy
        # set at that revision has all of it.
        candidate = StoredCandidate(name, await tx.lock() + 1, tx.now)
        await candidates.put_list(
            tx, app.settings, [*(each for each in listed if each != before), candidate]
        )
        detail = {"policies": len(found), "sha256": sha256}
        await candidates.record(app, tx, before, candidate, "published", caller.by, detail)
        return candidate

    done = await app.store.write(caller.tenant_id, work)
    return CandidatePublished(name, done.revision, rfc3339(done.created_at), len(found))


async def _policies(app: AppContext, tenant_id: str, request: CandidatePolicies) -> list[Policy]:
    """The policies as documents hold them. One that is as the active policy of its name also has
    its id and version: a role that the candidate leaves as it is then has the same document, and
    need not be evaluated."""
    async with app.store.reading(tenant_id) as connection:
        rows = await policies.in_force(connection, tenant_id)
    active = {row["name"]: row for row in rows}
    found = []
    for each in request.policies:
        body, row = each.body(), active.get(each.name)
        if row is not None and row["body"] == encode(body):
            found.append(StoredPolicy.from_row(row).published())
        else:
            found.append(Policy.from_wire({**body, "policy_id": "", "version": 0}))
    return found
