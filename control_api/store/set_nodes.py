"""Stores the nodes of the Merkle map over a policy set's documents, in the transaction that changes
the documents. Knows nodes only as rows; `policies.sets.merkle_map` knows their meaning."""

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.statements import chunks, of_tenant
from control_api.store.schema.tables import set_nodes
from policies.sets.merkle_map import ROOT, node_digest, nodes_of, updated_nodes


async def update_nodes(
    connection: AsyncConnection, tenant_id: str, changed: Mapping[str, str | None]
) -> dict[str, bytes | None]:
    """Store and return every node that changes with these documents; None for a removed node.
    `changed` maps a document's name to its digest, or None if it was removed. The caller must hold
    the lock on the tenant's row."""
    # Read only the nodes on the way from these documents to the root: the cost grows with the
    # change, not with the policy set.
    before = await fetch(connection, tenant_id, sorted(nodes_of(changed)))
    after = updated_nodes(before, changed)
    for chunk in chunks(sorted(after)):
        await connection.execute(_DELETE, {"tenant": tenant_id, "nodes": chunk})
    rows = [
        {"tenant_id": tenant_id, "node": node, "body": body}
        for node, body in after.items()
        if body is not None
    ]
    for part in chunks(rows):
        await connection.execute(insert(set_nodes), part)
    return after


async def fetch(
    connection: AsyncConnection, tenant_id: str, nodes: Sequence[str]
) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for chunk in chunks(nodes):
        rows = await connection.execute(_BY_NAME, {"tenant": tenant_id, "nodes": chunk})
        found |= {row.node: row.body for row in rows}
    return found


def root_digest(nodes: Mapping[str, bytes | None]) -> str:
    """Return the digest of the root node, which commits to the whole policy set."""
    body = nodes[ROOT]
    assert body is not None  # `updated_nodes` always writes it
    return node_digest(body)


_OF_TENANT = of_tenant(set_nodes)
_NAMED = set_nodes.c.node.in_(bindparam("nodes", expanding=True))
_BY_NAME = select(set_nodes.c.node, set_nodes.c.body).where(_OF_TENANT, _NAMED)
_DELETE = delete(set_nodes).where(_OF_TENANT, _NAMED)
