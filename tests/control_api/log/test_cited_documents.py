"""A document of a role is kept from its publication on, for as long as an entry can cite it."""

from __future__ import annotations

from pathlib import Path

import pytest

from control_api.log.ingest import ingest
from control_api.log.purge import LATE_DELIVERY
from control_api.log.tenant_change import publish_settings
from control_api.settings import read
from control_api.store.cited_documents import by_digests
from control_api.store.transaction import Transaction
from policies.checks.finding import Facts
from policies.definitions.model import Key, TenantSettings
from policies.evaluate import evaluate
from policies.retrieval import Retrieval
from policies.sets.policy_set import document_digest
from policies.sets.role import compile_role
from policies.trail.record import Record, decision_record
from tests.control_api.log.purging import DAY, keep_days, purge
from tests.support.open_store import TENANT, OpenStore, Spool, event_id, sql

LATE = LATE_DELIVERY


async def publish(world: OpenStore, **documents: bytes | None) -> None:
    async def work(tx: Transaction) -> None:
        await tx.publish({f"role/{name}": body for name, body in documents.items()})

    await world.store.write(TENANT, work)


async def kept(world: OpenStore) -> dict[bytes, bool]:
    """The bodies kept, and whether each is in force."""
    rows = await world.rows("SELECT digest, body, replaced_at FROM cited_documents")
    assert all(document_digest(bytes(row.body)) == row.digest for row in rows)
    return {bytes(row.body): row.replaced_at is None for row in rows}


def citing(body: bytes) -> Record:
    """A decision on facts that cite this document."""
    retrieval = Retrieval("support", "u", "handbook", "low")
    role = compile_role("support", [], document_digest(body))
    facts = Facts(TenantSettings(TENANT), Key("key_1", "evaluate"), None, None, role, 1)
    denied = evaluate(retrieval, facts._replace(role=None))
    return decision_record(retrieval, denied, facts, event_id=event_id(), salt=bytes(32))


async def test_a_document_is_kept_when_it_is_replaced_and_when_it_is_removed(
    world: OpenStore,
) -> None:
    await publish(world, a=b"[1]", b=b"[2]")
    assert await kept(world) == {b"[1]": True, b"[2]": True}
    await publish(world, a=b"[3]", b=None)
    assert await kept(world) == {b"[1]": False, b"[2]": False, b"[3]": True}
    await publish(world, a=b"[1]")
    assert await kept(world) == {b"[1]": True, b"[2]": False, b"[3]": False}


async def test_only_documents_of_roles_are_kept(world: OpenStore) -> None:
    async def work(tx: Transaction) -> None:
        await tx.publish({"agent/role/a": b"{}", "tenant": b"{}", "key/00": b"{}"})

    await world.store.write(TENANT, work)
    assert await kept(world) == {}


async def test_a_failed_publication_keeps_no_document(world: OpenStore) -> None:
    async def work(tx: Transaction) -> None:
        await tx.publish({"role/a": b"[1]"})
        raise KeyError

    with pytest.raises(KeyError):
        await world.store.write(TENANT, work)
    assert await kept(world) == {}


async def test_documents_are_found_by_their_digests(world: OpenStore) -> None:
    await publish(world, a=b"[1]")
    await publish(world, a=b"[2]")
    wanted = [document_digest(body) for body in (b"[1]", b"[2]", b"[3]")]
    async with world.store.reading(TENANT) as connection:
        found = await by_digests(connection, TENANT, wanted)
    assert found == {wanted[0]: b"[1]", wanted[1]: b"[2]"}


@pytest.mark.deep(stands_in="test_documents_published_by_an_older_replica_are_kept_when_replaced")
async def test_an_older_version_s_documents_are_adopted_at_the_start(
    world: OpenStore, tmp_path: Path
) -> None:
    settings = read({"SLUICE_DATA_DIR": str(tmp_path)})
    await publish(world, a=b"[1]", b=b"[2]")
    await sql(world.url, "DELETE FROM cited_documents")
    for _ in range(2):
        await publish_settings(world.store, settings, TENANT)
        assert await kept(world) == {b"[1]": True, b"[2]": True}


async def test_documents_published_by_an_older_replica_are_kept_when_replaced(
    world: OpenStore, tmp_path: Path
) -> None:
    await publish(world, a=b"[1]")
    await sql(world.url, "DELETE FROM cited_documents")
    await publish(world, a=b"[2]")
    assert await kept(world) == {b"[1]": False, b"[2]": True}
    # Those that are in force are adopted at the next start.
    await sql(world.url, "DELETE FROM cited_documents")
    settings = read({"SLUICE_DATA_DIR": str(tmp_path)})
    for _ in range(2):
        await publish_settings(world.store, settings, TENANT)
        assert await kept(world) == {b"[2]": True}


@pytest.mark.deep(stands_in="test_a_record_that_arrives_late_keeps_its_document")
async def test_a_document_is_deleted_when_no_entry_can_cite_it(world: OpenStore) -> None:
    await keep_days(world, 1)
    await publish(world, a=b"[1]", b=b"[2]")
    await world.log.append(TENANT, citing(b"[1]"))
    await publish(world, a=b"[3]")
    # The entry has gone, but a sidecar may still bring one that cites the document.
    world.now.ahead += 3 * DAY
    await world.log.append(TENANT, citing(b"[3]"))
    await purge(world).run(TENANT)
    assert b"[1]" in await kept(world)
    world.now.ahead += LATE
    await world.log.append(TENANT, citing(b"[3]"))
    await purge(world).run(TENANT)
    assert await kept(world) == {b"[2]": True, b"[3]": True}


async def test_a_record_that_arrives_late_keeps_its_document(world: OpenStore) -> None:
    await publish(world, a=b"[1]")
    record, decided = citing(b"[1]"), world.now()
    await publish(world, a=b"[2]")
    # Nothing goes while a sidecar may still bring such a record, or from a log kept for good.
    for days in (1, 0):
        await keep_days(world, days)
        await world.log.append(TENANT, citing(b"[2]"))
        world.now.ahead += 3 * DAY if days else LATE
        await purge(world).run(TENANT)
        assert await kept(world) == {b"[1]": False, b"[2]": True}
    await keep_days(world, 1)
    spool = Spool()
    payload = spool.record(record, at=decided)
    await ingest(world.store, TENANT, spool.source, spool.instance, [payload])
    await purge(world).run(TENANT)
    assert await kept(world) == {b"[1]": False, b"[2]": True}
    world.now.ahead += LATE + 3 * DAY
    await world.log.append(TENANT, citing(b"[2]"))
    await purge(world).run(TENANT)
    assert await kept(world) == {b"[2]": True}


@pytest.mark.deep(stands_in="test_a_record_that_arrives_late_keeps_its_document")
async def test_no_document_is_deleted_from_a_log_that_is_kept_forever(world: OpenStore) -> None:
    await keep_days(world, 0)
    await publish(world, a=b"[1]")
    await world.log.append(TENANT, citing(b"[1]"))
    await publish(world, a=b"[2]")
    world.now.ahead += 10 * LATE
    await world.log.append(TENANT, citing(b"[2]"))
    await purge(world).run(TENANT)
    assert await kept(world) == {b"[1]": False, b"[2]": True}
