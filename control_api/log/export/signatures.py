"""The checkpoints that an export cites, and the keys that signed them.

After an incarnation the log's checkpoints have another origin; each origin holds for a range of
sizes. Knows no entry.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.queries import log_keys
from control_api.store.schema.proofs import checkpoints, incarnations
from policies.ground.signing import Endorsement, KeyRing
from policies.trail.proofs.signed_note import ED25519, VerifierKey

WITHOUT_END = 2**63 - 1


class OriginSpan(NamedTuple):
    """The sizes above `above`, up to `most` (inclusive), whose checkpoints have this origin."""

    origin: str
    above: int
    most: int


class StoredCheckpoint(NamedTuple):
    """A checkpoint's size and its signed note."""

    size: int
    note: str


async def origin_spans(connection: AsyncConnection, tenant_id: str, log: str) -> list[OriginSpan]:
    """The log's origins, in order of their sizes."""
    rows = (await connection.execute(_INCARNATIONS, {"tenant": tenant_id})).all()
    origins = [(log, -1), *((row.origin, row.seq) for row in rows)]
    # The `incarnation` entry is the first that the new origin covers.
    ends = [*(seq for _, seq in origins[1:]), WITHOUT_END]
    return [
        OriginSpan(origin, above, most) for (origin, above), most in zip(origins, ends, strict=True)
    ]


def newest(
    connection: Connection, tenant_id: str, span: OriginSpan, above: int, most: int
) -> StoredCheckpoint | None:
    """The newest checkpoint of a size above `above` and up to `most`."""
    wanted = {"tenant": tenant_id, "origin": span.origin, "above": above, "most": most}
    row = connection.execute(_NEWEST, wanted).one_or_none()
    return None if row is None else StoredCheckpoint(*row)


async def covering(
    connection: AsyncConnection, tenant_id: str, span: OriginSpan, size: int
) -> StoredCheckpoint | None:
    """The first checkpoint of at least `size` entries."""
    wanted = {"tenant": tenant_id, "origin": span.origin, "size": size, "most": span.most}
    row = (await connection.execute(_COVERING, wanted)).one_or_none()
    return None if row is None else StoredCheckpoint(*row)


async def signing_keys(
    connection: AsyncConnection, origin: str, ring: KeyRing
) -> list[dict[str, Any]]:
    """The header's `keys`. `connection` must be one that sees every tenant's rows."""
    chain = list(ring.history)
    first = chain[0].former if chain else ring.signer.public
    # Another replica may already sign with a successor of this process's key.
    for each in await log_keys.endorsements(connection):
        if each.former == (chain[-1].next if chain else first) and each.holds():
            chain.append(each)
    return _keys(origin, first, chain)


def _keys(origin: str, first: bytes, chain: Sequence[Endorsement]) -> list[dict[str, Any]]:
    keys = [(first, None), *((each.next, each.to_wire()) for each in chain)]
    return [
        {"key": VerifierKey(origin, ED25519, public).text(), "endorsement": endorsement}
        for public, endorsement in keys
    ]


_OF_ORIGIN = (
    checkpoints.c.tenant_id == bindparam("tenant"),
    checkpoints.c.origin == bindparam("origin"),
)
_INCARNATIONS = (
    select(incarnations.c.origin, incarnations.c.seq)
    .where(incarnations.c.tenant_id == bindparam("tenant"))
    .order_by(incarnations.c.number)
)
_NEWEST = (
    select(checkpoints.c.size, checkpoints.c.note)
    .where(
        *_OF_ORIGIN,
        checkpoints.c.size > bindparam("above"),
        checkpoints.c.size <= bindparam("most"),
    )
    .order_by(checkpoints.c.size.desc())
    .limit(1)
)
_COVERING = (
    select(checkpoints.c.size, checkpoints.c.note)
    .where(
        *_OF_ORIGIN,
        checkpoints.c.size >= bindparam("size"),
        checkpoints.c.size <= bindparam("most"),
    )
    .order_by(checkpoints.c.size)
    .limit(1)
)
