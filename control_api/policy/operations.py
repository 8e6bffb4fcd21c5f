"""Creates, shows, lists, replaces, restores and deletes policies, shows their versions, and reloads
the files that they come from."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.auth import Caller
from control_api.current_request import WRITTEN_REVISION
from control_api.edge.answers import Empty, Page, SortKey, page_of, time_or_none
from control_api.edge.field_descriptions import says
from control_api.edge.requests import (
    TAGS,
    EmptyRequest,
    Identifier,
    IfMatch,
    ListRequest,
    if_match_holds,
)
from control_api.policy import policy_change
from control_api.policy.bundle import Policies
from control_api.policy.models import (
    PolicyBody,
    PolicyFields,
    PolicyFiles,
    PolicyRequest,
    PolicyResponse,
    PolicyVersion,
    Reloaded,
    shown_policy,
)
from control_api.policy.plan import first_version
from control_api.policy.policy_change import active_policy, existing_policy
from control_api.policy.reload import FilesBreakGuardrail, reload_tenant, unowned_folders
from control_api.store.queries import policy_rows
from control_api.store.queries.policy_rows import Filter, StoredPolicy, StoredVersion
from control_api.store.transaction import Transaction
from policies.definitions.definition import LoadError
from policies.ground.canonical import encode, rfc3339
from policies.ground.errors import Conflict, Invalid, NotFound, PreconditionFailed
from policies.ground.ids import prefixed


async def create_policy(policies: Policies, caller: Caller, request: PolicyBody) -> PolicyResponse:
    """Create a policy; no active policy may have the same name."""
    policy_id = prefixed("pol_", policies.entropy(16))

    async def work(tx: Transaction) -> PolicyResponse:
        await policy_change.refuse_taken(tx, request.name)
        row = first_version(policy_id, request.body(), tx.now)
        await policy_rows.add(tx.connection, tx.tenant_id, [row])
        await policy_change.publish(tx, {row.agent_role})
        new = policy_change.Changed(None, row)
        await policy_change.record(policies, tx, [new], "created", caller.by)
        return await policy_change.shown(tx, row)

    return await policies.store.write(caller.tenant_id, work)


async def delete_policy(policies: Policies, caller: Caller, request: PolicyRequest) -> Empty:
    """Delete a policy; a policy deleted before is not found."""

    async def work(tx: Transaction) -> None:
        row = await active_policy(tx.connection, tx.tenant_id, request.policy_id)
        # The deletion, too, is a version in the policy's history.
        deleted = replace(row, version=row.version + 1, updated_at=tx.now, deleted_at=tx.now)
        await policy_rows.put(tx.connection, tx.tenant_id, deleted)
        await policy_change.publish(tx, {deleted.agent_role})
        changed = policy_change.Changed(row, deleted)
        await policy_change.record(policies, tx, [changed], "deleted", caller.by)

    await policies.store.write(caller.tenant_id, work)
    return Empty()


async def get_policy(policies: Policies, caller: Caller, request: PolicyRequest) -> PolicyResponse:
    """Show one active policy; a deleted one is not found."""
    async with policies.store.reading(caller.tenant_id) as connection:
        policy = await active_policy(connection, caller.tenant_id, request.policy_id)
        authors = await policy_rows.authors(connection, caller.tenant_id, [policy])
    return shown_policy(policy, authors[policy.policy_id])


class PoliciesRequest(ListRequest):
    """The policies to list: those that match every given filter. `name` and `source` match a part
    of the policy's name or of one of its sources; the other filters match a whole value."""

    name: Annotated[Identifier | None, says("Part of a policy's name, in any case.")] = None
    source: Annotated[
        Identifier | None,
        says("Part of an entry that the policy allows or denies, as it is written."),
    ] = None
    industry: Identifier | None = None
    process_group: Identifier | None = None
    agent_role: Identifier | None = None


async def list_policies(
    policies: Policies, caller: Caller, request: PoliciesRequest
) -> Page[PolicyResponse]:
    """List active policies, newest first."""
    async with policies.store.reading(caller.tenant_id) as connection:
        rows = await _matching(connection, caller.tenant_id, request)
        authors = await policy_rows.authors(connection, caller.tenant_id, rows[: request.limit])
    return page_of(
        rows, request.limit, _position, lambda row: shown_policy(row, authors[row.policy_id])
    )


async def _matching(
    connection: AsyncConnection, tenant_id: str, request: PoliciesRequest
) -> list[StoredPolicy]:
    """Return the rows that match the filters, at most one more than a page holds; the extra row
    shows that there is a next page."""
    after, wanted = request.after(int, str), request.limit + 1
    named = {"industry": request.industry, "process_group": request.process_group}
    members = {name: value for name, value in named.items() if value is not None}
    wanting = Filter(request.agent_role, request.name, request.source, members)
    found: list[StoredPolicy] = []
    while len(found) < wanted:
        rows = await policy_rows.page(connection, tenant_id, wanting, after, wanted)
        found += [row for row in rows if _matches(row, request.source)]
        if len(rows) < wanted:
            break
        after = _position(rows[-1])
    return found[:wanted]


def _matches(policy: StoredPolicy, source: str | None) -> bool:
    # The query finds the text of a source anywhere in the body.
    body = policy.body
    return source is None or any(
        source in each for each in (*body["allowed_sources"], *body["denied_sources"])
    )


def _position(policy: StoredPolicy) -> SortKey:
    return policy.created_at, policy.policy_id


class PolicyVersionsRequest(ListRequest):
    """The policy whose versions to list. A deleted policy keeps its versions."""

    policy_id: Identifier


async def list_policy_versions(
    policies: Policies, caller: Caller, request: PolicyVersionsRequest
) -> Page[PolicyVersion]:
    """List a policy's versions, newest first."""
    tenant_id, before = caller.tenant_id, request.seq()
    async with policies.store.reading(tenant_id) as connection:
        # This finds deleted policies too: an auditor may ask for their history.
        await existing_policy(connection, tenant_id, request.policy_id)
        rows = await policy_rows.versions(
            connection, tenant_id, request.policy_id, before, request.limit + 1
        )
    return page_of(rows, request.limit, lambda row: (row.version,), _shown)


def _shown(row: StoredVersion) -> PolicyVersion:
    return PolicyVersion(
        version=row.version,
        policy=PolicyFields(**row.body),
        changed_by=row.changed_by,
        changed_at=rfc3339(row.changed_at),
        change=row.change,
    )


async def reload_policies(policies: Policies, caller: Caller, _: EmptyRequest) -> Reloaded:
    """Reload the tenant's policy files; if any file is invalid, or they would break a guardrail,
    nothing changes."""
    # The revision to report if the files match the store, and so nothing is written.
    WRITTEN_REVISION.set(caller.tenant.policy_set.revision)
    tenant_id = caller.tenant_id
    try:
        done = await reload_tenant(policies, tenant_id, caller.by)
    except FilesBreakGuardrail as error:
        raise Conflict(
            f"the policy files would break a guardrail: {error}", details=error.broken.details
        ) from error
    except LoadError as error:
        raise Invalid(
            "the policy files can't be used; nothing was changed", details=str(error)
        ) from error
    return replace(done, warnings=await _warnings(policies, tenant_id))


async def _warnings(policies: Policies, tenant_id: str) -> list[str]:
    """Return warnings about policy folders that belong to no tenant, but have a name similar to
    this tenant's id."""
    if policies.directory is None:
        return ["SLUICE_POLICY_DIR is not set: no policy comes from a file"]
    found = await unowned_folders(policies)
    # The other folders are the operator's business, so this tenant does not see them.
    return [str(each) for each in found if each.nearest == tenant_id]


class ReplacedPolicy(PolicyBody):
    """The complete new policy. With `If-Match`, it replaces only the version named there."""

    shown = PolicyResponse
    in_header: ClassVar[Mapping[str, str]] = {"if_match": "If-Match"}

    policy_id: Identifier
    if_match: IfMatch | None = Field(
        None,
        description='Replace only this version, for example `"3"`.',
        json_schema_extra={"pattern": TAGS, "examples": ['"3"', "*"]},
    )


async def replace_policy(
    policies: Policies, caller: Caller, request: ReplacedPolicy
) -> PolicyResponse:
    """Replace a policy; the previous version stays in its history."""

    async def work(tx: Transaction) -> PolicyResponse:
        row = await active_policy(tx.connection, tx.tenant_id, request.policy_id)
        if not if_match_holds(request.if_match, row.version):
            raise PreconditionFailed(
                f"policy `{row.policy_id}` is at version {row.version}: read it again, then retry"
            )
        body = request.body()
        if encode(row.body) == encode(body):
            # No new version, so that a retry of the same request changes nothing.
            return await policy_change.shown(tx, row)
        if request.name != row.name:
            await policy_change.refuse_taken(tx, request.name)
        changed = replace(
            row,
            name=request.name,
            agent_role=request.agent_role,
            body=body,
            version=row.version + 1,
            user_modified=True,  # from now on, a reload of the files skips this policy
            updated_at=tx.now,
        )
        await policy_rows.put(tx.connection, tx.tenant_id, changed)
        # Publish both roles: the policy may have moved from one to the other.
        await policy_change.publish(tx, {row.agent_role, changed.agent_role})
        both = policy_change.Changed(row, changed)
        await policy_change.record(policies, tx, [both], "updated", caller.by)
        return await policy_change.shown(tx, changed)

    return await policies.store.write(caller.tenant_id, work)


async def restore_policy(
    policies: Policies, caller: Caller, request: PolicyRequest
) -> PolicyResponse:
    """Restore a policy to its file's definition; a deleted policy becomes active again."""

    async def work(tx: Transaction) -> PolicyResponse:
        row = await existing_policy(tx.connection, tx.tenant_id, request.policy_id)
        restored = _restored(row, tx.now)
        if restored is None:
            return await policy_change.shown(tx, row)
        # Another policy may have taken the name while this one was deleted or had another.
        if row.deleted_at is not None or restored.name != row.name:
            await policy_change.refuse_taken(tx, restored.name)
        await policy_rows.put(tx.connection, tx.tenant_id, restored)
        await policy_change.publish(tx, {row.agent_role, restored.agent_role})
        changed = policy_change.Changed(row, restored)
        await policy_change.record(policies, tx, [changed], "restored", caller.by)
        return await policy_change.shown(tx, restored)

    return await policies.store.write(caller.tenant_id, work)


def _restored(row: StoredPolicy, now: int) -> StoredPolicy | None:
    """Return the row as its file defines it, with a new version, or None if it already matches its
    file. Raise `Conflict` if no file defines the policy."""
    body = row.file_body
    if body is None:
        raise Conflict(f"no file defines policy `{row.policy_id}`: there is nothing to restore")
    if row.deleted_at is None and not row.user_modified and encode(row.body) == encode(body):
        return None
    return replace(
        row,
        name=body["name"],
        agent_role=body["agent_role"],
        body=body,
        version=row.version + 1,
        user_modified=False,  # from now on, a reload of the files applies to it again
        updated_at=now,
        deleted_at=None,
    )


async def show_policy_file(
    policies: Policies, caller: Caller, request: PolicyRequest
) -> PolicyFields:
    """Show what a policy's file defines, which a restore would put in force.

    The policy may have been changed by the API since, or deleted.
    """
    async with policies.store.reading(caller.tenant_id) as connection:
        row = await existing_policy(connection, caller.tenant_id, request.policy_id)
    if row.file_body is None:
        raise NotFound(f"no file defines policy `{request.policy_id}`")
    return PolicyFields(**row.file_body)


async def show_policy_files(policies: Policies, caller: Caller, _: EmptyRequest) -> PolicyFiles:
    """Show whether the tenant's policy files are in force, or why they were refused when they were
    last read."""
    refused = policies.refused_files.get(caller.tenant_id)
    return PolicyFiles(
        watched=policies.directory is not None,
        refused_at=time_or_none(None if refused is None else refused.at),
        faults=[] if refused is None else list(refused.faults),
    )
