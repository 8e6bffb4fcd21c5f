"""Names that S3 allows and that look odd: the prefix `/`, and `?` in the key that is copied."""

import asyncio
from typing import Any

from sidecar.protocols.s3.sources import S3Name, copy_sources
from tests.sidecar.protocols.s3.front import S3Front, denied


def test_an_escaped_question_mark_is_judged_both_ways() -> None:
    def names(text: str) -> tuple[S3Name, ...]:
        return copy_sources([(b"x-amz-copy-source", text.encode())])

    assert names("lake/open/a?versionId=3") == (S3Name("lake", "open/a"),)
    both = (S3Name("lake", "open/a?b/c"), S3Name("lake", "open/a"))
    assert names("lake/open/a%3Fb/c") == names("/lake/open/a%3fb/c?versionId=3") == both
    assert names("lake/a%3FversionId=3")[1] == S3Name("lake", "a")


async def test_a_list_with_the_prefix_slash_is_one_of_the_bucket(front: S3Front) -> None:
    def listed(s3: Any) -> Any:
        found = s3.list_objects_v2(Bucket=front.bucket, Prefix="/", Delimiter="/")
        return found["KeyCount"], found["Prefix"]

    assert await front.both(listed) == (0, "/")
    assert [each[::2] for each in await front.sidecar.decisions()] == [("ALLOW", front.place(""))]


async def test_a_key_with_a_question_mark_is_copied(writing: S3Front) -> None:
    bucket = {"Bucket": writing.bucket}
    for key in ("open/a?b", "shut/s?b"):
        await asyncio.to_thread(writing.direct.put_object, **bucket, Key=key, Body=b"odd")

    def copy(s3: Any) -> None:
        s3.copy_object(**bucket, Key="new/x", CopySource={**bucket, "Key": "open/a?b"})

    await writing.through(copy)
    assert {each[::2] for each in await writing.sidecar.decisions()} == {
        ("ALLOW", writing.place(key)) for key in ("new/x", "open/a%3Fb", "open/a")
    }
    writing.upstream.seen.clear()
    shut = f"x-amz-copy-source: {writing.bucket}/shut/s%3Fb"
    denied(await writing.ask("PUT", f"/{writing.bucket}/new/y", shut), "analysts-read")
    assert writing.upstream.seen == []
