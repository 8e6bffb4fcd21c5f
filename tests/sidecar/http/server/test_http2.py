"""A client that speaks HTTP/2 by prior knowledge is told in HTTP/2 why it is refused."""

import pytest

from sidecar.http.server.http2_refusal import GOAWAY, PREFACE, REASON, SETTINGS
from sidecar.http.server.request import Answer, HttpRequest
from tests.sidecar.http.server.served import Client, at_once, get

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])

OWN_SETTINGS = b"\0\0\6\4\0\0\0\0\0\0\3\0\0\0d"
REQUEST = b"\0\0\5\1\5\0\0\0\1abcde"


@pytest.mark.parametrize("size", [1, 9, 24, 100])
async def test_the_first_request_of_http_2_is_answered_with_a_goaway_and_the_end(size: int) -> None:
    served: list[HttpRequest] = []

    async def serve(request: HttpRequest) -> Answer:
        served.append(request)
        return await at_once(request)

    client = Client(serve, half_closes=True)
    sent = PREFACE + OWN_SETTINGS
    client.send(*(sent[at : at + size] for at in range(0, len(sent), size)))
    assert await client.settle() == SETTINGS, "what would make gRPC's clients connect again waits"
    client.send(*(REQUEST[at : at + size] for at in range(0, len(REQUEST), size)))
    client.send(get("/a"))
    assert await client.settle() == SETTINGS + GOAWAY
    assert client.ended
    assert [(each.fault, each.http2) for each in served] == [(True, True)]


async def test_the_frames_contain_the_cause() -> None:
    assert SETTINGS == b"\0\0\0\4\0\0\0\0\0"
    length = (8 + len(REASON)).to_bytes(3, "big")
    assert GOAWAY[:9] == length + b"\7\0\0\0\0\0"
    assert GOAWAY[9:17] == b"\0\0\0\0" + b"\0\0\0\x0d", "no stream, HTTP_1_1_REQUIRED"
    assert GOAWAY[17:].decode("ascii") == REASON


@pytest.mark.parametrize(
    "sent",
    [
        PREFACE.replace(b"SM", b"XX"),
        PREFACE.replace(b"HTTP/2.0", b"HTTP/1.1"),
        b"\r\n" + PREFACE,
        PREFACE[:20] + get("/a"),
    ],
)
async def test_other_data_is_a_malformed_request(sent: bytes) -> None:
    client = Client(at_once)
    client.send(*(sent[at : at + 5] for at in range(0, len(sent), 5)))
    assert await client.settle() == b"[fault close]"


async def test_a_preface_behind_a_request_is_malformed_http_1() -> None:
    client = Client(at_once)
    client.send(get("/a"), PREFACE)
    assert await client.settle() == b"[/a][fault close]"
