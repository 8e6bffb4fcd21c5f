"""Two replicas that write a tenant's first records at the same time both write to one log."""

from __future__ import annotations

import pytest

from tests.control_api.store.interleaving import after_statement
from tests.support.open_store import OTHER, TENANT, decision, opened


@pytest.mark.deep(stands_in="test_a_head_that_another_replica_creates_last_is_shared")
async def test_a_head_that_another_replica_creates_meanwhile_is_not_lost(
    postgresql_url: str,
) -> None:
    """The other replica commits the first record after this one has looked for the head."""
    async with opened(postgresql_url) as world, opened(postgresql_url) as other:
        with after_statement("FROM log_heads", lambda: other.log.append(TENANT, decision())):
            appended = await world.log.append(TENANT, decision())
        assert appended.seq == 1
        assert [row.size for row in await world.rows("SELECT size FROM log_heads")] == [2]


async def test_a_head_that_another_replica_creates_last_is_shared(postgresql_url: str) -> None:
    """The other replica commits the first record after this one has found no entry either."""
    async with opened(postgresql_url) as world, opened(postgresql_url) as other:
        with after_statement("FROM installation", lambda: other.log.append(TENANT, decision())):
            appended = await world.log.append(TENANT, decision())
        assert appended.seq == 1
        # Or after this one has looked for the head, and not yet for entries.
        with after_statement("FROM log_heads", lambda: other.log.append(OTHER, decision())):
            appended = await world.log.append(OTHER, decision())
        assert appended.seq == 1
