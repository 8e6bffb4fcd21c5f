"""Changes of a policy set are read page by page, without gaps."""

from __future__ import annotations

import asyncio
import random

import pytest

from control_api.store.queries import documents
from policies.ground.errors import NotFound
from tests.control_api.store.interleaving import after_statement
from tests.support.open_store import OTHER, TENANT, OpenStore, opened


async def fetch(world: OpenStore, since: int, limit: int, max_bytes: int) -> documents.DocumentPage:
    async with world.store.reading(TENANT) as connection:
        return await documents.since(connection, TENANT, since, limit=limit, max_bytes=max_bytes)


async def publish(world: OpenStore, changed: dict[str, bytes | None]) -> None:
    await world.store.write(TENANT, lambda tx: tx.publish(changed))


async def follow(world: OpenStore, limit: int, max_bytes: int) -> dict[str, bytes | None]:
    """The documents of a sidecar that starts with none and follows the pages."""
    held: dict[str, bytes | None] = {}
    since = 0
    while True:
        page = await fetch(world, since, limit, max_bytes)
        revisions = [document.revision for document in page.documents]
        assert revisions == sorted(set(revisions))
        assert len(revisions) <= limit
        size = sum(len(document.body or b"") for document in page.documents)
        assert size <= max_bytes or len(revisions) == 1
        held |= {document.name: document.body for document in page.documents}
        if not page.more:
            return held
        since = revisions[-1]


async def test_following_page_by_page_gives_the_same_as_loading(world: OpenStore) -> None:
    chance = random.Random(3)
    for _ in range(30):
        names = chance.sample(range(12), chance.randrange(1, 6))
        bodies = [None if chance.random() < 0.2 else chance.randbytes(30) for _ in names]
        await publish(world, {f"role/{n}": body for n, body in zip(names, bodies, strict=True)})
    async with world.store.reading(TENANT) as connection:
        revision, loaded = await documents.load(connection, TENANT)
    for limit, max_bytes in ((1, 10_000), (5, 10_000), (100, 1), (100, 100), (1000, 1_000_000)):
        held = await follow(world, limit, max_bytes)
        assert {name: body for name, body in held.items() if body is not None} == loaded
    assert (await fetch(world, 0, 5, 10_000)).revision == revision
    for since in (revision, 10_000):
        newest = await fetch(world, since, 10, 100)
        assert newest == documents.DocumentPage(revision, [], more=False)


@pytest.mark.deep(stands_in="test_following_page_by_page_gives_the_same_as_loading")
async def test_a_page_ends_within_a_publication_of_many(world: OpenStore) -> None:
    await publish(world, {f"role/{n}": b"%d" % n for n in range(1200)})
    page = await fetch(world, 0, 512, 1_000_000)
    assert (len(page.documents), page.more, page.revision) == (512, True, 1200)
    assert len(await follow(world, 512, 1_000_000)) == 1200


@pytest.mark.deep(stands_in="test_following_page_by_page_gives_the_same_as_loading")
async def test_a_document_larger_than_a_page_is_sent_alone(world: OpenStore) -> None:
    await publish(world, {"a": b"1", "b": b"2" * 500, "c": b"3"})
    pages = []
    since = 0
    while True:
        page = await fetch(world, since, 100, 100)
        pages.append([document.name for document in page.documents])
        if not page.more:
            break
        since = page.documents[-1].revision
    assert pages == [["a"], ["b"], ["c"]]


@pytest.mark.deep(stands_in="test_following_page_by_page_gives_the_same_as_loading")
async def test_with_nothing_newer_a_page_is_empty(world: OpenStore) -> None:
    await publish(world, {"a": b"1"})
    assert await fetch(world, 1, 10, 100) == documents.DocumentPage(1, [], more=False)
    assert await fetch(world, 9, 10, 100) == documents.DocumentPage(1, [], more=False)


async def test_a_page_whose_documents_change_meanwhile_is_read_again(postgresql_url: str) -> None:
    """Others publish between the look at the sizes and the reading of the bodies."""
    async with opened(postgresql_url) as world, opened(postgresql_url) as other:
        await publish(world, {"role/a": b"1"})
        await publish(world, {"role/b": b"2"})
        with after_statement("FROM documents", lambda: publish(other, {"role/a": b"3"})):
            page = await fetch(world, 0, 1, 1000)
        assert [(each.name, each.revision) for each in page.documents] == [("role/b", 2)]
        assert (page.revision, page.more) == (3, True)


@pytest.mark.deep(stands_in="test_a_page_whose_documents_change_meanwhile_is_read_again")
async def test_following_while_others_publish_misses_nothing(world: OpenStore) -> None:
    async def write(number: int) -> None:
        for n in range(20):
            await publish(world, {f"role/{number}/{n % 5}": b"%d" % n})

    writers = [asyncio.ensure_future(write(number)) for number in range(4)]
    while not all(writer.done() for writer in writers):
        await follow(world, 3, 1000)
    await asyncio.gather(*writers)
    async with world.store.reading(TENANT) as connection:
        assert (await documents.load(connection, TENANT))[1] == await follow(world, 3, 1000)


async def test_all_of_a_kind_are_those_whose_names_begin_so(
    world: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "CHUNK", 2)
    for name in ("role/b", "role", "role/gone", "agent/a", "role/a", "role/a*"):
        await publish(world, {name: name.encode()})
    await publish(world, {"role/gone": None})
    await world.store.write(OTHER, lambda tx: tx.publish({"role/theirs": b"1"}))
    async with world.store.reading(TENANT) as connection:
        found = await documents.all_of(connection, TENANT, "role/")
        one = await documents.array_of(connection, TENANT, "role/a", exactly=True)
    assert found == [b"role/b", b"role/a", b"role/a*"]
    assert one == b"[role/a]"


@pytest.mark.deep(stands_in="test_an_unknown_tenant_has_no_documents_by_name")
async def test_an_unknown_tenant_has_no_documents(world: OpenStore) -> None:
    async with world.store.reading(TENANT) as connection:
        with pytest.raises(NotFound):
            await documents.load(connection, "ten_none")
        with pytest.raises(NotFound):
            await documents.since(connection, "ten_none", 0, limit=1, max_bytes=1)


async def named(
    world: OpenStore, names: list[str], max_bytes: int = 1000
) -> documents.DocumentPage:
    async with world.store.reading(TENANT) as connection:
        return await documents.by_name(connection, TENANT, names, max_bytes=max_bytes)


@pytest.mark.deep(stands_in="test_some_documents_by_name_are_of_one_revision_within_the_budget")
async def test_documents_by_name_share_one_revision_and_fit_the_budget(world: OpenStore) -> None:
    bodies: dict[str, bytes | None] = {f"role/{n}": b"x" * 100 for n in range(8)}
    await publish(world, {**bodies, "role/huge": b"y" * 5000, "role/gone": b"z"})
    await publish(world, {"role/gone": None})
    page = await named(world, ["role/1", "role/gone", "role/never", "role/1"])
    assert not page.more
    assert page.revision == (await fetch(world, 0, 100, 10_000)).revision
    assert {each.name: each.body for each in page.documents} == {
        "role/1": b"x" * 100,
        "role/gone": None,
        "role/never": None,
    }
    left, seen = sorted([*bodies, "role/huge"]), dict[str, bytes | None]()
    while left:
        page = await named(world, left, max_bytes=350)
        assert sum(len(each.body or b"") for each in page.documents) <= 350 or (
            [each.name for each in page.documents] == ["role/huge"]
        )
        assert page.more == (len(page.documents) < len(left))
        seen |= {each.name: each.body for each in page.documents}
        left = [name for name in left if name not in seen]
    assert seen == {**bodies, "role/huge": b"y" * 5000}


@pytest.mark.deep(stands_in="test_some_documents_by_name_are_of_one_revision_within_the_budget")
async def test_documents_by_name_never_mix_revisions(world: OpenStore) -> None:
    """Each publication writes the same body twice, so a mixed read would show two bodies."""
    await publish(world, {"role/a": b"0", "role/b": b"0"})

    async def write() -> None:
        for number in range(1, 40):
            body = str(number).encode()
            await publish(world, {"role/a": body, "role/b": body})

    writing = asyncio.create_task(write())
    while not writing.done():
        page = await named(world, ["role/a", "role/b"])
        one, two = page.documents
        assert one.body == two.body
        assert max(one.revision, two.revision) == page.revision
    await writing


async def test_an_unknown_tenant_has_no_documents_by_name(world: OpenStore) -> None:
    async with world.store.reading("ten_unknown") as connection:
        with pytest.raises(NotFound):
            await documents.by_name(connection, "ten_unknown", ["tenant"], max_bytes=1000)
        with pytest.raises(NotFound):
            await documents.load(connection, "ten_unknown")
        with pytest.raises(NotFound):
            await documents.since(connection, "ten_unknown", 0, limit=1, max_bytes=1)


async def test_some_documents_by_name_are_of_one_revision_within_the_budget(
    postgresql_url: str,
) -> None:
    """Others publish between the look at the sizes and the reading of the bodies."""
    async with opened(postgresql_url) as world, opened(postgresql_url) as other:
        first: dict[str, bytes | None] = {"role/a": b"0" * 60, "role/b": b"0" * 60}
        await publish(world, {**first, "role/gone": b"z"})
        await publish(world, {"role/gone": None})
        later: dict[str, bytes | None] = dict.fromkeys(first, b"1" * 60)
        names = ["role/b", "role/a", "role/gone", "role/never", "role/a"]
        with after_statement("FROM documents", lambda: publish(other, later)):
            page = await named(world, names)
        assert (page.more, page.revision) == (False, 6)
        assert {each.name: each.body for each in page.documents} == {
            **later,
            "role/gone": None,
            "role/never": None,
        }
        page = await named(world, ["role/a", "role/b"], max_bytes=100)
        assert ([each.name for each in page.documents], page.more) == (["role/a"], True)
        page = await named(world, ["role/b"], max_bytes=10)
        assert ([each.body for each in page.documents], page.more) == ([b"1" * 60], False)
