"""One-time sign-in links: each is used once, while it lasts."""

from __future__ import annotations

from control_api.signin import queries
from control_api.signin.queries import SignInLink
from control_api.store.transaction import Transaction
from tests.support.open_store import TENANT, OpenStore


async def test_only_one_of_two_uses_of_a_link_succeeds(world: OpenStore) -> None:
    now, live, expired = world.now(), bytes(32), bytes([1] * 32)

    async def add(tx: Transaction) -> None:
        for digest, until in ((live, now + 1), (expired, now)):
            link = SignInLink(digest, "key_1", "admin", digest, until)
            await queries.add_link(tx.connection, tx.tenant_id, link)

    async def use(tx: Transaction) -> list[bool]:
        digests = (live, live, expired, bytes([2] * 32))
        return [await queries.use_link(tx.connection, TENANT, each, now) for each in digests]

    await world.store.write(TENANT, add)
    assert await world.store.write(TENANT, use) == [True, False, False, False]
