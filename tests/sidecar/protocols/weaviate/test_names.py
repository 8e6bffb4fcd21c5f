"""Names of collections and aliases: lists show visible ones only, and each name is looked up.
In front of a minimal server (`server.py`)."""

from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.sidecar.protocols.weaviate.front import LOOKUP, OPEN, q
from tests.sidecar.protocols.weaviate.server import SETTINGS, Server
from tests.support.proxy import policy


async def test_lists_show_visible_names_only(front: Minimal) -> None:
    listed = (await front.ask("GET", "/v1/schema")).json["classes"]
    assert listed == [{"class": name, **SETTINGS} for name in ("Open", "OpenMore")]
    assert (await front.ask("GET", "/v1/aliases")).json == {
        "aliases": [{"alias": "Docs", "class": "Open"}]
    }
    [node] = (await front.ask("GET", "/v1/nodes")).json["nodes"]
    assert [each["class"] for each in node["shards"]] == ["Open", "OpenMore"]
    assert "stats" not in node


async def test_a_list_of_tenants_shows_only_visible_ones(tmp_path: Path) -> None:
    readers = policy(denied_sources=("weaviate://kb/Open/theirs",))
    async with minimal(tmp_path, "weaviate", scripted(Server("low").answer), readers) as front:
        answered = await front.ask("GET", "/v1/schema/Docs/tenants")
        assert answered.json == [{"name": "ours"}]
        whole = await front.ask("GET", "/v1/schema/OpenMore/tenants")
        assert len(whole.json) == 2


async def test_an_unlisted_alias_is_judged_by_its_target(tmp_path: Path) -> None:
    def narrow(method: str, target: str, raw: bytes) -> tuple[int, Any]:
        if target == "/v1/aliases":
            return 200, {"aliases": []}
        return Server("low").answer(method, target, raw)

    async with minimal(tmp_path, "weaviate", scripted(narrow), OPEN) as front:
        answered = await front.ask("POST", "/v1/graphql", q("{ Get { OpenAlias { title } } }"))
        denied(answered, "analysts-read")
        assert await front.sources() == [("DENY", "weaviate://kb/Shut")]


@pytest.mark.parametrize("answer", [(403, {}), (500, {}), (200, []), (200, {"class": 1})])
async def test_a_failed_look_up_of_a_collection_is_a_denial(
    tmp_path: Path, answer: tuple[int, Any]
) -> None:
    def failing(_method: str, target: str, _raw: bytes) -> tuple[int, Any]:
        return (200, {"aliases": []}) if target == "/v1/aliases" else answer

    async with minimal(tmp_path, "weaviate", scripted(failing), OPEN) as front:
        answered = await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
        denied(answered, "unresolved_source")


async def test_names_are_cached_for_half_a_minute(front: Minimal) -> None:
    for _ in range(3):
        await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
    assert (front.lines.count(LOOKUP), front.lines.count("GET /v1/schema/Open")) == (1, 1)
    front.ticking.ahead = 31
    await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
    assert (front.lines.count(LOOKUP), front.lines.count("GET /v1/schema/Open")) == (2, 2)


async def test_a_server_without_aliases_has_none(tmp_path: Path) -> None:
    def old(method: str, target: str, raw: bytes) -> tuple[int, Any]:
        return (404, {}) if target == "/v1/aliases" else Server("low").answer(method, target, raw)

    async with minimal(tmp_path, "weaviate", scripted(old), OPEN) as front:
        answered = await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
        assert answered.status == 200


async def test_a_failed_look_up_of_aliases_is_a_denial(tmp_path: Path) -> None:
    async with minimal(tmp_path, "weaviate", scripted(lambda *_: (500, {})), OPEN) as front:
        answered = await front.ask("POST", "/v1/graphql", q("{ Get { Open { title } } }"))
        denied(answered, "unresolved_source")
