"""A real S3 server and boto3: what may be read comes back as S3 sends it, requests are signed by
the sidecar, and nothing else can be read. Every trap of data-sources.md 5.7 for S3 is a test
here."""

import asyncio
import hashlib
import socket
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError

from policies.ground.errors import Malformed
from sidecar.http.request_target import canonical
from sidecar.protocols.route_table import ALWAYS_DENIED, RouteClass
from sidecar.protocols.s3.routes import OPERATIONS, S3
from sidecar.settings.model import NamedSource
from tests.sidecar.protocols.s3.stand import KEYS, S3Front, client, s3_fronting
from tests.sidecar.proxy.proxy_setup import CLOCK, listening, policy, source
from tests.sidecar.proxy.raw_client import Answered, ask


@pytest.fixture
async def front(moto: int, tmp_path: Path) -> AsyncIterator[S3Front]:
    async with s3_fronting(moto, tmp_path) as made:
        yield made


@pytest.fixture
async def writing(moto: int, tmp_path: Path) -> AsyncIterator[S3Front]:
    """The same with `writes: allow`."""
    async with s3_fronting(moto, tmp_path, writes="allow") as made:
        yield made


def denied(answered: Answered, policy_name: str, status: int = 403) -> None:
    assert answered.status == status, answered.raw[:400]
    assert answered.fields["x-sluice-decision"] == "DENY"
    assert f"<policy_name>{policy_name}</policy_name>".encode() in answered.body
    assert b"text of" not in answered.raw


def text(answer: Any) -> bytes:
    body: bytes = answer["Body"].read()
    return body


# what may be read


async def test_boto3_reads_through_the_listener_as_from_s3(front: S3Front) -> None:
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


async def test_what_came_back_is_in_the_lineage(front: S3Front) -> None:
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


async def test_select_reads_its_object(front: S3Front) -> None:
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


# every other way to a key that may not be read

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


UNREADABLE = "unreadable_request"
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
async def test_what_can_not_be_resolved_is_refused(
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


# hosts


@pytest.mark.parametrize(
    ("host", "bucket"),
    [
        ("open.s3.example", "open"),
        ("OPEN.S3.example.:18000", "open"),
        ("a.b.s3.example:80", "a.b"),
        ("s3.example", None),
        ("s3.example:18000", None),
        ("evil-s3.example", None),
        ("open.s3.example.evil", None),
        ("127.0.0.1:18000", None),
        ("[::1]:18000", None),
        ("open.127.0.0.1", "open"),
    ],
)
def test_a_bucket_named_by_the_host_moves_into_the_path(host: str, bucket: str | None) -> None:
    dialect = S3(source(1, "s3", hosts=("*.s3.example:18000",)), CLOCK.monotonic)
    for raw in ("/", "/shut/s.txt?versionId=1", "/a%2Bb"):
        target = canonical(raw)
        located = dialect.apply_host(host, target)
        if bucket is None:
            assert located == target
        else:
            assert located == canonical(f"/{bucket}{raw}")


def test_a_host_without_a_bucket_is_refused() -> None:
    dialect = S3(source(1, "s3", hosts=("*.s3.example",)), CLOCK.monotonic)
    with pytest.raises(Malformed):
        dialect.apply_host(".s3.example", canonical("/shut/s.txt"))


async def test_boto3_may_name_the_bucket_by_the_host(
    moto: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def here(host: Any, *of: Any, **more: Any) -> Any:
        below = isinstance(host, str) and host.endswith(".s3.example")
        return resolve("127.0.0.1" if below else host, *of, **more)

    monkeypatch.setattr(socket, "getaddrinfo", here)
    async with s3_fronting(moto, tmp_path, hosts=("*.s3.example",), writes="allow") as front:
        address = f"http://s3.example:{front.port}"
        s3 = client(front.port, endpoint_url=address, s3={"addressing_style": "virtual"})

        def use() -> tuple[bytes, list[str]]:
            bucket = {"Bucket": front.bucket}
            s3.put_object(**bucket, Key="new/x", Body=b"x")
            listed = s3.list_objects_v2(**bucket)["Contents"]
            return text(s3.get_object(**bucket, Key="open/a.txt")), [e["Key"] for e in listed]

        read, listed = await asyncio.to_thread(use)
        assert read == b"text of open/a.txt"
        assert listed == ["new/x", "open/a.txt", "open/b.txt", "open/deep/c.txt"]
        with pytest.raises(ClientError, match="shut"):
            await asyncio.to_thread(lambda: s3.get_object(Bucket=front.bucket, Key="shut/s.txt"))
        assert {each.target.split("/")[1].partition("?")[0] for each in front.upstream.seen} == {
            front.bucket
        }


async def test_one_path_is_judged_separately_for_each_host(moto: int, tmp_path: Path) -> None:
    async with s3_fronting(moto, tmp_path, hosts=("*.s3.example",)) as front:
        for bucket, status in ((front.bucket, 200), ("other", 403), (front.bucket, 200)):
            head = f"GET /open/a.txt HTTP/1.1\r\nHost: {bucket}.s3.example\r\nConnection: close"
            answered = await ask(front.port, head.encode() + b"\r\n\r\n")
            assert answered.status == status
        assert len(front.upstream.seen) == 2


# lists


async def test_a_list_names_what_may_be_read(front: S3Front) -> None:
    bucket = {"Bucket": front.bucket}

    def listed(s3: Any) -> list[Any]:
        second = s3.list_objects_v2(**bucket)
        first = s3.list_objects(**bucket)
        folders = s3.list_objects_v2(**bucket, Delimiter="/")
        versions = s3.list_object_versions(**bucket)
        return [
            [each["Key"] for each in second["Contents"]], second["KeyCount"],
            [each["Key"] for each in first["Contents"]],
            [each["Prefix"] for each in folders["CommonPrefixes"]], folders.get("Contents"),
            folders["KeyCount"], [each["Key"] for each in versions["Versions"]],
        ]  # fmt: skip

    may = ["open/a.txt", "open/b.txt", "open/deep/c.txt"]
    assert await front.through(listed) == [may, 3, may, ["open/"], None, 1, may]
    assert {each[:2] for each in await front.sidecar.decisions()} == {("ALLOW", "analysts-read")}
    assert {each[2] for each in await front.sidecar.decisions()} == {front.place("")}


async def test_a_list_of_which_all_may_be_seen_is_s3s_byte_for_byte(front: S3Front) -> None:
    target = f"/{front.bucket}?list-type=2&prefix=open%2F"
    answered = await front.ask("GET", target)
    assert answered.status == 200
    straight = await asyncio.to_thread(
        lambda: urllib.request.urlopen(f"http://127.0.0.1:{front.script.port}{target}").read()
    )
    assert answered.body == straight


async def test_every_page_is_filtered_and_none_is_lost(front: S3Front) -> None:
    def keys(s3: Any) -> list[str]:
        pages = s3.get_paginator("list_objects_v2").paginate(
            Bucket=front.bucket, PaginationConfig={"PageSize": 2}
        )
        return [each["Key"] for page in pages for each in page.get("Contents", [])]

    assert await front.through(keys) == [key for key in KEYS if key.startswith("open/")]


async def test_a_page_that_ends_at_a_hidden_name_is_refused(front: S3Front) -> None:
    # The first version of the list continues from the last key, which moto names.
    answered = await front.ask("GET", f"/{front.bucket}?marker=open%2Fdeep%2Fc.txt&max-keys=1")
    assert answered.status == 502
    assert b"shut" not in answered.raw
    assert b"longer prefix" in answered.raw


async def test_only_buckets_that_may_be_listed_are_named(front: S3Front) -> None:
    where = {"LocationConstraint": "eu-west-1"}
    other = {"Bucket": f"{front.bucket}-2", "CreateBucketConfiguration": where}
    await asyncio.to_thread(lambda: front.direct.create_bucket(**other))
    listed = await front.through(lambda s3: s3.list_buckets()["Buckets"])
    assert [each["Name"] for each in listed] == [front.bucket]


async def test_plain_names_and_levels_come_from_the_configuration(
    moto: int, tmp_path: Path
) -> None:
    readers = policy(allowed_sources=("handbook", "contracts", "*/"), max_sensitivity="medium")
    async with s3_fronting(moto, tmp_path, readers) as front:
        names = {
            front.place("open/a.txt"): NamedSource("handbook", "low"),
            front.place("open/b.txt"): NamedSource("contracts", "high"),
        }
        async with listening(front.sidecar, replace(front.source, names=names)) as port:
            front.port = port
            assert (await front.ask("GET", f"/{front.bucket}/open/a.txt")).status == 200
            denied(await front.ask("GET", f"/{front.bucket}/open/b.txt"), "analysts-read")
            listed = await front.ask("GET", f"/{front.bucket}?list-type=2")
            assert b"open/a.txt" in listed.body
            assert b"open/b.txt" not in listed.body


# writes


async def test_writes_are_denied_unless_they_are_allowed(front: S3Front) -> None:
    for method, target in [
        ("PUT", f"/{front.bucket}/open/new"),
        ("DELETE", f"/{front.bucket}/open/a.txt"),
        ("POST", f"/{front.bucket}/open/new?uploads"),
        ("POST", f"/{front.bucket}?delete"),
    ]:
        denied(await front.ask(method, target, body=b"<x/>"), "write_denied")
    assert front.upstream.seen == []


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
async def test_a_copy_reads_its_source(writing: S3Front, copied: str, target: str) -> None:
    field = f"X-Amz-Copy-Source: {copied.format(b=writing.bucket)}"
    answered = await writing.ask("PUT", target.format(b=writing.bucket), field)
    assert answered.status in (400, 403)
    assert answered.fields["x-sluice-decision"] == "DENY"
    assert writing.upstream.seen == []


async def test_a_copy_states_its_source_once(writing: S3Front) -> None:
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
async def test_a_write_that_sets_who_may_read_is_closed(writing: S3Front, field: str) -> None:
    for method, target in (("PUT", "/{b}/new/x"), ("POST", "/{b}/new/x?uploads")):
        answered = await writing.ask(method, target.format(b=writing.bucket), field)
        denied(answered, "route_denied")
    assert writing.upstream.seen == []


# the table


def test_every_operation_of_s3_has_its_row() -> None:
    model = botocore.session.get_session().get_service_model("s3")
    classes: dict[str, RouteClass] = {}
    dialect = S3(source(1, "s3"), CLOCK.monotonic)
    for name in model.operation_names:
        operation = model.operation_model(name)
        path, _, marks = operation.http["requestUri"].partition("?")
        path = path.replace("{Bucket}", "bucket").replace("{Key+}", "a/key")
        members = operation.input_shape.members if operation.input_shape else {}
        needed = operation.input_shape.required_members if operation.input_shape else []
        for every in (True, False):
            stated = [
                f"{shape.serialization['name']}=1"
                for member, shape in members.items()
                if shape.serialization.get("location") == "querystring"
                and (every or member in needed)
            ]
            query = "&".join([*(marks.split("&") if marks else []), *stated])
            found = dialect.match(operation.http["method"], canonical(f"{path}?{query}"))
            assert found is not None, (name, query)
            classes[name] = found.route.route_class
    opened = {name for name, class_ in classes.items() if class_ not in ALWAYS_DENIED}
    assert opened == {
        "GetObject", "HeadObject", "GetObjectTorrent", "GetObjectAttributes", "GetObjectTagging",
        "GetObjectLegalHold", "GetObjectRetention", "GetObjectAnnotation", "SelectObjectContent",
        "ListObjectAnnotations", "ListParts", "ListObjects", "ListObjectsV2", "ListObjectVersions",
        "ListMultipartUploads", "ListBuckets", "ListDirectoryBuckets", "HeadBucket",
        "GetBucketLocation", "GetBucketVersioning", "GetObjectLockConfiguration", "PutObject",
        "CopyObject", "UploadPart", "UploadPartCopy", "CreateMultipartUpload",
        "CompleteMultipartUpload", "AbortMultipartUpload", "DeleteObject", "DeleteObjects",
    }  # fmt: skip


@pytest.mark.parametrize(
    "each", [row for row in OPERATIONS if row.route.route_class in ALWAYS_DENIED]
)
async def test_a_closed_route_is_closed(writing: S3Front, each: Any) -> None:
    path = {"service": "/", "bucket": "/{b}", "object": "/{b}/open/a.txt"}[each.resource]
    target = path.format(b=writing.bucket) + "?" + "&".join(sorted(each.required))
    for method in each.route.methods.split():
        answered = await writing.ask(method, target.removesuffix("?"))
        denied(answered, "route_denied")
    assert writing.upstream.seen == []
