"""What one request may cost, in any protocol: too many sources make it unreadable, and the records
of one request are stored together or not at all."""

from pathlib import Path
from typing import Any

import pytest

from sidecar.spool import SpoolFull, SpoolSlow
from tests.sidecar.protocols.minimal import Minimal, denied, minimal, scripted
from tests.support.proxy import policy

QUERY = "/collections/docs/points/query"


def answer(_method: str, target: str, _body: bytes) -> tuple[int, Any]:
    return 200, {"result": {"aliases": []}} if target == "/aliases" else {"result": []}


def looking_up(count: int) -> dict[str, Any]:
    """A query that concerns `count` collections, the one in the path among them."""
    names = [f"c{number:05}" for number in range(count - 1)]
    return {"prefetch": [{"query": 1, "lookup_from": {"collection": name}} for name in names]}


@pytest.fixture
async def front(tmp_path: Path) -> Any:
    async with minimal(tmp_path, "qdrant", scripted(answer), policy()) as made:
        yield made


async def test_the_greatest_number_of_sources_is_judged_and_recorded(front: Minimal) -> None:
    assert (await front.ask("POST", QUERY, looking_up(64))).status == 200
    assert len(await front.sources()) == 64


@pytest.mark.parametrize("count", [65, 20_000])
async def test_more_sources_than_the_limit_are_one_recorded_denial(
    front: Minimal, count: int
) -> None:
    denied(await front.ask("POST", QUERY, looking_up(count)), "unreadable_request", 400)
    assert await front.sources() == [("DENY", "qdrant://kb")]
    assert not any("points" in line for line in front.lines)


async def test_only_the_denied_one_of_several_sources_is_recorded(tmp_path: Path) -> None:
    closed = policy(denied_sources=("qdrant://kb/c00040",))
    async with minimal(tmp_path, "qdrant", scripted(answer), closed) as front:
        denied(await front.ask("POST", QUERY, looking_up(64)), "analysts-read")
        assert await front.sources() == [("DENY", "qdrant://kb/c00040")]


async def test_sources_that_cannot_all_be_recorded_are_one_recorded_denial(
    front: Minimal, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where the room runs out in the middle of a request: the spool takes single records still.
    put = front.sidecar.spool.put_together

    def room_for_one(records: Any, **more: Any) -> Any:
        if len(records) > 1:
            raise SpoolFull
        return put(records, **more)

    monkeypatch.setattr(front.sidecar.spool, "put_together", room_for_one)
    denied(await front.ask("POST", QUERY, looking_up(30)), "audit_unavailable", 503)
    assert [decision for decision, _ in await front.sources()] == ["DENY"]
    assert not any("points" in line for line in front.lines)


async def test_a_spool_without_memory_for_all_sources_records_none(
    front: Minimal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: Any, **__: Any) -> Any:
        raise SpoolSlow

    monkeypatch.setattr(front.sidecar.spool, "put_together", slow)
    assert (await front.ask("POST", QUERY, looking_up(30))).status == 503
    assert await front.sources() == []
    assert not any("points" in line for line in front.lines)
