"""What follows an offer of another protocol is never read as a request before the offer is answered
(RFC 9931), and a connection that is handed over takes along what followed."""

import pytest

from sidecar.http.server.request import Answer, HandedOver, HttpRequest, ResponseSent
from tests.sidecar.http.server.served import Client, Gate, Reply, at_once, get, post, with_body

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])

UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
CONNECT = b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"


@pytest.mark.parametrize("pieces", [1, 2])
async def test_an_offer_to_upgrade_that_is_ignored_keeps_the_connection(pieces: int) -> None:
    client = Client(with_body)
    for sent in (get("/a", UPGRADE), post("/b", 4, b"body", UPGRADE), get("/c")):
        half = len(sent) // pieces
        client.send(*filter(None, (sent[:half], sent[half:] if pieces > 1 else b"")))
        await client.settle()
    assert client.got == b"[][body][]"
    assert not client.is_closing()


@pytest.mark.parametrize(
    "offer",
    [get("/a", UPGRADE), post("/a", 4, b"body", UPGRADE), CONNECT],
    ids=["get", "post", "connect"],
)
@pytest.mark.parametrize("together", [True, False])
async def test_data_after_an_upgrade_request_is_not_read_before_the_response(
    offer: bytes, together: bool
) -> None:
    gate = Gate()
    client = Client(gate)
    client.send(*([offer + get("/b")] if together else [offer, get("/b")]))
    gate.release("/a", "a:1", "/b")
    assert await client.settle() in (b"[/a close]", b"[a:1 close]")
    assert client.is_closing()
    assert "/b" not in gate.targets


async def test_a_request_before_an_offer_is_not_the_last() -> None:
    gate = Gate()
    client = Client(gate)
    client.send(get("/a") + get("/b", UPGRADE) + get("/c"))
    gate.release("/a", "/b", "/c")
    assert await client.settle() == b"[/a][/b close]"
    assert gate.targets == ["/a", "/b"]


async def test_a_request_may_be_the_last_one_that_is_answered() -> None:
    async def serve(request: HttpRequest) -> Answer:
        request.stop_reading()
        return Reply(request.target.encode())

    client = Client(serve)
    client.send(get("/a") + get("/b"))
    assert await client.settle() == b"[/a close]"
    assert client.is_closing()


@pytest.mark.parametrize("behind", [b"", b"the other protocol"])
async def test_a_connection_is_handed_over_with_the_data_that_followed(behind: bytes) -> None:
    handed: list[HandedOver] = []

    async def serve(request: HttpRequest) -> Answer:
        handed.append(request.hand_over())
        return ResponseSent(keep_alive=False, status=200)

    client = Client(serve)
    client.send(CONNECT + behind)
    await client.settle()
    [given] = handed
    assert (given.transport, given.data, given.ended) == (client, behind, False)
    assert not client.is_closing()
    assert len(client.connections.open) == 1
    given.on_lost(None)
    assert client.connections.open == set()


async def test_a_half_closed_connection_is_handed_over_open() -> None:
    gate, handed = Gate(), []

    async def serve(request: HttpRequest) -> Answer:
        if request.method == "CONNECT":
            handed.append(request.hand_over())
            return ResponseSent(keep_alive=False, status=200)
        return await gate(request)

    client = Client(serve)
    client.send(get("/a") + CONNECT + b"inside")
    client.end()
    gate.release("/a")
    assert await client.settle() == b"[/a]"
    assert [(each.data, each.ended) for each in handed] == [(b"inside", True)]
    assert not client.is_closing()


async def test_a_connection_inside_another_one_serves_on_its_own() -> None:
    handed: list[HandedOver] = []

    async def serve(request: HttpRequest) -> Answer:
        handed.append(request.hand_over())
        return ResponseSent(keep_alive=False, status=200)

    client = Client(serve)
    client.send(CONNECT + get("/inside"))
    [given] = handed
    client.protocol = given.nested(at_once)
    client.protocol.connection_made(given.transport)
    client.send(given.data)
    assert client.got == b"[/inside]"


async def test_a_client_that_is_gone_has_no_connection_to_hand_over() -> None:
    gate, refused = Gate(), []

    async def serve(request: HttpRequest) -> Answer:
        await gate(request)
        try:
            request.hand_over()
        except ConnectionResetError as error:
            refused.append(error)
            raise
        raise AssertionError

    client = Client(serve, cancels=False)
    client.send(CONNECT)
    client.abort()
    gate.release("a:1")
    await client.settle()
    assert len(refused) == 1
