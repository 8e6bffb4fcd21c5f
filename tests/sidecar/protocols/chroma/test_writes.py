"""Writes to Chroma: denied unless allowed, and then judged like reads."""

import asyncio
from typing import Any

import pytest

from sidecar.proxy.pipeline.lineage import DELAY_SECONDS
from tests.sidecar.protocols.chroma.front import (
    TENANT,
    Front,
    client,
)
from tests.sidecar.protocols.minimal import denied

WRITES = [
    ("POST", "{one}/add", {"ids": ["x"], "embeddings": [[1.0, 2.0]]}),
    ("POST", "{one}/update", {"ids": ["1"], "documents": ["y"]}),
    ("POST", "{one}/upsert", {"ids": ["1"], "embeddings": [[1.0, 2.0]]}),
    ("POST", "{one}/delete", {"ids": ["1"]}),
    ("PUT", "{one}", {"new_name": "open_else"}),
    ("POST", "{names}", {"name": "{name}"}),
    ("POST", "{names}", {"name": "{name}", "get_or_create": True}),
    ("DELETE", "{names}/{name}", None),
]


def written(front: Front, name: str, path: str, body: Any) -> tuple[str, Any]:
    target = path.format(one=front.one(name), names=front.names, name=name)
    if body and body.get("name"):
        body = {**body, "name": name}
    return target, body


@pytest.mark.parametrize(
    ("method", "path", "body"), [each for each in WRITES if "get_or_create" not in str(each)]
)
@pytest.mark.parametrize("name", ["open_docs", "shut_docs"])
async def test_writes_are_denied_unless_the_settings_allow_them(
    front: Front, name: str, method: str, path: str, body: Any
) -> None:
    target, body = written(front, name, path, body)
    denied(await front.ask(method, target, body), "write_denied")
    assert front.relay.lines == []
    assert [each[:2] for each in await front.sidecar.decisions()] == [("DENY", "write_denied")]


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
async def test_allowed_writes_are_judged_like_reads(
    writing: Front, method: str, path: str, body: Any
) -> None:
    target, sent = written(writing, "shut_docs", path, body)
    denied(await writing.ask(method, target, sent), "analysts-read")
    assert all("by-id" in line for line in writing.relay.lines)
    assert (await writing.sidecar.decisions())[-1][2] == writing.source("shut_docs")
    _, found = writing.direct("POST", writing.one("shut_docs", "/get"), {})
    assert found["documents"] == ["text of shut_docs"]


async def test_an_allowed_write_is_made_and_recorded(writing: Front) -> None:
    def write() -> list[str]:
        through = client(writing, writing.port)
        collection = through.get_or_create_collection("open_new", embedding_function=None)
        collection.add(ids=["1", "2"], embeddings=[[1.0, 2.0], [2.0, 1.0]], documents=["a", "b"])
        collection.upsert(ids=["2"], embeddings=[[2.0, 1.0]], documents=["c"])
        collection.delete(ids=["1"])
        found: list[str] = collection.get()["documents"]
        collection.modify(name="open_renamed")
        through.delete_collection("open_renamed")
        return found

    assert await asyncio.to_thread(write) == ["c"]
    decisions = await writing.sidecar.decisions()
    assert {each[0] for each in decisions} == {"ALLOW"}
    assert writing.source("open_renamed") in {each[2] for each in decisions}
    # A write is not a retrieval: lineage follows shortly, for the one read only.
    assert len(await writing.sidecar.lineage()) == 1
    await asyncio.sleep(5 * DELAY_SECONDS)
    kinds = [each["kind"] for each in await writing.sidecar.records()]
    assert kinds.count("lineage") == 1


async def test_get_or_create_does_not_open_a_closed_collection(writing: Front) -> None:
    answered = await writing.ask(
        "POST", writing.names, {"name": "shut_docs", "get_or_create": True}
    )
    denied(answered, "analysts-read")
    assert writing.relay.lines == []


@pytest.mark.parametrize(
    "body", [{"name": None}, {"name": ""}, {"name": ["open_docs"]}, {}, {"name": {"x": 1}}]
)
async def test_a_collection_without_a_name_is_not_created(writing: Front, body: Any) -> None:
    denied(await writing.ask("POST", writing.names, body), "unreadable_request", 400)
    assert writing.relay.lines == []


async def test_a_rename_needs_both_names(writing: Front) -> None:
    shut_to_open = await writing.ask("PUT", writing.one("shut_docs"), {"new_name": "open_now"})
    denied(shut_to_open, "analysts-read")
    open_to_shut = await writing.ask("PUT", writing.one("open_docs"), {"new_name": "shut_now"})
    denied(open_to_shut, "analysts-read")
    assert not any(line.startswith("PUT") for line in writing.relay.lines)
    # One denial each, and no ALLOW for the other name beside it.
    assert [each[0] for each in await writing.sidecar.decisions()] == ["DENY", "DENY"]
    renamed = await writing.ask("PUT", writing.one("open_docs"), {"new_name": "open_now"})
    assert renamed.status == 200
    same = await writing.ask("PUT", writing.one("open_more"), {"new_metadata": {"a": 1}})
    assert same.status == 200


async def test_a_rename_under_another_database_is_judged_where_the_collection_is(
    writing: Front,
) -> None:
    # Chroma renames by id and does not look at the path.
    await writing.ask("GET", writing.names)
    stated = f"/api/v2/tenants/{TENANT}/databases/open_other/collections"
    answered = await writing.ask(
        "PUT", f"{stated}/{writing.ids['open_docs']}", {"new_name": "shut_now"}
    )
    denied(answered, "analysts-read")
    assert (await writing.sidecar.decisions())[-1][2] == writing.source("shut_now")
