"""Shows and changes the sensitivity levels that a tenant states for its sources, by pattern of the
source id.

The levels have no table of their own. They are kept only in a document of the policy set, so what
is shown is what decides. A change is written under the lock of the tenant's row.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.auth import Caller
from control_api.edge.answers import Empty, Page, page_of
from control_api.edge.requests import Identifier, ListRequest, RequestModel
from control_api.policy.bundle import Policies
from control_api.store.queries import documents
from control_api.store.transaction import Transaction
from policies.definitions.model import Sensitivity
from policies.ground.errors import Conflict, NotFound
from policies.sets.source_levels import SOURCES, sources_document, stated_levels
from policies.trail.change import ObjectChange

MAX_LEVELS = 1000
"""The most patterns for which a tenant may state a level: every sidecar holds them in memory."""
_MOST_BYTES = 4 * 1024 * 1024


class Change(NamedTuple):
    """The level of a pattern before and after a change. None means that no level is stated."""

    pattern: str
    before: Sensitivity | None
    after: Sensitivity | None


async def read(connection: AsyncConnection, tenant_id: str) -> dict[str, Sensitivity]:
    """Return the tenant's stated levels, by pattern."""
    page = await documents.by_name(connection, tenant_id, [SOURCES], max_bytes=_MOST_BYTES)
    return stated_levels(page.documents[0].body)


async def put(
    policies: Policies, tx: Transaction, pattern: str, level: Sensitivity, by: str
) -> None:
    """State the level of a pattern, and record the change. Raise `Conflict` if the tenant has too
    many patterns."""
    await tx.lock()
    levels = await read(tx.connection, tx.tenant_id)
    before = levels.get(pattern)
    if before == level:
        return  # so that a retry of the same request changes nothing
    if before is None and len(levels) >= MAX_LEVELS:
        raise Conflict(
            f"the tenant already states {MAX_LEVELS} levels, the most allowed: delete one, or use "
            "wildcards"
        )
    await _write(policies, tx, {**levels, pattern: level}, Change(pattern, before, level), by)


async def delete(policies: Policies, tx: Transaction, pattern: str, by: str) -> None:
    """Remove the stated level of a pattern, and record the change. Raise `NotFound` if there is
    none."""
    await tx.lock()
    levels = await read(tx.connection, tx.tenant_id)
    before = levels.pop(pattern, None)
    if before is None:
        raise NotFound(f"no level is stated of `{pattern}`")
    await _write(policies, tx, levels, Change(pattern, before, None), by)


async def _write(
    policies: Policies, tx: Transaction, levels: dict[str, Sensitivity], change: Change, by: str
) -> None:
    await tx.publish({SOURCES: sources_document(levels)})
    shown = [
        None if level is None else {"source_pattern": change.pattern, "sensitivity_level": level}
        for level in (change.before, change.after)
    ]
    action = "deleted" if change.after is None else "updated" if change.before else "created"
    both = ObjectChange(shown[0], shown[1], published=tx.published(SOURCES))
    await policies.changes.record(tx, f"source.{action}", change.pattern, by, {}, both)


@dataclass(frozen=True, slots=True)
class SourceResponse:
    """The level of all sources whose id matches a pattern."""

    source_pattern: str
    sensitivity_level: Sensitivity

    example: ClassVar[dict[str, Any]] = {
        "source_pattern": "salaries*",
        "sensitivity_level": "critical",
    }


async def list_sources(
    policies: Policies, caller: Caller, request: ListRequest
) -> Page[SourceResponse]:
    """List the levels of sources, in order of pattern."""
    after = request.after(str)
    async with policies.store.reading(caller.tenant_id) as connection:
        levels = await read(connection, caller.tenant_id)
    rows = sorted(each for each in levels.items() if after is None or each[0] > str(after[0]))
    return page_of(rows, request.limit, lambda row: (row[0],), lambda row: SourceResponse(*row))


class SourceRequest(RequestModel):
    """A request about the level of one pattern of source ids, which the path names."""

    source_pattern: Identifier


class SourceBody(RequestModel):
    """The least level at which the sources of a pattern are decided."""

    example: ClassVar[dict[str, Any]] = {"sensitivity_level": "critical"}
    shown = SourceResponse

    source_pattern: Identifier
    sensitivity_level: Sensitivity


async def delete_source(policies: Policies, caller: Caller, request: SourceRequest) -> Empty:
    """Delete the level of a pattern; one deleted before is not found."""

    async def work(tx: Transaction) -> None:
        await delete(policies, tx, request.source_pattern, caller.by)

    await policies.store.write(caller.tenant_id, work)
    return Empty()


async def put_source(policies: Policies, caller: Caller, request: SourceBody) -> SourceResponse:
    """State the level at which the sources of a pattern are decided at least, whatever a request
    states."""

    async def work(tx: Transaction) -> None:
        await put(policies, tx, request.source_pattern, request.sensitivity_level, caller.by)

    await policies.store.write(caller.tenant_id, work)
    return SourceResponse(request.source_pattern, request.sensitivity_level)
