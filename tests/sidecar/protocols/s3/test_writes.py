"""Writes to S3: denied unless allowed, and then judged by all they write and copy."""

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sidecar.protocols.s3.front import (
    UNREADABLE,
    S3Front,
    denied,
    text,
)


async def test_writes_are_denied_unless_the_settings_allow_them(front: S3Front) -> None:
    for method, target in [
        ("PUT", f"/{front.bucket}/open/new"),
        ("DELETE", f"/{front.bucket}/open/a.txt"),
        ("POST", f"/{front.bucket}/open/new?uploads"),
        ("POST", f"/{front.bucket}?delete"),
    ]:
        denied(await front.ask(method, target, body=b"<x/>"), "write_denied")
    assert front.upstream.seen == []


async def test_boto3_reads_after_a_refused_write(front: S3Front) -> None:
    bucket = {"Bucket": front.bucket}

    def write_and_read(s3: Any) -> bytes:
        with pytest.raises(ClientError) as error:
            s3.put_object(**bucket, Key="open/new", Body=io.BytesIO(b"x" * 40))
        assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
        return text(s3.get_object(**bucket, Key="open/a.txt"))

    assert await front.through(write_and_read) == b"text of open/a.txt"
    assert [each[:2] for each in await front.sidecar.decisions()] == [
        ("DENY", "write_denied"),
        ("ALLOW", "analysts-read"),
    ]


async def test_boto3_writes_where_writes_are_allowed(writing: S3Front, tmp_path: Path) -> None:
    bucket = {"Bucket": writing.bucket}
    large = tmp_path / "large"
    large.write_bytes(b"0123456789abcdef" * 700_000)

    def write(s3: Any) -> None:
        s3.put_object(**bucket, Key="new/small", Body=b"small", ContentType="text/plain")
        s3.upload_file(str(large), writing.bucket, "new/large")
        source_of = {"Bucket": writing.bucket, "Key": "open/a.txt"}
        s3.copy_object(**bucket, Key="new/copy", CopySource=source_of)
        s3.delete_object(**bucket, Key="open/b.txt")
        s3.delete_objects(
            **bucket, Delete={"Objects": [{"Key": "new/copy"}, {"Key": "open/deep/c.txt"}]}
        )

    await writing.through(write)
    listed = await asyncio.to_thread(writing.direct.list_objects_v2, **bucket)
    assert {each["Key"]: each["Size"] for each in listed["Contents"]} == {
        "new/large": large.stat().st_size, "new/small": 5, "open/a.txt": 18, "shut/s.txt": 18,
        "top.txt": 15,
    }  # fmt: skip
    head = await asyncio.to_thread(writing.direct.head_object, **bucket, Key="new/small")
    assert head["ContentType"] == "text/plain"


COPIES = [
    "/{b}/shut/s.txt",
    "{b}/shut/s.txt",
    "%2F{b}%2Fshut%2Fs.txt",
    "{b}/%73hut/s.txt",
    "{b}/shut/s.txt?versionId=null",
    "/{b}/open/../shut/s.txt",
    "/{b}/open%2F..%2Fshut%2Fs.txt",
    "//{b}/shut/s.txt",
    "/{b}/open/a.txt%3FversionId=/../shut/s.txt",
    "/{b}/open/a+b",
    "/{b}/open/a.txt?versionId=1&x=2",
    "/{b}/",
    "/{b}",
    "arn:aws:s3:eu-west-1:123456789012:accesspoint/open/object/open/a.txt",
    "/other-bucket/open/a.txt",
]


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("target", ["/{b}/new/x", "/{b}/new/x?partNumber=1&uploadId=u"])
async def test_a_copy_is_denied_if_its_source_is_forbidden(
    writing: S3Front, copied: str, target: str
) -> None:
    field = f"X-Amz-Copy-Source: {copied.format(b=writing.bucket)}"
    answered = await writing.ask("PUT", target.format(b=writing.bucket), field)
    assert answered.status in (400, 403)
    assert answered.fields["x-sluice-decision"] == "DENY"
    assert writing.upstream.seen == []


async def test_a_copy_with_two_sources_is_refused(writing: S3Front) -> None:
    fields = [f"x-amz-copy-source: {writing.bucket}/{key}" for key in ("open/a.txt", "shut/s.txt")]
    for both in (fields, fields[::-1]):
        answered = await writing.ask("PUT", f"/{writing.bucket}/new/x", *both)
        denied(answered, UNREADABLE, 400)


async def test_one_denied_key_denies_the_deletion_of_all(writing: S3Front) -> None:
    objects = {"Objects": [{"Key": "open/a.txt"}, {"Key": "shut/s.txt"}]}
    with pytest.raises(ClientError, match="shut"):
        await writing.through(lambda s3: s3.delete_objects(Bucket=writing.bucket, Delete=objects))
    assert writing.upstream.seen == []


@pytest.mark.parametrize(
    "body",
    [
        b"<Delete><Object><Key>open/../shut/s.txt</Key></Object></Delete>",
        b"<Delete><Object><Key>open/a.txt</Key><Key>shut/s.txt</Key></Object></Delete>",
        b"<Delete><Object><Name>shut/s.txt</Name><Key>open/a.txt</Key></Object></Delete>",
        b"<Delete><Other><Key>shut/s.txt</Key></Other></Delete>",
        b"<!DOCTYPE d [<!ENTITY k 'shut/s.txt'>]><Delete><Object><Key>&k;</Key></Object></Delete>",
        b"<?xml version='1.0' encoding='UTF-16'?><Delete/>",
        b"<Delete></Delete>",
        b"<Delete><Object><Key>open/s.txt </Key></Object></Delete>",
        b"<Delete><Object><Key>\xc2\xa0open/s.txt</Key></Object></Delete>",
        b"<Delete><Object><Key/></Object></Delete>",
        b"<Delete><Object Key='shut/s.txt'><Key>open/a.txt</Key></Object></Delete>",
        b"<Delete><Object>shut/s.txt<Key>open/a.txt</Key></Object></Delete>",
        b"<Delete><Object><Key>open/a.txt</Key><ETag><Key>shut/s.txt</Key></ETag></Object></Delete>",
        b"<Delete><Quiet><Key>shut/s.txt</Key></Quiet><Object><Key>open/a</Key></Object></Delete>",
        b"<?xml version='1.1'?><Delete><Object><Key>open/a.txt</Key></Object></Delete>",
        b"{}",
    ],
)
async def test_an_ambiguous_deletion_is_refused(writing: S3Front, body: bytes) -> None:
    answered = await writing.ask("POST", f"/{writing.bucket}?delete", body=body)
    denied(answered, UNREADABLE, 400)
    assert writing.upstream.seen == []


@pytest.mark.parametrize(
    "field",
    [
        "x-amz-acl: public-read",
        "x-amz-grant-read: uri=everyone",
        "x-amz-tagging: level=low",
        "x-amz-object-lock-mode: COMPLIANCE",
    ],
)
async def test_a_write_that_sets_access_rights_is_denied(writing: S3Front, field: str) -> None:
    for method, target in (("PUT", "/{b}/new/x"), ("POST", "/{b}/new/x?uploads")):
        answered = await writing.ask(method, target.format(b=writing.bucket), field)
        denied(answered, "route_denied")
    assert writing.upstream.seen == []
