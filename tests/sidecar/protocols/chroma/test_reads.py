"""A real Chroma server: what the agent may read comes back as Chroma sends it, by whatever
spelling of the id, and nothing else does. With its neighbours, every trap of `protocols/RULES.md`,
Chroma, is a test."""

import asyncio
import hashlib
import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from chromadb.errors import AuthorizationError, NotFoundError

from policies.definitions.model import Policy
from sidecar.settings.model import NamedSource
from tests.sidecar.protocols.chroma.front import (
    FORMS,
    QUERY,
    TENANT,
    UNKNOWN,
    Front,
    client,
    fronting,
)
from tests.sidecar.protocols.minimal import denied
from tests.sidecar.proxy.raw_client import one
from tests.support.proxy import listening, policy, sidecar, source
from tests.support.scripted_source import Script, answer, data_source


async def test_the_client_reads_through_the_listener_as_from_chroma(front: Front) -> None:
    def read(port: int) -> list[Any]:
        collection = client(front, port).get_collection("open_docs", embedding_function=None)
        return [
            collection.query(query_embeddings=[[1.0, 2.0]], n_results=1),
            collection.get(include=["documents", "metadatas", "embeddings"])["documents"],
            collection.count(),
            collection.peek()["ids"],
        ]

    through = await asyncio.to_thread(read, front.port)
    assert through == await asyncio.to_thread(read, front.chroma)
    decisions = await front.sidecar.decisions()
    assert {each[0] for each in decisions} == {"ALLOW"}
    assert {each[2] for each in decisions} == {front.source("open_docs")}


async def test_a_denied_collection_raises_with_the_reason(front: Front) -> None:
    def read() -> None:
        client(front, front.port).get_collection("shut_docs", embedding_function=None)

    with pytest.raises(AuthorizationError, match=r"shut_docs.*allowed_sources.*analysts-read"):
        await asyncio.to_thread(read)
    assert (await front.sidecar.decisions())[-1] == (
        "DENY", "analysts-read", front.source("shut_docs"),
    )  # fmt: skip
    assert not any("shut_docs" in line for line in front.relay.lines)


ALL = ("chroma://kb/*",)
ANOTHER = {"id": UNKNOWN.replace("1", "6"), "tenant": TENANT, "database": "db", "name": "other"}


@pytest.mark.parametrize(
    ("readers", "shown"),
    [
        (policy(allowed_sources=ALL), True),
        (policy(allowed_sources=("*",), denied_sources=("chroma://other/*",)), True),
        (policy(allowed_sources=("chroma://kb/*/*/*_docs",)), False),
        (policy(allowed_sources=ALL, denied_sources=("*/shut_*",)), False),
        (policy(allowed_sources=ALL, max_sensitivity="low"), False),
    ],
)
async def test_a_missing_collection_is_revealed_only_to_an_agent_that_may_read_all(
    chroma: int, tmp_path: Path, readers: Policy, *, shown: bool
) -> None:
    async with fronting(chroma, tmp_path, readers) as front:
        answered = await front.ask("POST", f"{front.names}/{UNKNOWN}/query", QUERY)
        denied(answered, "unresolved_source", 404 if shown else 403)
        assert answered.json["error"] == ("NotFoundError" if shown else "AuthorizationError")
        assert await front.sidecar.decisions() == [("DENY", "unresolved_source", "chroma://kb")]


async def test_a_missing_collection_is_hidden_if_any_named_source_is_forbidden(
    chroma: int, tmp_path: Path
) -> None:
    async with fronting(chroma, tmp_path, policy(allowed_sources=ALL)) as front:
        names = {front.source("shut_docs"): NamedSource("contracts", "low")}
        configured = source(front.chroma, "chroma", names=names)
        async with listening(front.sidecar, configured) as port:
            front.port = port
            answered = await front.ask("POST", f"{front.names}/{UNKNOWN}/query", QUERY)
            denied(answered, "unresolved_source")


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (answer("HTTP/1.1 503 Service Unavailable"), "status 503"),
        (answer(body=json.dumps(ANOTHER).encode()), "answered about another collection"),
    ],
    ids=["a status", "another collection"],
)
async def test_a_failed_look_up_is_not_reported_as_a_missing_collection(
    tmp_path: Path, script: Script, told: str
) -> None:
    async with (
        data_source(script) as failing,
        sidecar(tmp_path, policy(allowed_sources=ALL)) as made,
        listening(made, source(failing.port, "chroma")) as port,
    ):
        path = f"/api/v2/tenants/{TENANT}/databases/db/collections/{UNKNOWN}/count"
        answered = await one(port, f"GET {path} HTTP/1.1\r\nHost: kb\r\n\r\n".encode())
        denied(answered, "unresolved_source")
        assert told in answered.json["message"]


async def test_the_client_raises_not_found_for_a_collection_that_was_deleted(
    chroma: int, tmp_path: Path
) -> None:
    async with fronting(chroma, tmp_path, policy(allowed_sources=ALL)) as front:

        def read() -> None:
            opened = client(front, front.port)
            held = opened.get_collection("open_docs", embedding_function=None)
            front.direct("DELETE", f"{front.names}/open_docs")
            # Names are forgotten in time.
            front.ticking.ahead += 60
            with pytest.raises(NotFoundError):
                opened.get_collection("open_docs")
            with pytest.raises(NotFoundError, match=r"Collection .* does not exist"):
                held.count()

        await asyncio.to_thread(read)


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("/query", QUERY),
        ("/query?limit=1&offset=0", {**QUERY, "include": ["documents", "embeddings"]}),
        ("/get", {}),
        ("/get", {"include": ["documents", "metadatas", "uris"], "limit": 1}),
        ("/query", {"wrong": True}),
        ("/search", {"searches": []}),
    ],
)
async def test_an_allowed_answer_is_chromas_byte_for_byte(
    front: Front, verb: str, body: object
) -> None:
    def straight() -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", front.chroma)
        connection.request(
            "POST", front.one("open_docs", verb), json.dumps(body),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        answer = connection.getresponse()
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, answer.read(), fields

    status, body_bytes, fields = await asyncio.to_thread(straight)
    answered = await front.ask("POST", front.one("open_docs", verb), body)
    assert (answered.status, answered.body) == (status, body_bytes)
    theirs = {**answered.fields}
    event_id = theirs.pop("x-sluice-event-id")
    assert {**theirs, "date": ""} == {**fields, "date": ""}
    [lineage] = await front.sidecar.lineage()
    assert lineage["event"]["id"] == event_id
    assert lineage["detail"]["status"] == status
    assert lineage["detail"]["bytes"] == len(body_bytes)
    assert lineage["detail"]["sha256"] == hashlib.sha256(body_bytes).hexdigest()
    assert lineage["outcome"] == "completed"


async def test_plain_names_and_levels_come_from_the_configuration(
    chroma: int, tmp_path: Path
) -> None:
    readers = policy(allowed_sources=("handbook", "contracts"), max_sensitivity="medium")
    async with fronting(chroma, tmp_path, readers) as front:
        names = {
            front.source("open_docs"): NamedSource("handbook", "low"),
            front.source("shut_docs"): NamedSource("contracts", "high"),
        }
        configured = source(front.chroma, "chroma", names=names)
        async with listening(front.sidecar, configured) as port:
            front.port = port
            assert (await front.ask("POST", front.one("open_docs", "/query"), QUERY)).status == 200
            denied(
                await front.ask("POST", front.one("shut_docs", "/query"), QUERY), "analysts-read"
            )
            denied(
                await front.ask("POST", front.one("open_more", "/query"), QUERY), "analysts-read"
            )
        assert await front.sidecar.decisions() == [
            ("ALLOW", "analysts-read", "handbook"),
            ("DENY", "analysts-read", "contracts"),
            ("DENY", "analysts-read", front.source("open_more")),
        ]
        levels = [
            record["pub"]["request"]["sensitivity_level"]
            for record in await front.sidecar.records()
            if record["kind"] == "decision"
        ]
        assert levels == ["low", "high", "medium"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("verb", ["query", "get", "search"])
async def test_no_form_of_a_denied_id_is_read(front: Front, form: str, verb: str) -> None:
    # Cached in its usual form, and allowed in another: neither may matter.
    await front.ask("POST", front.one("open_docs", "/query"), QUERY)
    text = FORMS[form](front.ids["shut_docs"])
    before = len(front.relay.lines)
    answered = await front.ask("POST", f"{front.names}/{text}/{verb}", QUERY)
    denied(answered, "analysts-read")
    assert [line for line in front.relay.lines[before:] if "by-id" not in line] == []
    assert (await front.sidecar.decisions())[-1][2] == front.source("shut_docs")


@pytest.mark.parametrize("form", FORMS)
async def test_every_form_of_an_allowed_id_is_read(front: Front, form: str) -> None:
    text = FORMS[form](front.ids["open_docs"])
    answered = await front.ask("POST", f"{front.names}/{text}/get", {})
    assert answered.status == 200
    assert b"text of open_docs" in answered.body


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "path",
    [
        "tenants/{tenant}/databases/default_database",
        "tenants/nobody/databases/{database}",
        "tenants/nobody/databases/nothing",
        "tenants/open/databases/open_docs",
    ],
)
async def test_other_tenants_and_databases_in_the_path_do_not_change_the_collection(
    front: Front, path: str, known: bool
) -> None:
    if known:
        await front.ask("GET", front.names)
    stated = path.format(tenant=TENANT, database=front.database)
    for verb in ("query", "get"):
        answered = await front.ask(
            "POST", f"/api/v2/{stated}/collections/{front.ids['shut_docs']}/{verb}", QUERY
        )
        # Cached: judged as what it is. Not cached: Chroma finds it only in its own database.
        denied(answered, "analysts-read" if known else "unresolved_source")
    assert not any("/query" in line or "/get" in line for line in front.relay.lines)


async def test_a_cached_id_is_judged_by_its_collection_not_by_the_path(front: Front) -> None:
    await front.ask("GET", f"{front.names}/open_docs")
    stated = f"/api/v2/tenants/x/databases/shut_docs/collections/{front.ids['open_docs']}/get"
    await front.ask("POST", stated, {})
    assert (await front.sidecar.decisions())[-1][2] == front.source("open_docs")


@pytest.mark.parametrize("verb", ["query", "get", "search"])
async def test_an_unknown_id_is_denied_after_one_look_up(front: Front, verb: str) -> None:
    denied(await front.ask("POST", f"{front.names}/{UNKNOWN}/{verb}", QUERY), "unresolved_source")
    assert front.relay.lines == [f"GET {front.names}/by-id/{UNKNOWN}"]
    assert await front.sidecar.decisions() == [("DENY", "unresolved_source", "chroma://kb")]


@pytest.mark.parametrize(
    "text",
    ["open_docs", "1", "not-a-uuid", f"{UNKNOWN}x", f"%20{UNKNOWN}", f"+{UNKNOWN}", "by-id",
     UNKNOWN.replace("1", "_"), UNKNOWN.replace("-", "--"), f"URN:UUID:{UNKNOWN}"],
)  # fmt: skip
async def test_an_invalid_id_is_denied_without_a_look_up(front: Front, text: str) -> None:
    denied(await front.ask("POST", f"{front.names}/{text}/query", QUERY), "unresolved_source")
    assert front.relay.lines == []


@pytest.mark.parametrize("what", ["count", "indexing_status", "fork_count"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_metadata_of_a_collection_is_judged_like_the_collection(
    front: Front, method: str, what: str
) -> None:
    shut = await front.ask(method, front.one("shut_docs", f"/{what}"))
    assert shut.status == 403
    assert not any(what in line for line in front.relay.lines)
    await front.ask(method, front.one("open_docs", f"/{what}"))
    assert [each[:1] + each[2:] for each in await front.sidecar.decisions()] == [
        ("DENY", front.source("shut_docs")),
        ("ALLOW", front.source("open_docs")),
    ]


async def test_an_id_is_looked_up_once_and_then_cached(front: Front) -> None:
    for _ in range(3):
        await front.ask("POST", front.one("open_docs", "/get"), {})
    assert sum("by-id" in line for line in front.relay.lines) == 1


@pytest.mark.parametrize("learnt", ["name", "list", "by-id"])
async def test_ids_are_cached_from_responses(front: Front, learnt: str) -> None:
    target = {
        "name": f"{front.names}/open_docs",
        "list": front.names,
        "by-id": f"{front.names}/by-id/{front.ids['open_docs']}",
    }[learnt]
    assert (await front.ask("GET", target)).status == 200
    front.relay.lines.clear()
    assert (await front.ask("POST", front.one("open_docs", "/get"), {})).status == 200
    assert front.relay.lines == [f"POST {front.one('open_docs', '/get')}"]


async def test_an_unreachable_data_source_leaves_a_new_id_unresolved(
    front: Front, tmp_path: Path
) -> None:
    async with data_source() as stopped:
        pass
    async with listening(front.sidecar, source(stopped.port, "chroma")) as port:
        front.port = port
        denied(await front.ask("POST", front.one("open_docs", "/get"), {}), "unresolved_source")
