"""How far Chroma's responses are trusted: a scripted server returns what a real one doesn't."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.sidecar.proxy.raw_client import Answered, ask, get
from tests.support import waiting
from tests.support.proxy import Sidecar, listening, policy, sidecar, source
from tests.support.scripted_source import DataSource, Seen, data_source

ID = "11111111-2222-3333-4444-555555555555"
BASE = "/api/v2/tenants/t/databases/d/collections"


def collection(
    name: str | None = "open", tenant: str = "t", database: str = "d", **more: Any
) -> Any:
    return {"id": ID, "name": name, "tenant": tenant, "database": database, **more}


@dataclass
class Scripted:
    port: int
    upstream: DataSource
    sidecar: Sidecar
    answers: dict[str, Any] = field(default_factory=dict)
    """Answers by the last segment of the path."""
    status: int = 200
    fields: tuple[str, ...] = ()

    async def script(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        last = seen.target.partition("?")[0].rsplit("/", 1)[1]
        found = self.answers.get(last, self.answers.get("*"))
        body = found if isinstance(found, bytes) else orjson.dumps(found)
        lines = [f"HTTP/1.1 {self.status} OK", f"Content-Length: {len(body)}", *self.fields]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def get(self, target: str, *fields: str) -> Answered:
        return await ask(self.port, get(target, *fields))

    async def post(self, target: str, body: bytes = b"{}") -> Answered:
        head = f"POST {target} HTTP/1.1\r\nHost: kb\r\nContent-Length: {len(body)}\r\n\r\n"
        return await ask(self.port, head.encode() + body)


@asynccontextmanager
async def scripting(tmp_path: Path, **changes: Any) -> AsyncIterator[Scripted]:
    allowed = policy(allowed_sources=("chroma://kb/t/d/open*",))
    async with (
        data_source() as upstream,
        sidecar(tmp_path, allowed) as made,
        listening(made, source(upstream.port, "chroma", **changes)) as port,
    ):
        scripted = Scripted(port, upstream, made)
        upstream.script = scripted.script
        yield scripted


@pytest.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[Scripted]:
    async with scripting(tmp_path) as made:
        yield made


async def test_a_name_that_resolves_to_another_collection_is_judged_again(
    scripted: Scripted,
) -> None:
    """An unknown spelling of a closed name: the response reveals it."""
    scripted.answers["open_alias"] = collection("shut", metadata={"secret": "word"})
    answered = await scripted.get(f"{BASE}/open_alias")
    assert answered.status == 403
    assert b"word" not in answered.raw
    assert await scripted.sidecar.decisions() == [
        ("ALLOW", "analysts-read", "chroma://kb/t/d/open_alias"),
        ("DENY", "analysts-read", "chroma://kb/t/d/shut"),
    ]


@pytest.mark.parametrize(
    "other", [{"tenant": "x"}, {"database": "x"}, {"name": "shut"}, {"tenant": "t/d/open"}]
)
async def test_every_part_of_the_name_is_significant(scripted: Scripted, other: Any) -> None:
    scripted.answers["open"] = collection(**other)
    assert (await scripted.get(f"{BASE}/open")).status == 403


async def test_another_name_that_may_be_read_passes_and_is_recorded(scripted: Scripted) -> None:
    scripted.answers["open_alias"] = collection("open")
    answered = await scripted.get(f"{BASE}/open_alias")
    assert answered.status == 200
    decisions = await scripted.sidecar.decisions()
    assert [each[2] for each in decisions] == [
        "chroma://kb/t/d/open_alias", "chroma://kb/t/d/open",
    ]  # fmt: skip
    last = (await scripted.sidecar.records())[-1]
    assert answered.fields["x-sluice-event-id"] == last["eid"]


async def test_a_resource_names_first_part_may_be_an_alias_of_a_tenant(
    scripted: Scripted,
) -> None:
    scripted.answers["*"] = collection("shut")
    assert (await scripted.get("/api/v2/collections/t:d:open")).status == 403
    scripted.answers["*"] = collection("open")
    assert (await scripted.get("/api/v2/collections/t:d:open")).status == 200


async def test_an_id_renamed_by_others_is_judged_by_its_own_response(
    scripted: Scripted,
) -> None:
    scripted.answers[ID] = collection("open")
    assert (await scripted.get(f"{BASE}/by-id/{ID}")).status == 200
    # Still cached as `open`; the response now says otherwise.
    scripted.answers[ID] = collection("shut")
    assert (await scripted.get(f"{BASE}/by-id/{ID}")).status == 403


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"[]", b"null", b"{}", b'{"id":1}', orjson.dumps(collection(name="")),
     orjson.dumps(collection(name=None)), orjson.dumps({**collection(), "id": "x"}),
     orjson.dumps({**collection(), "tenant": 1})],
)  # fmt: skip
async def test_a_response_without_its_source_is_withheld(scripted: Scripted, body: bytes) -> None:
    scripted.answers["*"] = body
    assert (await scripted.get(f"{BASE}/open")).status == 502
    answered = await scripted.post(f"{BASE}/{ID}/query")
    assert answered.status == 403
    assert answered.json["decision"]["policy_name"] == "unresolved_source"


async def test_a_look_up_that_returns_another_id_resolves_nothing(
    scripted: Scripted,
) -> None:
    scripted.answers["*"] = {**collection(), "id": ID.replace("1", "9")}
    answered = await scripted.post(f"{BASE}/{ID}/query")
    assert answered.json["decision"]["policy_name"] == "unresolved_source"


async def test_an_encoded_response_that_must_be_read_is_withheld(scripted: Scripted) -> None:
    scripted.answers["*"] = collection()
    scripted.fields = ("Content-Encoding: gzip",)
    assert (await scripted.get(f"{BASE}/open", "Accept-Encoding: gzip")).status == 502
    assert (await scripted.get(BASE)).status == 502
    assert {tuple(each.values("accept-encoding")) for each in scripted.upstream.seen} == {
        ("identity",)
    }


async def test_a_response_over_the_limit_that_must_be_read_is_withheld(
    scripted: Scripted,
) -> None:
    scripted.answers["*"] = collection(metadata="x" * (5 * 1024 * 1024))
    assert (await scripted.get(f"{BASE}/open")).status == 502


async def test_a_conditional_look_up_is_sent_without_its_condition(scripted: Scripted) -> None:
    scripted.answers["*"] = collection()
    await scripted.get(
        f"{BASE}/open", 'If-None-Match: "x"', "Range: bytes=0-5", "Accept-Encoding: br",
        "Authorization: Bearer t", "X-Chroma-Token: k",
    )  # fmt: skip
    [seen] = scripted.upstream.seen
    assert [name for name, _ in seen.fields] == [
        "Host", "Authorization", "X-Chroma-Token", "Accept-Encoding",
    ]  # fmt: skip


async def test_a_look_up_carries_only_the_agent_s_credentials(
    scripted: Scripted,
) -> None:
    scripted.answers[ID] = collection()
    scripted.answers["query"] = {}
    head = (
        f"POST {BASE}/{ID}/query HTTP/1.1\r\nHost: kb\r\nAuthorization: Bearer t\r\n"
        "Content-Type: application/json\r\nAccept-Encoding: br\r\nX-Sluice-User: eve\r\n"
        "Cookie: a=1\r\nContent-Length: 2\r\n\r\n{}"
    )
    await ask(scripted.port, head.encode())
    look_up, query = scripted.upstream.seen
    assert look_up.line == f"GET {BASE}/by-id/{ID} HTTP/1.1"
    assert [name for name, _ in look_up.fields] == [
        "Host", "Authorization", "Cookie", "Accept-Encoding",
    ]  # fmt: skip
    assert query.body == b"{}"


async def test_a_redirected_look_up_is_not_followed(scripted: Scripted) -> None:
    scripted.answers["*"] = collection()
    scripted.status = 302
    scripted.fields = (f"Location: http://127.0.0.1:{scripted.upstream.port}/elsewhere",)
    answered = await scripted.post(f"{BASE}/{ID}/query")
    assert answered.json["decision"]["policy_name"] == "unresolved_source"
    assert scripted.upstream.targets == [f"{BASE}/by-id/{ID}"]


async def test_names_from_the_response_are_escaped_in_the_source_id(scripted: Scripted) -> None:
    scripted.answers["*"] = collection("open", tenant="t", database="d/open")
    answered = await scripted.get(f"{BASE}/open")
    assert answered.status == 403
    # Not `chroma://kb/t/d/open/open`, which an `open*` rule for another database would allow.
    assert (await scripted.sidecar.decisions())[-1][2] == "chroma://kb/t/d%2Fopen/open"


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"{}", b"[", b"[1]", b'[{"id":1}]', b"[null]", b"[,]", b"[{}{}]", b'"x"',
     b"[[" * 2000, orjson.dumps([{**collection(), "name": 1}])],
)  # fmt: skip
async def test_an_unreadable_list_is_withheld(scripted: Scripted, body: bytes) -> None:
    scripted.answers["*"] = body
    for target in (BASE, f"{BASE}_count"):
        answered = await scripted.get(target)
        assert answered.status == 502
        assert answered.json["error"] == "InternalError"


async def test_a_filtered_list_loses_its_totals(scripted: Scripted) -> None:
    scripted.answers["*"] = [collection("shut"), collection("open", note="é, ]")]
    scripted.fields = ('ETag: "x"', "Last-Modified: y", "X-Other: z")
    answered = await scripted.get(BASE)
    assert answered.json == [collection("open", note="é, ]")]
    assert "etag" not in answered.fields
    assert "last-modified" not in answered.fields
    assert answered.fields["x-other"] == "z"


async def test_a_list_caches_each_id(scripted: Scripted) -> None:
    scripted.answers["collections"] = [collection("open")]
    scripted.answers["query"] = {}
    await scripted.get(BASE)
    assert (await scripted.post(f"{BASE}/{ID}/query")).status == 200
    assert not any("by-id" in target for target in scripted.upstream.targets)


async def test_a_response_from_before_a_rename_is_not_cached(tmp_path: Path) -> None:
    """A look-up is under way when a rename goes through the sidecar, so it returns the old name."""
    async with scripting(tmp_path, writes="allow") as scripted:
        held = asyncio.Event()
        plain = scripted.script
        scripted.answers[ID] = collection("open")
        scripted.answers["open"] = collection("open")
        assert (await scripted.get(f"{BASE}/by-id/{ID}")).status == 200

        async def script(seen: Seen, writer: asyncio.StreamWriter) -> None:
            if seen.line.startswith("GET") and seen.target.endswith("/open"):
                await held.wait()
            await plain(seen, writer)

        scripted.upstream.script = script
        slow = asyncio.get_running_loop().create_task(scripted.get(f"{BASE}/open"))
        await waiting.until_async(
            "the source has the request",
            lambda: any(each.target.endswith("/open") for each in scripted.upstream.seen),
        )
        body = b'{"new_name":"open_now"}'
        head = f"PUT {BASE}/{ID} HTTP/1.1\r\nHost: kb\r\nContent-Length: {len(body)}\r\n\r\n"
        assert (await ask(scripted.port, head.encode() + body)).status == 200
        held.set()
        assert (await slow).status == 200
        scripted.answers[ID] = collection("shut")
        answered = await scripted.post(f"{BASE}/{ID}/query")
        assert answered.status == 403, "the old name was believed"


async def test_the_id_of_a_created_collection_is_cached(tmp_path: Path) -> None:
    async with scripting(tmp_path, writes="allow") as scripted:
        scripted.answers["*"] = collection("open")
        assert (await scripted.post(BASE, b'{"name":"open"}')).status == 200
        assert (await scripted.post(f"{BASE}/{ID}/add")).status == 200
        assert not any("by-id" in target for target in scripted.upstream.targets)


async def test_a_large_write_is_forwarded_while_it_arrives(tmp_path: Path) -> None:
    async with scripting(tmp_path, writes="allow") as scripted:
        scripted.answers["*"] = collection("open")
        large = b"x" * (6 * 1024 * 1024)
        half = len(large) // 2
        head = f"POST {BASE}/{ID}/add HTTP/1.1\r\nHost: kb\r\nContent-Length: {len(large)}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", scripted.port)
        writer.write(head.encode() + large[:half])
        begun = scripted.upstream.begun
        await waiting.until_async(
            "the source has the first half", lambda: begun and len(begun[-1].body) == half
        )
        writer.write(large[half:])
        assert (await reader.readline()).split()[1] == b"200"
        writer.close()
        assert scripted.upstream.seen[-1].body == large
