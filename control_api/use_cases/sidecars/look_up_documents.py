"""Looks up documents of the policy set by name, for a sidecar that keeps only those it uses.

Such a sidecar reads its documents from Redis. While Redis is unavailable, it follows changes by
long poll, and fetches the documents that it lacks with this operation.
"""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.caches.page_reads import encoded
from control_api.isolation.speaker import enrolled_agent
from control_api.presenters import policy_set_page
from control_api.requests.base import RequestModel
from control_api.responses.sidecars import MAX_PAGE_BYTES, PolicySetPage
from control_api.store.queries import documents

MAX_NAMES = 256
MAX_NAME = 1024
"""The most characters of a name. The longest name is a role's: a prefix and 256 characters."""


class AskedDocuments(RequestModel):
    """The names of the documents."""

    example: ClassVar[dict[str, Any]] = {"names": ["tenant", "role/loan_underwriter"]}

    # No NUL, because PostgreSQL can't look one up.
    names: list[
        Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern="^[^\\u0000]*$")]
    ] = Field(min_length=1, max_length=MAX_NAMES)


async def look_up_documents(
    app: AppContext, caller: Caller, request: AskedDocuments
) -> PolicySetPage:
    """Look up documents of the policy set by name, all as of the revision in the response.

    If the tenant has no document of a name, its `digest` and `body` are null. If `more` is true,
    the response would have been too large: ask again for the names it lacks. To an enrolled
    sidecar, the documents of other agents look like missing ones.
    """
    agent_id = enrolled_agent(caller)
    if agent_id is not None:
        found = await app.least_pages.named(caller.tenant_id, agent_id, request.names)
        return policy_set_page(app, caller, found, reset=False)
    async with app.store.reading(caller.tenant_id) as connection:
        page = await documents.by_name(
            connection, caller.tenant_id, request.names, max_bytes=MAX_PAGE_BYTES
        )
    return policy_set_page(app, caller, encoded(page), reset=False)
