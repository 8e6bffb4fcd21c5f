"""Chroma's collections change names while agents read: policies follow the present name."""

import asyncio
from pathlib import Path

import pytest

from tests.sidecar.protocols.chroma.front import (
    Front,
    fronting,
)
from tests.sidecar.protocols.minimal import denied
from tests.support.proxy import policy


async def test_a_rename_through_the_sidecar_is_followed_at_once(
    chroma: int, tmp_path: Path
) -> None:
    (first := tmp_path / "a").mkdir()
    async with fronting(chroma, first, writes="allow") as front:
        assert (await front.ask("POST", front.one("open_docs", "/get"), {})).status == 200
        assert (
            await front.ask("PUT", front.one("open_docs"), {"new_name": "open_else"})
        ).status == 200
        await front.ask("POST", front.one("open_docs", "/get"), {})
        assert (await front.sidecar.decisions())[-1][2] == front.source("open_else")


async def test_a_rename_by_others_is_followed_after_thirty_seconds(front: Front) -> None:
    assert (await front.ask("POST", front.one("open_docs", "/get"), {})).status == 200
    front.direct("PUT", front.one("open_docs"), {"new_name": "shut_now"})
    front.ticking.ahead = 29
    assert (await front.ask("POST", front.one("open_docs", "/get"), {})).status == 200
    front.ticking.ahead = 31
    denied(await front.ask("POST", front.one("open_docs", "/get"), {}), "analysts-read")
    assert (await front.sidecar.decisions())[-1][2] == front.source("shut_now")


async def test_a_name_that_moved_is_judged_by_its_present_holder(front: Front) -> None:
    await front.ask("POST", front.one("open_docs", "/get"), {})
    # The closed one takes the open name: a policy follows the name, and the former holder loses it.
    front.direct("PUT", front.one("open_docs"), {"new_name": "shut_then"})
    front.direct("PUT", front.one("shut_docs"), {"new_name": "open_docs"})
    answered = await front.ask("GET", f"{front.names}/open_docs")
    assert answered.json["id"] == front.ids["shut_docs"]
    front.ticking.ahead = 31
    denied(await front.ask("POST", front.one("open_docs", "/get"), {}), "analysts-read")


async def test_a_recreated_collection_is_another_one(front: Front) -> None:
    old = front.ids["open_docs"]
    await front.ask("POST", f"{front.names}/{old}/get", {})
    front.direct("DELETE", f"{front.names}/open_docs")
    new = front.create("open_docs")
    assert new != old
    deleted = await front.ask("POST", f"{front.names}/{old}/get", {})
    assert deleted.status in (404, 500)
    assert (await front.ask("POST", f"{front.names}/{new}/get", {})).status == 200
    front.ticking.ahead = 31
    denied(await front.ask("POST", f"{front.names}/{old}/get", {}), "unresolved_source")


async def test_a_forbidden_name_stays_forbidden_however_often_it_is_recreated(front: Front) -> None:
    for _ in range(2):
        front.direct("DELETE", f"{front.names}/shut_docs")
        identity = front.create("shut_docs")
        denied(await front.ask("POST", f"{front.names}/{identity}/get", {}), "analysts-read")


@pytest.mark.deep(stands_in="test_a_rename_through_the_sidecar_is_followed_at_once")
async def test_concurrent_reads_and_renames_never_read_a_closed_collection(
    chroma: int, tmp_path: Path
) -> None:
    """One writer swaps two names through the sidecar while readers read by id: every response was
    allowed under a name that may be read."""
    names = policy(allowed_sources=("*open_*",), denied_sources=("*open_hidden*",))
    async with fronting(chroma, tmp_path, names, writes="allow") as front:
        identity = front.ids["open_docs"]
        stop = False

        async def read() -> int:
            count = 0
            while not stop:
                answered = await front.ask("POST", f"{front.names}/{identity}/get", {})
                assert answered.status in (200, 403)
                count += 1
            return count

        async def rename() -> None:
            for number in range(20):
                answered = await front.ask(
                    "PUT", f"{front.names}/{identity}", {"new_name": f"open_{number}"}
                )
                assert answered.status == 200
                check = await front.ask("POST", f"{front.names}/{identity}/get", {})
                assert check.status == 200
                by_id = {each["eid"]: each for each in await front.sidecar.records()}
                record = by_id[check.fields["x-sluice-event-id"]]
                name = record["pub"]["request"]["source_id"].rsplit("/", 1)[1]
                assert name == f"open_{number}", "a name from before the rename"

        readers = [asyncio.get_running_loop().create_task(read()) for _ in range(4)]
        await rename()
        stop = True
        assert sum(await asyncio.gather(*readers)) > 0


async def test_concurrent_requests_are_judged_separately(front: Front) -> None:
    async def ask(number: int) -> tuple[str, int, bytes]:
        name = "open_docs" if number % 2 else "shut_docs"
        answered = await front.ask(
            "POST", front.one(name, "/get"), {}, f"X-Sluice-Task: task-{number}"
        )
        return name, answered.status, answered.body

    for name, status, body in await asyncio.gather(*(ask(number) for number in range(60))):
        assert status == (200 if name == "open_docs" else 403)
        assert (b"text of open_docs" in body) == (name == "open_docs")
        assert b"text of shut" not in body
    tasks = [
        (record["pub"]["request"]["task_type"], record["pub"]["response"]["decision"])
        for record in await front.sidecar.records()
        if record["kind"] == "decision"
    ]
    assert sorted(tasks) == sorted(
        (f"task-{number}", "ALLOW" if number % 2 else "DENY") for number in range(60)
    )
