"""Lists what was erased from the tenant's trail."""

from typing import Any

import orjson
from sqlalchemy import Row

from control_api.app_context import AppContext
from control_api.auth.principal import Caller
from control_api.requests.base import ListRequest
from control_api.responses.erasure import RedactionShown
from control_api.responses.paging import Page, page_of
from control_api.store.queries import redactions


class RedactionsRequest(ListRequest):
    """`limit` and `cursor` select the page."""


async def list_redactions(
    app: AppContext, caller: Caller, request: RedactionsRequest
) -> Page[RedactionShown]:
    """List the erasures that the log records, newest first."""
    async with app.store.reading(caller.tenant_id) as connection:
        rows = await redactions.page(
            connection,
            caller.tenant_id,
            before=request.seq(),
            after=None,
            limit=request.limit + 1,
        )
    return page_of(rows, request.limit, lambda row: (row.seq,), _shown)


def _shown(row: Row[Any]) -> RedactionShown:
    entry = orjson.loads(row.entry)
    pub = entry["pub"]
    return RedactionShown(
        row.seq, row.hash.hex(), entry["ts"], pub["by"], pub["reason"], pub["events"]
    )
