"""Lists a tenant's API keys, without their secrets."""

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import listed_key
from control_api.requests.base import Flag, ListRequest
from control_api.requests.time import Time
from control_api.responses.keys import ListedKey
from control_api.responses.paging import Page, page_of
from control_api.store.queries import enrolled_keys, keys
from control_api.store.queries.enrolled_keys import EnrolledKey
from policies.ground.canonical import micros, rfc3339


class KeysRequest(ListRequest):
    """By default, the keys that were created; enrolled pods' keys are as many as there are pods."""

    enrolled: Flag = Field(
        False, description="List the keys that pods enrolled for, instead of the others."
    )
    expires_before: Time | None = Field(
        None, description="Only keys that have expired by this time, or will have."
    )


async def list_keys(app: AppContext, caller: Caller, request: KeysRequest) -> Page[ListedKey]:
    """List API keys that are not revoked, newest first, without their secrets.

    With `enrolled`, list the keys that pods enrolled for and that have not expired. One of an agent
    that is no longer approved, or has another workload, is listed, but dead.
    """
    tenant_id, after, limit = caller.tenant_id, request.after(int, str), request.limit + 1
    before = None if request.expires_before is None else micros(request.expires_before)
    async with app.store.reading(tenant_id) as connection:
        if request.enrolled:
            now = app.clock.now()
            pods = await enrolled_keys.page(connection, tenant_id, now, after, limit, before)
            return page_of(
                pods, request.limit, lambda key: (key.created_at, key.key_id), _listed_enrolled_key
            )
        rows = await keys.page(connection, tenant_id, after, limit, before)
    return page_of(rows, request.limit, lambda key: (key.created_at, key.key_id), listed_key)


def _listed_enrolled_key(row: EnrolledKey) -> ListedKey:
    """A key that a pod enrolled for; its name is the pod's."""
    return ListedKey(
        key_id=row.key_id,
        name=row.pod,
        scope=row.scope,
        bound_agent_id=row.agent_id,
        permitted_roles=[],
        expires_at=rfc3339(row.expires_at),
        created_at=rfc3339(row.created_at),
        agent_ids=[row.agent_id] if row.scope == "sidecar" else None,
        sidecar_ids=None,
    )
