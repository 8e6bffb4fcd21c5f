"""What connections hold of requests that never begin: bytes of each head, bytes of all, places."""

import tracemalloc

import pytest

from policies.ground.connection_budget import HEADS_FULL, ConnectionBudget
from sidecar.http.messages.request_parser import HeadLimits
from sidecar.http.server.connections import Connections
from tests.sidecar.http.server.served import LIMITS, Client, Gate, at_once, get

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])

KIB = 1024
WIDE = LIMITS._replace(head=HeadLimits(16 * KIB, 16 * KIB, 128), buffer_bytes=64 * KIB)


def begun(size: int) -> list[bytes]:
    """A head of `size` bytes without an end, a field at a time."""
    head = b"GET / HTTP/1.1\r\n"
    field = b"a: " + b"x" * 8000 + b"\r\n"
    pieces = [head, *[field] * ((size - len(head)) // len(field))]
    return [*pieces, b"b" * (size - sum(map(len, pieces)))]


async def test_a_head_beyond_its_limit_is_refused_though_each_field_is_within_its_own() -> None:
    within, beyond = Client(at_once, WIDE), Client(at_once, WIDE)
    within.send(*begun(64 * KIB))
    assert not within.closed
    beyond.send(*begun(64 * KIB + 64))
    assert (await beyond.settle()).startswith(b"[")
    assert beyond.closed


async def test_a_hundred_unfinished_heads_hold_no_more_than_their_budget() -> None:
    budget = ConnectionBudget(1000, 1024 * KIB)
    tracemalloc.start()
    try:
        clients = [Client(at_once, WIDE, budget=budget) for _ in range(100)]
        before, _ = tracemalloc.get_traced_memory()
        for client in clients:
            client.send(*begun(60 * KIB))
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert budget.head_bytes <= budget.head_limit
    assert held < 2 * budget.head_limit
    assert sum(client.closed for client in clients) == 100 - 1024 // 60


async def test_a_head_without_room_is_refused_with_503_and_no_decision() -> None:
    budget, gate = ConnectionBudget(1000, 100 * KIB), Gate()
    first, second = Client(gate, WIDE, budget=budget), Client(gate, WIDE, budget=budget)
    first.send(*begun(60 * KIB))
    second.send(*begun(60 * KIB))
    assert await second.settle() == HEADS_FULL
    assert second.closed
    assert budget.heads_refused == 1
    assert 59 * KIB < budget.head_bytes <= 60 * KIB
    assert gate.served == []
    # A head that comes whole takes no room.
    third = Client(at_once, WIDE, budget=budget)
    third.send(get("/a"))
    assert await third.settle() == b"[/a]"


async def test_a_pending_response_is_not_followed_by_a_refusal() -> None:
    budget, gate = ConnectionBudget(1000, 10 * KIB), Gate()
    client = Client(gate, WIDE, budget=budget)
    client.send(get("/a"), *begun(20 * KIB))
    assert await client.settle() == b""
    assert (client.closed, budget.head_bytes) == (True, 0)


@pytest.mark.parametrize("end", ["finished", "closed", "refused"])
async def test_a_head_is_counted_until_it_ends(end: str) -> None:
    budget = ConnectionBudget(1000)
    client = Client(at_once, WIDE, budget=budget)
    client.send(b"GET /a HTTP/1.1\r\nHost: a\r\nx: ")
    assert budget.head_bytes
    if end == "finished":
        client.send(b"y\r\n\r\n")
        assert await client.settle() == b"[/a]"
    elif end == "closed":
        client.close()
        await client.settle()
    else:
        client.send(b"x" * 40 * KIB)
        await client.settle()
    assert budget.head_bytes == 0


async def test_one_connection_too_many_is_closed_at_once_and_frees_nothing() -> None:
    budget = ConnectionBudget(2)
    first, second, third = (Client(at_once, budget=budget) for _ in range(3))
    third.send(get("/c"))
    assert await third.settle() == b""
    assert third.aborted
    assert (budget.open, budget.refused) == (2, 1)
    second.close()
    await second.settle()
    fourth = Client(at_once, budget=budget)
    fourth.send(get("/d"))
    assert await fourth.settle() == b"[/d]"
    first.send(get("/a"))
    assert await first.settle() == b"[/a]"


async def test_a_connection_inside_another_does_not_count() -> None:
    budget = ConnectionBudget(2)
    client = Client(at_once, budget=budget)
    connections: Connections = client.connections
    connections.above().connection_made(client)
    assert budget.open == 1
