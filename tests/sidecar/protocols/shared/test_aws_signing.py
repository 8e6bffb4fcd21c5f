"""Every request to AWS is signed with the sidecar's credentials and carries none of the agent's,
whether its body is complete or still arriving. The data source here verifies every signature;
rclone's S3 server, an independent implementation in another language, verifies them too."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.settings.model import Aws
from tests.sidecar.protocols.aws import (
    ACCESS,
    SECRET,
    credentials_file,
    fault,
)
from tests.sidecar.protocols.s3.front import client
from tests.sidecar.protocols.shared.signing_front import SECRETS, SigningFront
from tests.support.ports import free_port
from tests.support.proxy import listening, sidecar, source
from tests.support.scripted_source import answer
from tests.support.waiting import until_async

AGENTS = (
    "Authorization: AWS4-HMAC-SHA256 Credential=AKIAAGENT/20261121/eu/s3/aws4_request",
    "authorization: Bearer agents-own",
    "X-Amz-Date: 20010101T000000Z",
    "Date: Mon, 01 Jan 2001 00:00:00 GMT",
    "X-Amz-Security-Token: agents-own",
    "X-Amz-S3session-Token: agents-own",
    "X-Amz-Content-Sha256: 0000",
    "X_Amz_Security_Token: agents-own",
    "X_Amz_Copy_Source: lake/shut",
)


async def test_no_part_of_the_agent_s_signature_is_forwarded(front: SigningFront) -> None:
    for method, target in (("GET", "/lake/a"), ("PUT", "/lake/a"), ("GET", "/lake?location")):
        assert (await front.ask(method, target, *AGENTS)).status == 200
    for seen in front.upstream.seen:
        assert fault(seen, "s3", SECRETS) is None
        assert b"gents" not in seen.head.replace(b"AKIASIDECAR", b"")
        # Not `2001` alone, which a signature's hexadecimal digits may contain.
        assert b"20010101T" not in seen.head
        assert b"Jan 2001" not in seen.head
        assert not [name for name, _ in seen.fields if "_" in name or name.lower() == "date"]
        assert len(seen.values("x-amz-date")) == len(seen.values("authorization")) == 1


async def test_all_other_headers_are_forwarded_unchanged(front: SigningFront) -> None:
    fields = (
        "User-Agent: Boto3/1", "amz-sdk-invocation-id: 1", "X-Amzn-Trace-Id: Root=1",
        "x-amz-meta-Note:  two   blanks ", "Content-Type: text/plain", "Range: bytes=1-",
        "x-amz-checksum-crc32: AAAAAA==",
    )  # fmt: skip
    assert (await front.ask("PUT", "/lake/a%20b?x-id=PutObject", *fields, body=b"x")).status == 200
    [seen] = front.upstream.seen
    assert fault(seen, "s3", SECRETS) is None
    forwarded = {(name.lower(), value) for name, value in seen.fields}
    assert {tuple(each.lower().split(": ", 1)) for each in fields[:3]} <= {
        (name, value.lower()) for name, value in forwarded
    }
    assert ("x-amz-meta-note", "two   blanks") in forwarded
    assert ("range", "bytes=1-") in forwarded
    assert seen.target == "/lake/a%20b?x-id=PutObject"


@pytest.mark.parametrize(
    "target",
    [
        "/lake/a(b)!*'~:@$&=,", "/lake/a%2Bb%3Bc", "/lake/%C3%A9%20", "/lake/100%25",
        "/lake?prefix=a/b!(c)&list-type=2&delimiter=/", "/lake?prefix=&marker=%2B",
        "/lake?continuation-token=1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J==&list-type=2", "/lake/", "/",
        "/lake?list-type=2&prefix=%7E-._", "/lake?versions", "/lake/key?versionId=a.b_c~d",
    ],
)  # fmt: skip
async def test_every_spelling_of_a_target_is_signed_like_aws_reads_it(
    front: SigningFront, target: str
) -> None:
    front.upstream.script = answer(body=b"<ListBucketResult/>")
    if target == "/":
        front.upstream.script = answer(body=b"<ListAllMyBucketsResult/>")
    assert (await front.ask("GET", target)).status == 200
    [seen] = front.upstream.seen
    assert fault(seen, "s3", SECRETS) is None


async def test_the_server_of_rclone_accepts_the_signature(tmp_path: Path) -> None:
    (tmp_path / "data" / "lake" / "open").mkdir(parents=True)
    (tmp_path / "data" / "lake" / "open" / "a b+c!.txt").write_bytes(b"text")
    port = free_port()
    rclone = Path(sys.executable).parent / "rclone"
    command = [
        str(rclone), "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key",
        f"{ACCESS},{SECRET}", "--config", os.devnull, str(tmp_path / "data"),
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        await until_async(
            "the server has started",
            lambda: b"Starting s3 server" in (tmp_path / "log").read_bytes(),
        )
        aws = Aws(region="us-east-1", credentials_file=credentials_file(tmp_path))
        configured = source(port, "s3", writes="allow", aws=aws)
        async with sidecar(tmp_path) as made, listening(made, configured) as listener:

            def use() -> tuple[bytes, list[str]]:
                s3 = client(listener, "AKIAAGENT", "none")
                bucket = {"Bucket": "lake"}
                s3.put_object(**bucket, Key="open/new (1).txt", Body=b"n" * 300_000)
                body: bytes = s3.get_object(**bucket, Key="open/a b+c!.txt")["Body"].read()
                listed = s3.list_objects_v2(**bucket, Prefix="open/")["Contents"]
                return body, [each["Key"] for each in listed]

            assert await asyncio.to_thread(use) == (
                b"text", ["open/a b+c!.txt", "open/new (1).txt"],
            )  # fmt: skip
            with pytest.raises(Exception, match=r"403|SignatureDoesNotMatch|InvalidAccessKeyId"):
                await asyncio.to_thread(
                    lambda: client(port, "AKIAAGENT", "none").list_objects_v2(Bucket="lake")
                )
    finally:
        process.terminate()
        process.wait(60)
