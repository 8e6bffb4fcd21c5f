"""Queries the public halves of the keys that signed the logs of this database, each endorsed by the
key before it. Rows are added and never changed. Knows no file and no private key."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import Row, Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.store.schema.statements import insert_if_absent, of_tenant
from control_api.store.schema.tables import log_keys
from control_api.store.store import Store
from control_api.store.transaction import Transaction
from policies.ground.signing import Endorsement, KeyRing


async def current(connection: AsyncConnection) -> bytes | None:
    """Return the public key that signs now, or None if no service has registered one yet."""
    last = await _last(connection)
    return None if last is None else bytes(last.public_key)


async def endorsements(connection: AsyncConnection) -> list[Endorsement]:
    """Return the stored endorsements, oldest first. They are not verified."""
    query = select(log_keys.c.public_key, log_keys.c.signature).where(of_tenant(log_keys, ""))
    rows = (await connection.execute(query.order_by(log_keys.c.place))).all()
    return [
        Endorsement(before.public_key, row.public_key, row.signature)
        for before, row in pairwise(rows)
        if row.signature is not None
    ]


async def trusted(store: Store, ring: KeyRing) -> tuple[bytes, ...]:
    """Return the public keys that are trusted to sign this database's logs. Another process may
    already sign with a successor of `ring`'s key."""
    async with store.reading_all_tenants() as connection:
        return ring.trusted(await endorsements(connection))


async def continued(store: Store, ring: KeyRing) -> tuple[Endorsement, ...]:
    """Return the endorsements that lead to the key that signs now: `ring`'s, or a successor of
    it."""
    async with store.reading_all_tenants() as connection:
        return ring.continued(await endorsements(connection))


async def add(store: Store, first: bytes | None, chain: Sequence[Endorsement]) -> None:
    """Add `first` if there is no key yet, then each endorsement that follows the current key, in
    one transaction. Of two processes that add at once, one succeeds and the other adds nothing."""

    async def work(tx: Transaction) -> None:
        last = await _last(tx.connection)
        place = 0 if last is None else last.place + 1
        if first is not None:
            if place or not await _put(tx.connection, 0, first, None):
                return
            place = 1
        for each in chain:
            if not await _put(tx.connection, place, each.next, each.signature):
                return  # another process was first: its keys and ours must not alternate
            place += 1

    await store.write("", work)


async def _last(connection: AsyncConnection) -> Row[Any] | None:
    query: Select[Any] = select(log_keys).where(of_tenant(log_keys, ""))
    found = await connection.execute(query.order_by(log_keys.c.place.desc()).limit(1))
    last: Row[Any] | None = found.one_or_none()
    return last


async def _put(
    connection: AsyncConnection, place: int, public: bytes, signature: bytes | None
) -> bool:
    values = {"tenant_id": "", "place": place, "public_key": public, "signature": signature}
    done = await connection.execute(insert_if_absent(log_keys, connection.dialect), values)
    return bool(done.rowcount == 1)
