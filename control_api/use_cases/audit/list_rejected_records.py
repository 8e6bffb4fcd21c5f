"""Lists the records of sidecars that were refused, and why."""

from typing import Any

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.departure import ends_with_client
from control_api.log.judging.rejected import rejected_records
from control_api.requests.base import ListRequest
from control_api.responses.paging import Page
from control_api.responses.rejected import RejectedRecord


class RejectedRequest(ListRequest):
    """A page of refused records."""


@ends_with_client
async def list_rejected_records(
    app: AppContext, caller: Caller, request: RejectedRequest
) -> Page[RejectedRecord]:
    """List the records of sidecars that were refused, newest first.

    Each is an entry of the log. A page may be shorter than `limit` and still have a next one.
    """
    page = await rejected_records(app.store, caller.tenant_id, request.limit, request.seq())
    after = None if page.next is None else (page.next,)
    return Page([_shown(*each) for each in page.entries], after)


def _shown(entry: dict[str, Any], leaf_hash: bytes) -> RejectedRecord:
    pub, src = entry["pub"], entry["src"]
    return RejectedRecord(
        entry["seq"],
        leaf_hash.hex(),
        entry["ts"],
        src["id"],
        src["inst"],
        src["n"],
        pub["key_id"],
        pub["reason"],
        pub["core"],
    )
