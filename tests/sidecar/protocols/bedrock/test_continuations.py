"""Pages and sessions of Bedrock stand for what they were issued for, for one user."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sidecar.protocols.bedrock.front import (
    Front,
    fronting,
    generate,
    numbers,
    retrieve,
)
from tests.sidecar.protocols.bedrock.server import OPEN, SHUT
from tests.support.proxy import policy


async def test_a_page_token_is_valid_only_for_its_own_request(front: Front) -> None:
    two: Any = {"retrievalConfiguration": {"vectorSearchConfiguration": {"numberOfResults": 3}}}
    first = await front.through(retrieve(**two))
    token = first["nextToken"]
    second = await front.through(retrieve(nextToken=token, **two))
    assert numbers(first) + numbers(second) == list(range(6))
    # For another user, in another session, or never issued.
    for user, headers, presented in (
        ("bob", {}, token),
        ("ada", {"X-Sluice-Session": "other"}, token),
        ("ada", {}, "page-5"),
    ):
        with pytest.raises(ClientError, match="continuation"):
            await front.through(retrieve(nextToken=presented, **two), user, **headers)
    assert len(front.upstream.seen) == 2


async def test_a_page_of_a_source_that_is_no_longer_allowed_is_denied(tmp_path: Path) -> None:
    first = policy(allowed_sources=(f"bedrock://kb/{SHUT}", f"bedrock://kb/{OPEN}"))
    async with fronting(tmp_path, first) as front:
        two: Any = {"retrievalConfiguration": {"vectorSearchConfiguration": {"numberOfResults": 3}}}
        token = (await front.through(retrieve(SHUT, **two)))["nextToken"]
        # One knowledge base's token used with another concerns both.
        await front.through(retrieve(OPEN, nextToken=token, **two))
        assert set((await front.places())[-2:]) == {
            f"bedrock://kb/{OPEN}", f"bedrock://kb/{SHUT}",
        }  # fmt: skip


async def test_generating_is_judged_as_reading_its_knowledge_base(front: Front) -> None:
    answer = await front.through(generate(OPEN))
    assert answer["output"]["text"] == "text"
    with pytest.raises(ClientError, match=SHUT):
        await front.through(generate(SHUT))
    with pytest.raises(ClientError, match=SHUT):
        await front.through(generate(SHUT, stream="_stream"))
    with pytest.raises(ClientError, match="does not name a source"):
        await front.through(generate(None))
    assert len(front.upstream.seen) == 1


async def test_a_session_belongs_to_its_user(front: Front) -> None:
    session = (await front.through(generate(OPEN)))["sessionId"]
    await front.through(generate(OPEN, session))
    await front.through(generate(None, session))
    for user, token in (("bob", session), ("ada", "session-2")):
        with pytest.raises(ClientError, match="continuation"):
            await front.through(generate(OPEN, token), user)


async def test_a_session_begun_by_a_stream_is_in_its_headers(front: Front) -> None:
    answer = await front.through(generate(OPEN, stream="_stream"))
    assert answer["sessionId"] == "session-1-s"
    await front.through(generate(OPEN, "session-1-s"))
    with pytest.raises(ClientError, match="another user"):
        await front.through(generate(OPEN, "session-1-s", "_stream"), "bob")


SOURCES = [
    ([{"sourceType": "S3", "s3Location": {"uri": "s3://open/a/b.txt"}}], 200),
    ([{"sourceType": "S3", "s3Location": {"uri": "s3://shut/a"}}], 403),
    ([{"sourceType": "S3", "s3Location": {"uri": "s3://open/a"}},
      {"sourceType": "S3", "s3Location": {"uri": "s3://shut/a"}}], 403),
    ([{"sourceType": "S3", "s3Location": {"uri": "https://open/a"}}], 403),
    ([{"sourceType": "S3", "s3Location": ["s3://open/a"]}], 403),
    ([{"sourceType": "BYTE_CONTENT", "byteContent": {"data": "eA=="}}], 200),
]  # fmt: skip


@pytest.mark.parametrize(("sources", "status"), SOURCES)
async def test_generating_from_other_sources_is_judged(
    front: Front, sources: Any, status: int
) -> None:
    body = {
        "input": {"text": "what"},
        "retrieveAndGenerateConfiguration": {
            "type": "EXTERNAL_SOURCES",
            "externalSourcesConfiguration": {"modelArn": "m", "sources": sources},
        },
    }
    assert (await front.post("/retrieveAndGenerate", body)).status == status


async def test_a_stream_arrives_piece_by_piece(tmp_path: Path) -> None:
    async with fronting(tmp_path) as front:
        front.script.going = asyncio.Event()
        answer = await front.through(generate(OPEN, stream="_stream"))
        events = iter(answer["stream"])
        first = await asyncio.wait_for(asyncio.to_thread(next, events), 20)
        assert first == {"output": {"text": "text of"}}
        front.script.going.set()
        assert await asyncio.to_thread(next, events) == first
