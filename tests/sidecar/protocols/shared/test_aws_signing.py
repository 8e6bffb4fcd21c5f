"""Every request to AWS is signed with the sidecar's credentials and carries none of the agent's,
whether its body is complete or still arriving. The data source here verifies every signature;
rclone's S3 server, an independent implementation in another language, verifies them too."""

import asyncio
import hashlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from policies.ground.errors import SluiceError
from sidecar.protocols.shared.aws_signing import KEPT_SECONDS, AwsSigner
from sidecar.settings.model import Aws, Source
from tests.ports import free_port
from tests.sidecar.protocols.aws import (
    ACCESS,
    REGION,
    SECRET,
    STREAMING,
    credentials_file,
    fault,
)
from tests.sidecar.protocols.conftest import Ticking
from tests.sidecar.protocols.s3_stand import client
from tests.sidecar.proxy.stand import (
    Answered,
    DataSource,
    Seen,
    Sidecar,
    answer,
    ask,
    data_source,
    listening,
    sidecar,
    source,
    until,
)

SECRETS = {ACCESS: SECRET}


class Stand:
    """A listener of the kind `s3` in front of a scripted data source."""

    def __init__(self, port: int, upstream: DataSource, made: Sidecar, ticking: Ticking) -> None:
        self.port = port
        self.upstream = upstream
        self.sidecar = made
        self.ticking = ticking

    async def ask(self, method: str, target: str, *fields: str, body: bytes = b"") -> Answered:
        lines = [f"{method} {target} HTTP/1.1", "Host: kb", "Connection: close", *fields]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return await ask(self.port, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)


@asynccontextmanager
async def standing(tmp_path: Path, aws: Aws) -> AsyncIterator[Stand]:
    ticking = Ticking()
    async with data_source() as upstream, sidecar(tmp_path) as made:
        configured: Source = source(upstream.port, "s3", writes="allow", aws=aws)
        async with listening(made, configured, clock=ticking.clock) as port:
            yield Stand(port, upstream, made, ticking)


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    aws = Aws(region=REGION, credentials_file=credentials_file(tmp_path))
    async with standing(tmp_path, aws) as made:
        yield made


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


async def test_nothing_that_the_agent_signs_with_is_forwarded(stand: Stand) -> None:
    for method, target in (("GET", "/lake/a"), ("PUT", "/lake/a"), ("GET", "/lake?location")):
        assert (await stand.ask(method, target, *AGENTS)).status == 200
    for seen in stand.upstream.seen:
        assert fault(seen, "s3", SECRETS) is None
        assert b"gents" not in seen.head.replace(b"AKIASIDECAR", b"")
        assert b"2001" not in seen.head
        assert not [name for name, _ in seen.fields if "_" in name or name.lower() == "date"]
        assert len(seen.values("x-amz-date")) == len(seen.values("authorization")) == 1


async def test_everything_else_is_forwarded_as_it_was_sent(stand: Stand) -> None:
    fields = (
        "User-Agent: Boto3/1", "amz-sdk-invocation-id: 1", "X-Amzn-Trace-Id: Root=1",
        "x-amz-meta-Note:  two   blanks ", "Content-Type: text/plain", "Range: bytes=1-",
        "x-amz-checksum-crc32: AAAAAA==",
    )  # fmt: skip
    assert (await stand.ask("PUT", "/lake/a%20b?x-id=PutObject", *fields, body=b"x")).status == 200
    [seen] = stand.upstream.seen
    assert fault(seen, "s3", SECRETS) is None
    told = {(name.lower(), value) for name, value in seen.fields}
    assert {tuple(each.lower().split(": ", 1)) for each in fields[:3]} <= {
        (name, value.lower()) for name, value in told
    }
    assert ("x-amz-meta-note", "two   blanks") in told
    assert ("range", "bytes=1-") in told
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
async def test_every_spelling_of_a_target_is_signed_as_aws_reads_it(
    stand: Stand, target: str
) -> None:
    stand.upstream.script = answer(body=b"<ListBucketResult/>")
    if target == "/":
        stand.upstream.script = answer(body=b"<ListAllMyBucketsResult/>")
    assert (await stand.ask("GET", target)).status == 200
    [seen] = stand.upstream.seen
    assert fault(seen, "s3", SECRETS) is None


# bodies


async def test_a_body_that_is_at_hand_is_signed(stand: Stand) -> None:
    await stand.ask("PUT", "/lake/a", body=b"whole")
    [seen] = stand.upstream.seen
    assert seen.values("x-amz-content-sha256") == [hashlib.sha256(b"whole").hexdigest()]


async def test_a_body_that_still_arrives_goes_on_as_it_comes(stand: Stand) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    writer.write(b"PUT /lake/a HTTP/1.1\r\nHost: kb\r\nContent-Length: 300000\r\n\r\n")
    writer.write(b"x" * 100_000)
    await until(lambda: bool(stand.upstream.begun and stand.upstream.begun[0].body))
    assert not stand.upstream.seen
    writer.write(b"x" * 200_000)
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()
    [seen] = stand.upstream.seen
    assert len(seen.body) == 300_000
    assert seen.values("x-amz-content-sha256") == ["UNSIGNED-PAYLOAD"]
    assert fault(seen, "s3", SECRETS) is None


async def test_a_large_answer_streams(stand: Stand) -> None:
    going = asyncio.Event()

    async def slow(seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 200000\r\n\r\n")
        writer.write(b"x" * 100_000)
        await going.wait()
        writer.write(b"x" * 100_000)

    stand.upstream.script = slow
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port, limit=1 << 20)
    writer.write(b"GET /lake/a HTTP/1.1\r\nHost: kb\r\nRange: bytes=0-199999\r\n\r\n")
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 206")
        assert await reader.readexactly(100_000) == b"x" * 100_000
        going.set()
        assert await reader.readexactly(100_000) == b"x" * 100_000
    writer.close()
    assert stand.upstream.seen[0].values("range") == ["bytes=0-199999"]


CHUNKS = b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"


async def test_a_framed_body_without_signatures_passes_as_it_is(stand: Stand) -> None:
    fields = (
        f"x-amz-content-sha256: {STREAMING}", "Content-Encoding: aws-chunked",
        "x-amz-trailer: x-amz-checksum-crc32", "x-amz-decoded-content-length: 5",
    )  # fmt: skip
    assert (await stand.ask("PUT", "/lake/a", *fields, body=CHUNKS)).status == 200
    [seen] = stand.upstream.seen
    assert seen.body == CHUNKS
    assert seen.values("x-amz-content-sha256") == [STREAMING]
    assert fault(seen, "s3", SECRETS) is None


@pytest.mark.parametrize(
    "fields",
    [
        ("x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD",),
        ("x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",),
        ("x-amz-content-sha256: STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD",),
        ("Content-Encoding: aws-chunked",),
        ("Content-Encoding: gzip, AWS-Chunked", "x-amz-content-sha256: UNSIGNED-PAYLOAD"),
    ],
)
async def test_a_body_that_holds_the_agents_signatures_is_refused(
    stand: Stand, fields: tuple[str, ...]
) -> None:
    answered = await stand.ask("PUT", "/lake/a", *fields, body=CHUNKS)
    assert answered.status == 400
    assert answered.fields["x-sluice-decision"] == "DENY"
    assert stand.upstream.begun == []


# credentials


async def test_a_session_token_goes_along_and_is_signed(tmp_path: Path) -> None:
    file = credentials_file(tmp_path, more="aws_session_token = temporary\n")
    async with standing(tmp_path, Aws(region=REGION, credentials_file=file)) as stand:
        await stand.ask("GET", "/lake/a", "x-amz-security-token: agents-own")
        [seen] = stand.upstream.seen
        assert seen.values("x-amz-security-token") == ["temporary"]
        assert fault(seen, "s3", SECRETS) is None


async def test_a_file_that_is_written_anew_is_taken_within_a_minute(tmp_path: Path) -> None:
    file = credentials_file(tmp_path)
    async with standing(tmp_path, Aws(region=REGION, credentials_file=file)) as stand:
        await stand.ask("GET", "/lake/a")
        credentials_file(tmp_path, "AKIANEW", "new")
        await stand.ask("GET", "/lake/a")
        stand.ticking.ahead += KEPT_SECONDS
        await stand.ask("GET", "/lake/a")
        old, still, new = stand.upstream.seen
        assert fault(old, "s3", SECRETS) is None
        assert fault(still, "s3", SECRETS) is None
        assert fault(new, "s3", {"AKIANEW": "new"}) is None


async def test_a_profile_names_keys_and_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "[lake]\naws_access_key_id = AKIALAKE\naws_secret_access_key = s\n"
    config = tmp_path / "config"
    config.write_text("[profile lake]\nregion = ap-south-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    aws = Aws(profile="lake", credentials_file=credentials_file(tmp_path, more=more))
    async with standing(tmp_path, aws) as stand:
        await stand.ask("GET", "/lake/a")
        [seen] = stand.upstream.seen
        assert fault(seen, "s3", {"AKIALAKE": "s"}, "ap-south-1") is None


async def test_credentials_that_renew_themselves_are_renewed_by_botocore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process that issues keys for a few seconds: botocore runs it again each time they are
    # about to expire, and the event loop never waits for it.
    counter = tmp_path / "asked"
    script = tmp_path / "keys.py"
    script.write_text(
        "import datetime, json, pathlib\n"
        f"asked = pathlib.Path({str(counter)!r})\n"
        "count = len(asked.read_text()) + 1 if asked.exists() else 1\n"
        "asked.write_text('x' * count)\n"
        "end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': f'AKIA{count}', 'SecretAccessKey': 's',\n"
        "                  'SessionToken': 't', 'Expiration': end.isoformat()}))\n"
    )
    config = tmp_path / "config"
    config.write_text(f"[profile p]\ncredential_process = {sys.executable} {script}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    async with standing(tmp_path, Aws(region=REGION, profile="p")) as stand:
        await asyncio.gather(*(stand.ask("GET", "/lake/a") for _ in range(5)))
        stand.ticking.ahead += KEPT_SECONDS
        await stand.ask("GET", "/lake/a")
        *first, last = stand.upstream.seen
        used = {seen.values("authorization")[0].split("/")[0] for seen in first}
        assert len(used) == 1
        assert not last.values("authorization")[0].startswith(used.pop())


@pytest.mark.parametrize("lacking", ["credentials", "region", "profile"])
async def test_without_credentials_nothing_is_forwarded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    lacking: str,
) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    file = credentials_file(tmp_path)
    if lacking == "credentials":
        file.write_text("")
    aws = Aws(
        region=None if lacking == "region" else REGION,
        profile="nobody" if lacking == "profile" else None,
        credentials_file=file,
    )
    async with standing(tmp_path, aws) as stand:
        with caplog.at_level(logging.WARNING):
            answered = await stand.ask("GET", "/lake/a")
        assert answered.status == 502
        assert stand.upstream.begun == []
        assert SECRET not in caplog.text
        assert {"region": "aws.region", "profile": "nobody"}.get(lacking, lacking) in caplog.text
        # Missing credentials are looked up again.
        credentials_file(tmp_path)
        assert (await stand.ask("GET", "/lake/a")).status == (
            200 if lacking == "credentials" else 502
        )


def test_the_library_is_loaded_for_those_who_need_it() -> None:
    code = """
import sys, sidecar.serve
from policies.ground.listen_address import ListenAddress
from sidecar.protocols.registry import MODULES, load_protocol
from sidecar.settings.model import AWS_KINDS, Source
def load(kind):
    load_protocol(Source("a", kind, "http://a", ListenAddress("127.0.0.1", 0), "low"), lambda: 0.0)
    return "botocore" in sys.modules
assert not any(load(kind) for kind in MODULES if kind not in AWS_KINDS)
assert all(load(kind) for kind in AWS_KINDS)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_sidecar_without_the_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(SluiceError, match=r"sluice\[aws\]"):
        AwsSigner(Aws(), "s3", time.monotonic)


# another verifier


async def test_rclones_server_takes_the_signature(tmp_path: Path) -> None:
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
        await until(lambda: b"Starting s3 server" in (tmp_path / "log").read_bytes())
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
        process.wait(10)
