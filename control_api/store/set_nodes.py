"""The tree over a policy set's documents, moved in the transaction that changes them. Knows nodes
as rows; what they mean is known to `policies.sets.merkle_map`."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import bindparam, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.tables import set_nodes
from policies.sets.merkle_map import ROOT, node_digest, nodes_of, updated_nodes

_CHUNK = 500


async def grow(
    connection: AsyncConnection, tenant_id: str, changed: Mapping[str, str | None]
) -> dict[str, bytes | None]:
    """Every node that these documents change, as it is from now on; under the lock of the tenant's
    row. A document's digest, None where it was removed."""
    before = await bodies(connection, tenant_id, sorted(nodes_of(changed)))
    after = updated_nodes(before, changed)
    for chunk in _chunks(sorted(after)):
        await connection.execute(_AWAY, {"tenant": tenant_id, "nodes": chunk})
    rows = [
        {"tenant_id": tenant_id, "node": node, "body": body}
        for node, body in after.items()
        if body is not None
    ]
    for at in range(0, len(rows), _CHUNK):
        await connection.execute(insert(set_nodes), rows[at : at + _CHUNK])
    return after


async def bodies(
    connection: AsyncConnection, tenant_id: str, nodes: Sequence[str]
) -> dict[str, bytes]:
    """Those of the nodes that there are."""
    found: dict[str, bytes] = {}
    for chunk in _chunks(nodes):
        rows = await connection.execute(_THESE, {"tenant": tenant_id, "nodes": chunk})
        found |= {row.node: row.body for row in rows}
    return found


async def every(connection: AsyncConnection, tenant_id: str) -> dict[str, bytes]:
    """All nodes of the tenant."""
    return {row.node: row.body for row in await connection.execute(_ALL, {"tenant": tenant_id})}


def root_digest(nodes: Mapping[str, bytes | None]) -> str:
    """The digest that all of it comes to."""
    body = nodes[ROOT]
    assert body is not None  # `updated_nodes` always writes it
    return node_digest(body)


def _chunks(names: Sequence[str]) -> Iterable[Sequence[str]]:
    return (names[at : at + _CHUNK] for at in range(0, len(names), _CHUNK))


_OF_TENANT = set_nodes.c.tenant_id == bindparam("tenant")
_AMONG = set_nodes.c.node.in_(bindparam("nodes", expanding=True))
_ALL = select(set_nodes.c.node, set_nodes.c.body).where(_OF_TENANT)
_THESE = _ALL.where(_AMONG)
_AWAY = delete(set_nodes).where(_OF_TENANT, _AMONG)
