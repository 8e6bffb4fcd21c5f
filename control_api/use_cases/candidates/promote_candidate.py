"""Makes a candidate the active policy set, in one transaction."""

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.domain import candidates, policy_change
from control_api.domain.promotion import Promotion, promotion
from control_api.requests.candidate import PromotedCandidate
from control_api.requests.precondition import is_met
from control_api.responses.candidates import CandidatePromoted
from control_api.store.queries import policies
from control_api.store.queries.candidates import bodies
from control_api.store.queries.policies import StoredPolicy
from control_api.store.transaction import Transaction
from policies.ground.errors import PreconditionFailed
from policies.ground.ids import prefixed


async def promote_candidate(
    app: AppContext, caller: Caller, request: PromotedCandidate
) -> CandidatePromoted:
    """Make a candidate the active policy set; the candidate is then dropped.

    Policies keep their id and history by name. What the candidate changes is `user_modified`, and
    what it lacks is deleted, so a reload of the files changes neither.
    """

    async def work(tx: Transaction) -> Promotion:
        found = candidates.held(await candidates.listed(tx), request.name)
        version = await candidates.version(tx.connection, tx.tenant_id, found)
        if not is_met(request.if_match, version):
            raise PreconditionFailed(
                f"candidate `{found.name}`, or the policies in force, changed since the review: "
                "review it again, then retry"
            )
        documents = await bodies(tx.connection, tx.tenant_id, found.name)
        rows = await policies.in_force(tx.connection, tx.tenant_id)
        active = map(StoredPolicy.from_row, rows)
        done = promotion(active, documents, tx.now, lambda: prefixed("pol_", app.entropy(16)))
        # Removals come first: a name is free again once its policy is deleted.
        for each in (*done.removed, *done.updated):
            await policies.put(tx.connection, tx.tenant_id, each.after)
        await policies.add(tx.connection, tx.tenant_id, [each.after for each in done.added])
        await policy_change.publish(tx, done.roles)
        for change, changed in done.changes:
            await policy_change.record(app, tx, changed, change, caller.by)
        # Decisions go by the new set or by the old one, never by a part: a policy set's documents
        # come into force together, at the revision of this commit.
        await candidates.drop(app, tx, found, "promoted", caller.by)
        return done

    done = await app.store.write(caller.tenant_id, work)
    return CandidatePromoted(
        request.name,
        sorted(each.after.name for each in done.added),
        sorted(each.after.name for each in done.updated),
        sorted(done.unchanged),
        sorted(each.after.name for each in done.removed),
    )
