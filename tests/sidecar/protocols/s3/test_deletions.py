"""Deletions of many keys in one request, which S3's clients fill to its limit of 1,000."""

import asyncio
from pathlib import Path

import pytest

from sidecar.settings.sections import SpoolSettings
from tests.sidecar.protocols.s3.front import S3Front, denied, s3_fronting

KEYS = [f"new/{number:04}" for number in range(1_000)]


def listed(keys: list[str]) -> bytes:
    each = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
    return f"<Delete><Quiet>true</Quiet>{each}</Delete>".encode()


@pytest.mark.deep(
    stands_in="tests/sidecar/test_many_sources.py::test_a_thousand_records_are_stored_together"
)
async def test_a_thousand_keys_are_deleted_with_a_record_each(moto: int, tmp_path: Path) -> None:
    spool = SpoolSettings(tmp_path / "spool", segment_bytes=2 << 20)
    async with s3_fronting(moto, tmp_path, spool=spool, writes="allow") as front:
        bucket = {"Bucket": front.bucket}
        await asyncio.to_thread(front.direct.put_object, **bucket, Key=KEYS[-1], Body=b"x")
        body = listed(KEYS)
        answered = await front.ask("POST", f"/{front.bucket}?delete", body=body)
        assert answered.status == 200, answered.raw[:600]
        [seen] = front.upstream.seen
        assert seen.body == body
        left = await asyncio.to_thread(front.direct.list_objects_v2, **bucket, Prefix="new/")
        assert "Contents" not in left
        assert [each[::2] for each in await front.sidecar.decisions()] == [
            ("ALLOW", front.place(key)) for key in KEYS
        ]


async def test_more_than_a_thousand_keys_are_refused_as_by_the_server(writing: S3Front) -> None:
    body = listed([*KEYS, "new/one-more"])
    answered = await writing.ask("POST", f"/{writing.bucket}?delete", body=body)
    denied(answered, "unreadable_request", 400)
    assert b"<Code>MalformedXML</Code>" in answered.body
    assert b"1000 keys" in answered.body
    assert writing.upstream.seen == []


async def test_one_denied_key_among_a_thousand_denies_all(writing: S3Front) -> None:
    keys = [*KEYS[:-1], "shut/s.txt"]
    answered = await writing.ask("POST", f"/{writing.bucket}?delete", body=listed(keys))
    denied(answered, "analysts-read")
    assert b"<Code>AccessDenied</Code>" in answered.body
    assert writing.upstream.seen == []
    [record] = await writing.sidecar.decisions()
    assert record[::2] == ("DENY", writing.place("shut/s.txt"))


async def test_keys_whose_records_can_not_be_stored_are_not_deleted(writing: S3Front) -> None:
    # The records of a thousand keys don't fit in a segment of 1 MiB.
    answered = await writing.ask("POST", f"/{writing.bucket}?delete", body=listed(KEYS))
    assert b"audit_unavailable" in answered.body
    assert writing.upstream.seen == []
    [record] = await writing.sidecar.decisions()
    assert record[:2] == ("DENY", "audit_unavailable")


async def test_an_unreadable_list_is_malformed_xml(writing: S3Front) -> None:
    codes = {
        b"<Delete></Delete>": b"MalformedXML",
        b"<Other/>": b"MalformedXML",
        b"<Delete><Object><Key>open//a</Key></Object></Delete>": b"InvalidRequest",
    }
    for body, code in codes.items():
        answered = await writing.ask("POST", f"/{writing.bucket}?delete", body=body)
        denied(answered, "unreadable_request", 400)
        assert b"<Code>" + code in answered.body
