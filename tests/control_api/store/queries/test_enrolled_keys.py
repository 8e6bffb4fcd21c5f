"""Expired keys of pods are deleted, so that the table grows with the pods and not with time."""

from __future__ import annotations

import pytest

from control_api.registry.key_expiry import forget_expired_keys
from control_api.store.queries import key_rows
from control_api.store.queries.key_rows import EnrolledKey
from control_api.store.transaction import Transaction
from tests.support.open_store import TENANT, opened

HOUR = 3_600_000_000


def key(number: int, expires_at: int) -> EnrolledKey:
    return EnrolledKey(
        key_id=f"key_{number}",
        digest=number.to_bytes(32, "big"),
        scope="sidecar",
        agent_id="a",
        generation="enr_1",
        pod="lending/loans-0",
        pod_uid="u",
        created_at=expires_at - HOUR,
        expires_at=expires_at,
    )


async def test_expired_keys_are_deleted(either_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Several transactions, so that evaluations get their turn in between.
    monkeypatch.setattr(key_rows, "EXPIRED_AT_ONCE", 7)
    async with opened(either_url) as world:
        now = world.now()

        async def add(tx: Transaction) -> None:
            expired = [key(number, now - 2 * HOUR) for number in range(20)]
            live = [key(20, now + HOUR), key(21, now - HOUR // 2)]
            await key_rows.add_enrolled(tx.connection, tx.tenant_id, [*expired, *live])

        await world.store.write(TENANT, add)
        assert await forget_expired_keys(world.store, TENANT) == 20
        query = "SELECT key_id FROM enrolled_keys WHERE tenant_id = :tenant ORDER BY key_id"
        # One that expired just now is still told apart from one that never was.
        assert await world.rows(query, tenant=TENANT) == [("key_20",), ("key_21",)]
        assert await forget_expired_keys(world.store, TENANT) == 0
