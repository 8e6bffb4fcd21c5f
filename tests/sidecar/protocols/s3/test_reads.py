"""A real S3 server and boto3: what the agent may read comes back as S3 sends it, and no other way
leads to the rest. With its neighbours, every trap of `protocols/RULES.md`, S3, is a test."""

import asyncio
import hashlib
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.sidecar.protocols.s3.front import (
    UNREADABLE,
    S3Front,
    denied,
    text,
)


async def test_the_client_reads_the_same_through_the_listener_as_from_the_server(
    front: S3Front,
) -> None:
    bucket = {"Bucket": front.bucket}

    def read(s3: Any) -> list[Any]:
        whole = s3.get_object(**bucket, Key="open/a.txt")
        part = s3.get_object(**bucket, Key="open/a.txt", Range="bytes=5-8")
        head = s3.head_object(**bucket, Key="open/a.txt")
        listed = s3.list_objects_v2(**bucket, Prefix="open/")
        return [
            text(whole), whole["ETag"], text(part), part["ContentRange"], head["ContentLength"],
            [each["Key"] for each in listed["Contents"]], listed["KeyCount"],
            s3.get_object_attributes(**bucket, Key="open/a.txt", ObjectAttributes=["ObjectSize"])[
                "ObjectSize"
            ],
            s3.get_object_tagging(**bucket, Key="open/a.txt")["TagSet"],
            s3.head_bucket(**bucket)["ResponseMetadata"]["HTTPStatusCode"],
            s3.get_bucket_location(**bucket)["LocationConstraint"],
        ]  # fmt: skip

    answers = await front.both(read)
    assert answers[0] == b"text of open/a.txt"
    assert answers[2] == b"of o"
    assert {each[0] for each in await front.sidecar.decisions()} == {"ALLOW"}


async def test_the_lineage_has_the_digest_of_what_was_returned(front: S3Front) -> None:
    await front.through(lambda s3: text(s3.get_object(Bucket=front.bucket, Key="open/a.txt")))
    [lineage] = await front.sidecar.lineage()
    assert lineage["detail"]["sha256"] == hashlib.sha256(b"text of open/a.txt").hexdigest()
    assert await front.sidecar.decisions() == [
        ("ALLOW", "analysts-read", front.place("open/a.txt"))
    ]


async def test_a_denied_key_raises_with_the_reason(front: S3Front) -> None:
    with pytest.raises(ClientError) as raised:
        await front.through(lambda s3: s3.get_object(Bucket=front.bucket, Key="shut/s.txt"))
    error = raised.value.response["Error"]
    assert error["Code"] == "AccessDenied"
    assert "shut/s.txt" in error["Message"]
    assert front.upstream.seen == []
    assert (await front.sidecar.decisions())[-1][2] == front.place("shut/s.txt")


@pytest.mark.parametrize(
    "key",
    [
        "open/a b+c;(1)!'*~é=&?#,:@$.txt",
        "open/100%",
        "open/folder/",
        "open/…/„quoted“",
        "open/-._~",
        "open/a.b/..c/.d",
        "open/UPPER/upper",
    ],
)
async def test_keys_with_odd_characters_are_read(front: S3Front, key: str) -> None:
    await asyncio.to_thread(front.direct.put_object, Bucket=front.bucket, Key=key, Body=b"odd")
    read = await front.both(lambda s3: text(s3.get_object(Bucket=front.bucket, Key=key)))
    assert read == b"odd"
    listed = await front.both(
        lambda s3: [
            each["Key"]
            for each in s3.list_objects_v2(Bucket=front.bucket, Prefix="open/")["Contents"]
        ]
    )
    assert key in listed


@pytest.mark.parametrize("key", ["open//a", "open/./a", "open/../shut/s.txt", "open/a%2Fb", "a\\b"])
async def test_keys_that_no_path_can_hold_are_refused(front: S3Front, key: str) -> None:
    with pytest.raises(ClientError) as raised:
        await front.through(lambda s3: s3.get_object(Bucket=front.bucket, Key=key))
    assert raised.value.response["Error"]["Code"] == "InvalidRequest"
    assert front.upstream.seen == []


async def test_versions_are_read_as_their_key(front: S3Front) -> None:
    direct, bucket = front.direct, front.bucket

    def prepare() -> dict[str, str]:
        direct.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        return {
            key: direct.put_object(Bucket=bucket, Key=key, Body=b"second")["VersionId"]
            for key in ("open/a.txt", "shut/s.txt")
        }

    versions = await asyncio.to_thread(prepare)

    def read(s3: Any) -> list[Any]:
        listed = s3.list_object_versions(Bucket=bucket, Prefix="open/")["Versions"]
        mine = {"Bucket": bucket, "Key": "open/a.txt", "VersionId": versions["open/a.txt"]}
        return [text(s3.get_object(**mine)), sorted(each["Key"] for each in listed)]

    assert (await front.both(read))[0] == b"second"
    version = versions["shut/s.txt"]
    denied(await front.ask("GET", f"/{bucket}/shut/s.txt?versionId={version}"), "analysts-read")


async def test_a_select_request_is_judged_as_reading_its_object(front: S3Front) -> None:
    expression = {
        "Expression": "SELECT * FROM s3object", "ExpressionType": "SQL",
        "InputSerialization": {"CSV": {}}, "OutputSerialization": {"CSV": {}},
    }  # fmt: skip

    def read(s3: Any) -> bytes:
        answer = s3.select_object_content(Bucket=front.bucket, Key="open/a.txt", **expression)
        records = [each["Records"] for each in answer["Payload"] if "Records" in each]
        return b"".join(each["Payload"] for each in records)

    assert b"text of open" in await front.both(read)
    with pytest.raises(ClientError, match="shut"):
        await front.through(
            lambda s3: s3.select_object_content(Bucket=front.bucket, Key="shut/s.txt", **expression)
        )


READS = [
    ("GET", "/{b}/shut/s.txt"),
    ("HEAD", "/{b}/shut/s.txt"),
    ("GET", "/{b}/%73hut/s.txt"),
    ("GET", "/{b}/shut/%73.txt?x-id=GetObject"),
    ("GET", "/{b}/shut/s.txt?versionId=null"),
    ("GET", "/{b}/shut/s.txt?partNumber=1&response-content-type=text/plain"),
    ("GET", "/{b}/shut/s.txt?attributes"),
    ("GET", "/{b}/shut/s.txt?torrent"),
    ("GET", "/{b}/shut/s.txt?tagging"),
    ("GET", "/{b}/shut/s.txt?retention"),
    ("GET", "/{b}/shut/s.txt?annotation&annotationName=x"),
    ("GET", "/{b}/shut/s.txt?uploadId=x"),
    ("POST", "/{b}/shut/s.txt?select&select-type=2"),
    ("GET", "/{b}?list-type=2&prefix=shut/"),
    ("GET", "/{b}?prefix=%73hut%2F"),
    ("GET", "/{b}/?prefix=shut%2Fs"),
    ("GET", "/{b}?versions&prefix=shut/"),
    ("GET", "/{b}?uploads&prefix=shut/"),
    ("GET", "/other-bucket/open/a.txt"),
    ("GET", "/other-bucket"),
]


@pytest.mark.parametrize(("method", "target"), READS)
async def test_every_read_of_a_denied_key_is_denied(
    front: S3Front, method: str, target: str
) -> None:
    target = target.format(b=front.bucket)
    answered = await front.ask(method, target, "x-amz-object-attributes: ETag")
    assert answered.status == 403
    assert answered.fields["x-sluice-decision"] == "DENY"
    assert front.upstream.seen == []
    [(decision, name, place)] = await front.sidecar.decisions()
    assert (decision, name) == ("DENY", "analysts-read")
    assert "shut" in place or place.startswith("s3://kb/other-bucket/")


REFUSED = [
    # Names that stand for another bucket, or that no bucket can have.
    ("/arn:aws:s3:eu-west-1:123456789012:accesspoint/open/open/a.txt", 403, "unresolved_source"),
    ("/arn%3Aaws%3As3%3Aeu-west-1%3A123456789012%3Aaccesspoint%2Fopen/a", 400, UNREADABLE),
    ("/open-0123456789-s3alias/a", 403, "unresolved_source"),
    ("/open--x-s3/a", 403, "unresolved_source"),
    ("/open.mrap/a", 403, "unresolved_source"),
    ("/Open/a", 403, "unresolved_source"),
    # Unknown parameters, and two operations in one.
    ("/{b}/open/a.txt?brandnew", 403, "unclassified_route"),
    ("/{b}/open/a.txt?acl&attributes", 403, "unclassified_route"),
    ("/{b}/open/a.txt?VERSIONID=1", 403, "unclassified_route"),
    ("/{b}?list-type=2&acl", 403, "unclassified_route"),
    # What two parsers read differently.
    ("/{b}?prefix=open/&prefix=shut/", 400, UNREADABLE),
    ("/{b}?prefix=open/&pref%69x=shut/", 400, UNREADABLE),
    ("/{b}?prefix=open/+", 400, UNREADABLE),
    ("/{b}?prefix=open/;versions", 400, UNREADABLE),
    ("/{b}?prefix=open/%0a", 400, UNREADABLE),
    ("/{b}?prefix=open/%c0%ae", 400, UNREADABLE),
    ("/{b}?prefix=open/../shut/", 400, UNREADABLE),
    ("/{b}?prefix=open//", 400, UNREADABLE),
    ("/{b}?=x", 400, UNREADABLE),
    # Presigned by an unknown party.
    ("/{b}/open/a.txt?X-Amz-Signature=00", 400, UNREADABLE),
    ("/{b}/open/a.txt?x-amz-security-token=t", 400, UNREADABLE),
    ("/{b}/open/a.txt?AWSAccessKeyId=a&Signature=s&Expires=9", 400, UNREADABLE),
]


@pytest.mark.parametrize(("target", "status", "name"), REFUSED)
async def test_an_unresolvable_request_is_refused(
    front: S3Front, target: str, status: int, name: str
) -> None:
    denied(await front.ask("GET", target.format(b=front.bucket)), name, status)
    assert front.upstream.seen == []


async def test_a_presigned_request_is_refused(front: S3Front) -> None:
    def presigned(s3: Any) -> str:
        url: str = s3.generate_presigned_url(
            "get_object", Params={"Bucket": front.bucket, "Key": "open/a.txt"}
        )
        return url.partition(f":{front.port}")[2]

    denied(await front.ask("GET", await front.through(presigned)), UNREADABLE, 400)


@pytest.mark.parametrize(
    "field",
    [
        "x-amz-copy-source: /other/key",
        "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "X-Amz-Brand-New: 1",
        "x-amz-expected-bucket-owner: 1\r\nX-AMZ-Expected-Bucket-Owner: 2",
        "x-amz-expected-bucket-owner: caf\xe9",
    ],
)
async def test_unknown_header_fields_of_aws_are_refused(front: S3Front, field: str) -> None:
    answered = await front.ask("GET", f"/{front.bucket}/open/a.txt", field)
    denied(answered, UNREADABLE, 400)
    assert front.upstream.seen == []
