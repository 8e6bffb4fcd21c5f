"""Buckets that the host names: they are judged as if they were in the path."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from policies.ground.errors import Malformed
from sidecar.http.request_target import canonical
from sidecar.protocols.s3.routes import S3
from tests.sidecar.protocols.s3.front import (
    client,
    s3_fronting,
    text,
)
from tests.sidecar.proxy.raw_client import ask
from tests.support.proxy import CLOCK, source


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
    protocol = S3(source(1, "s3", hosts=("*.s3.example:18000",)), CLOCK.monotonic)
    for raw in ("/", "/shut/s.txt?versionId=1", "/a%2Bb"):
        target = canonical(raw)
        located = protocol.apply_host(host, target)
        if bucket is None:
            assert located == target
        else:
            assert located == canonical(f"/{bucket}{raw}")


def test_a_host_without_a_bucket_is_refused() -> None:
    protocol = S3(source(1, "s3", hosts=("*.s3.example",)), CLOCK.monotonic)
    with pytest.raises(Malformed):
        protocol.apply_host(".s3.example", canonical("/shut/s.txt"))


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
