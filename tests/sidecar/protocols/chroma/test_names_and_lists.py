"""Chroma's collections by name, and lists of them: each shows only what the agent may read."""

import asyncio
from pathlib import Path

import pytest

from tests.sidecar.protocols.chroma.front import (
    FORMS,
    TENANT,
    UNKNOWN,
    Front,
    client,
    fronting,
)
from tests.sidecar.protocols.minimal import denied
from tests.support.proxy import listening, policy, sidecar, source


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("name", ["shut_docs", "%73hut_docs", "shut%5fdocs", "s%68ut_docs"])
async def test_looking_up_a_denied_name_is_denied_and_recorded(
    front: Front, method: str, name: str
) -> None:
    assert (await front.ask(method, f"{front.names}/{name}")).status == 403
    assert front.relay.lines == []
    assert await front.sidecar.decisions() == [("DENY", "analysts-read", front.source("shut_docs"))]


@pytest.mark.parametrize("form", FORMS)
async def test_looking_up_a_denied_id_is_denied_like_its_name(front: Front, form: str) -> None:
    text = FORMS[form](front.ids["shut_docs"])
    answered = await front.ask("GET", f"{front.names}/by-id/{text}")
    denied(answered, "analysts-read")
    # The only look-up is the sidecar's own.
    assert len(front.relay.lines) == 1
    assert b"shut_docs" in answered.body, "the reason names what was denied"
    assert b'"configuration_json"' not in answered.raw


async def test_an_allowed_name_that_does_not_exist_gets_chroma_s_own_404(front: Front) -> None:
    answered = await front.ask("GET", f"{front.names}/open_nothing")
    assert answered.status == 404
    assert b"NotFoundError" in answered.body


async def test_a_denied_name_gets_the_same_answer_whether_or_not_it_exists(front: Front) -> None:
    there = await front.ask("GET", f"{front.names}/shut_docs")
    absent = await front.ask("GET", f"{front.names}/shut_none")
    assert there.status == absent.status == 403
    told = there.json["decision"]["reason"], absent.json["decision"]["reason"]
    assert told[0].replace("shut_docs", "") == told[1].replace("shut_none", "")


async def test_an_allowed_look_up_gets_chroma_s_answer_byte_for_byte(front: Front) -> None:
    answered = await front.ask("GET", f"{front.names}/open_docs", None, "Accept-Encoding: gzip")
    assert front.relay.answered.endswith(b"\r\n\r\n" + answered.body)
    assert answered.json["id"] == front.ids["open_docs"]
    head = await front.ask("HEAD", f"{front.names}/open_docs")
    assert (head.status, head.body) == (200, b"")
    assert head.fields["content-length"] == str(len(answered.body))


async def test_a_collection_named_like_another_ones_id_is_its_own(
    front: Front, tmp_path: Path
) -> None:
    shut = front.ids["shut_docs"]
    lookalike = front.create(shut)
    everything_but = policy(
        allowed_sources=("chroma://kb/*",), denied_sources=(front.source("shut_docs"),)
    )
    (folder := tmp_path / "other").mkdir()
    async with (
        sidecar(folder, everything_but) as made,
        listening(made, source(front.chroma, "chroma")) as port,
    ):
        front.port = port
        # By name it is the look-alike, and cached under its own id.
        answered = await front.ask("GET", f"{front.names}/{shut}")
        assert answered.json["id"] == lookalike
        # By id it is still the closed one.
        denied(await front.ask("POST", f"{front.names}/{shut}/get", {}), "analysts-read")
        assert (await front.ask("POST", f"{front.names}/{lookalike}/get", {})).status == 200


@pytest.mark.parametrize(
    ("crn", "source_id"),
    [
        ("{tenant}:{database}:shut_docs", "{shut}"),
        ("{tenant}%3A{database}%3ashut_docs", "{shut}"),
        ("{tenant}:{database}:%73hut_docs", "{shut}"),
    ],
)
async def test_a_resource_name_is_judged_by_its_parts(
    front: Front, crn: str, source_id: str
) -> None:
    text = crn.format(tenant=TENANT, database=front.database)
    denied(await front.ask("GET", f"/api/v2/collections/{text}"), "analysts-read")
    assert front.relay.lines == []
    expected = source_id.format(shut=front.source("shut_docs"))
    assert (await front.sidecar.decisions())[0][2] == expected


@pytest.mark.parametrize(
    "crn", ["open_docs", "a:b", "a:b:c:d", ":b:c", "a::c", "a:b:", "shut_docs", UNKNOWN]
)
async def test_a_resource_name_of_another_form_is_denied(front: Front, crn: str) -> None:
    denied(await front.ask("GET", f"/api/v2/collections/{crn}"), "unresolved_source")
    assert front.relay.lines == []


async def listed(front: Front, query: str = "") -> list[str]:
    answered = await front.ask("GET", f"{front.names}{query}")
    assert answered.status == 200, answered.raw
    assert answered.fields["content-length"] == str(len(answered.body))
    return [each["name"] for each in answered.json]


async def test_a_list_shows_only_readable_collections(front: Front) -> None:
    assert sorted(await listed(front)) == ["open_docs", "open_more"]
    assert await front.sidecar.decisions() == []


async def test_limit_and_offset_count_only_readable_collections(front: Front) -> None:
    for number in range(6):
        front.create(f"shut_{number}")
        front.create(f"open_{number}")
    everything = await listed(front)
    assert len(everything) == 8
    for limit in range(1, 9):
        pages = []
        for offset in range(0, 8, limit):
            page = await listed(front, f"?limit={limit}&offset={offset}")
            # A short page that isn't the last would reveal that something is hidden.
            assert len(page) == min(limit, 8 - offset)
            pages += page
        assert pages == everything
    assert await listed(front, "?limit=0") == []
    assert await listed(front, "?offset=99") == []
    assert await listed(front, "?offset=7") == everything[7:]
    assert await listed(front, "?%6cimit=2&x=y") == everything[:2]


@pytest.mark.parametrize(
    "query", ["?limit=x", "?limit=-1", "?limit=1&limit=2", "?limit=1&%6cimit=9", "?offset=1e3",
              "?limit=", "?limit=99999999999999999999"],
)  # fmt: skip
async def test_an_ambiguous_limit_is_refused(front: Front, query: str) -> None:
    denied(await front.ask("GET", f"{front.names}{query}"), "unreadable_request", 400)
    assert front.relay.lines == []


async def test_a_long_list_is_walked_page_by_page(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.protocols.chroma.filter.LIST_PAGE", 3)
    for number in range(8):
        front.create(f"open_{number}")
    assert len(await listed(front)) == 10
    answered = await front.ask("GET", f"{front.base}/collections_count")
    assert answered.body == b"10"


async def test_the_count_includes_only_readable_collections(front: Front) -> None:
    answered = await front.ask("GET", f"{front.base}/collections_count")
    assert (answered.status, answered.body) == (200, b"2")
    assert answered.fields["content-length"] == "1"


async def test_a_head_request_reveals_no_more_than_the_list(front: Front) -> None:
    whole = await front.ask("GET", front.names)
    head = await front.ask("HEAD", front.names)
    assert (head.status, head.body) == (200, b"")
    assert head.fields["content-length"] == str(len(whole.body))


async def test_a_list_without_hidden_collections_is_chroma_s_byte_for_byte(
    chroma: int, tmp_path: Path
) -> None:
    async with fronting(chroma, tmp_path, policy()) as front:
        answered = await front.ask("GET", front.names)
        assert front.relay.answered.endswith(b"\r\n\r\n" + answered.body)
        assert len(answered.json) == 3


async def test_the_client_can_list_and_count_collections(front: Front) -> None:
    def read() -> tuple[list[str], int]:
        through = client(front, front.port)
        return sorted(each.name for each in through.list_collections()), through.count_collections()

    assert await asyncio.to_thread(read) == (["open_docs", "open_more"], 2)


async def test_a_list_of_a_missing_database_is_chromas_response(front: Front) -> None:
    target = f"/api/v2/tenants/{TENANT}/databases/nothing/collections"
    assert (await front.ask("GET", target)).json == front.direct("GET", target)[1]
