"""Lists what was changed in a tenant, by whom, and from what to what."""

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.departure import ends_with_client
from control_api.log.policy_set import changes
from control_api.log.policy_set.changes import Change, ChangeFilters
from control_api.requests.base import Identifier, ListRequest
from control_api.requests.time import Time
from control_api.responses.changes import ChangeShown
from control_api.responses.paging import Page
from policies.ground.canonical import micros


class ChangesRequest(ListRequest):
    """Every filter is an exact match; a change must match all that are given. `from` is inclusive,
    `to` exclusive."""

    object_type: Identifier | None = None
    object_id: Identifier | None = None
    action: Identifier | None = None
    actor: Identifier | None = None
    since: Time | None = Field(None, alias="from")
    until: Time | None = Field(None, alias="to")


@ends_with_client
async def list_changes(
    app: AppContext, caller: Caller, request: ChangesRequest
) -> Page[ChangeShown]:
    """List administrative changes, newest first.

    `before` and `after` are the whole policy, from its history, if it has the digest that the audit
    trail holds; of other objects the members that differ. Where the database was put back to an
    older state, that is a change of the object type `log`: `restored` if the service noticed,
    `incarnation_accepted` if an operator accepted that the log goes on. A page may be shorter than
    `limit`, or empty, and still have a next one.
    """
    filters = ChangeFilters(
        request.object_type,
        request.object_id,
        request.action,
        request.actor,
        None if request.since is None else micros(request.since),
        None if request.until is None else micros(request.until),
    )
    page = await changes.changes(app.store, caller.tenant_id, filters, request.limit, request.seq())
    after = None if page.next is None else (page.next,)
    return Page([_shown(each) for each in page.changes], after)


def _shown(change: Change) -> ChangeShown:
    shown = {name: getattr(change, name) for name in Change._fields if name != "leaf_hash"}
    return ChangeShown(hash=change.leaf_hash.hex(), **shown)
