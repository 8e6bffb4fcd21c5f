"""Look up documents of the policy set by name, for a sidecar that keeps only what it uses.

Such a sidecar reads its documents from Redis. While Redis is away it follows the set's changes by
long poll, and asks here for a document that it does not hold yet.
"""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.presenters import policy_set_page
from control_api.requests.base import RequestModel
from control_api.responses.sidecars import MAX_PAGE_BYTES, PolicySetPage
from control_api.store.queries import documents

MOST_NAMES = 256
LONGEST_NAME = 1024
"""Characters: the longest name is a role's, 256 characters and a prefix."""


class AskedDocuments(RequestModel):
    """The names of documents."""

    example: ClassVar[dict[str, Any]] = {"names": ["tenant", "role/loan_underwriter"]}

    names: list[Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]] = Field(
        min_length=1, max_length=MOST_NAMES
    )


async def look_up_documents(
    service: AppContext, caller: Caller, asked: AskedDocuments
) -> PolicySetPage:
    """Look up documents of the policy set by name, all of them at the revision in the answer.

    A name that the tenant has no document for comes with `digest` and `body` null. Where `more` is
    true the answer would have been too large: ask again for the names that are not in it.
    """
    async with service.store.reading(caller.tenant.tenant_id) as connection:
        page = await documents.by_name(
            connection, caller.tenant.tenant_id, asked.names, most_bytes=MAX_PAGE_BYTES
        )
    return policy_set_page(service, caller, page, reset=False)
