"""What another replica purges between two statements of a read is not taken for lost.

On PostgreSQL each statement sees what was committed before it. On SQLite a transaction sees one
state, so there is nothing to test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest

from control_api.log.append import check_heads
from control_api.log.database_verifier.verify import roots_at
from control_api.log.export.file import Wanted, open_export
from policies.ground.signing import KeyRing
from tests.control_api.log.purging import SIGNER, aged, purge, seqs
from tests.control_api.store.interleaving import after_statement
from tests.support.open_store import TENANT, OpenStore, opened

OLD, SIZE = 4, 8
ANCHOR_READ = "FROM purges"


@pytest.fixture
async def world(postgresql_url: str) -> AsyncIterator[OpenStore]:
    """A log of which a purge removes all entries below `OLD`. A start reads all of it."""
    async with opened(postgresql_url) as made:
        await aged(made, OLD, SIZE - OLD)
        yield made
        assert (await seqs(made))[0] == OLD


async def test_a_service_starts_while_another_one_purges(world: OpenStore) -> None:
    with after_statement(ANCHOR_READ, partial(purge(world).run, TENANT)):
        await check_heads(world.store)


async def test_an_export_begins_while_its_beginning_is_purged(world: OpenStore) -> None:
    with after_statement(ANCHOR_READ, partial(purge(world).run, TENANT)):
        export = await open_export(world.store, TENANT, Wanted(first=2), KeyRing(SIGNER))
    assert (export.header.first, export.header.until) == (2, SIZE)


async def test_roots_are_those_of_the_log_that_is_purged_meanwhile(world: OpenStore) -> None:
    expected = await roots_at(world.store, TENANT, [SIZE], SIZE)
    with after_statement(ANCHOR_READ, partial(purge(world).run, TENANT)):
        assert await roots_at(world.store, TENANT, [SIZE], SIZE) == expected
