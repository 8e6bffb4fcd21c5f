"""Lists of a real S3 server: names that the agent may not read are cut, on every page."""

import asyncio
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

from sidecar.settings.model import NamedSource
from tests.sidecar.protocols.s3.front import (
    KEYS,
    S3Front,
    denied,
    s3_fronting,
)
from tests.support.proxy import listening, policy


async def test_a_list_names_only_readable_objects(front: S3Front) -> None:
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


async def test_a_list_without_hidden_names_is_the_server_s_byte_for_byte(front: S3Front) -> None:
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


async def test_only_listable_buckets_are_named(front: S3Front) -> None:
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
