"""A sidecar reaches a control API over TLS with a private authority, and reports why it can't."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.control.client import ControlClient, ControlUnavailable
from sidecar.settings.model import UpstreamTls
from tests.support.certificates import authority
from tests.support.control_api import ControlApi, running_control_api

PATH = "/v1/sidecars/policy-set"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ControlApi]:
    pair = authority().issue("127.0.0.1", "control.test")
    with running_control_api(
        tmp_path,
        SLUICE_TLS_CERTIFICATE=str(pair.certificate),
        SLUICE_TLS_KEY=str(pair.key),
        SLUICE_TLS_CLIENT_CA=str(authority("clients").path),
    ) as started:
        yield started


async def fetched(address: str, key: str, tls: UpstreamTls | None = None) -> int:
    async with ControlClient(address, key, tls) as client:
        answer = await client.get(PATH, {"since": "0"}, seconds=20)
    return int(answer["revision"])


async def test_a_server_is_trusted_by_the_authority_and_the_name_of_the_file() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            body = b'{"revision": 7}'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    asks = authority().server("127.0.0.1", "control.test", asks=True)
    mine = authority().issue("a sidecar")
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=asks) as server:
        address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"

        async def refused(tls: UpstreamTls | None) -> str:
            with pytest.raises(ControlUnavailable) as caught:
                await fetched(address, "unused", tls)
            assert caught.value.status is None
            return str(caught.value)

        of_file = UpstreamTls(authority().path, mine.certificate, mine.key)
        for name in (None, "control.test"):
            assert await fetched(address, "unused", replace(of_file, server_name=name)) == 7
        assert "Hostname mismatch" in await refused(replace(of_file, server_name="other.test"))
        assert "its certificate is not trusted: " in await refused(None)
        other = replace(of_file, ca=authority("clients").path)
        assert "its certificate is not trusted: " in await refused(other)
        # It has no certificate to show, for which this server asks.
        assert "can't be reached: " in await refused(UpstreamTls(authority().path))


@pytest.mark.deep(stands_in="test_a_server_is_trusted_by_the_authority_and_the_name_of_the_file")
async def test_the_authority_and_the_certificate_of_the_file_are_used(api: ControlApi) -> None:
    address, key = f"https://127.0.0.1:{api.port}", api.admin_key
    mine = authority("clients").issue("a sidecar")
    trusted = UpstreamTls(authority().path, mine.certificate, mine.key)
    assert await fetched(address, key, trusted) > 0
    named = UpstreamTls(authority().path, mine.certificate, mine.key, "control.test")
    assert await fetched(address, key, named) > 0
    elsewhere = UpstreamTls(authority().path, mine.certificate, mine.key, "other.test")
    for tls, why in [
        (None, "its certificate is not trusted: unable to get local issuer"),
        (UpstreamTls(authority("clients").path), "its certificate is not trusted: "),
        (elsewhere, "its certificate is not trusted: Hostname mismatch"),
        (UpstreamTls(authority().path), "the control API can't be reached: "),
    ]:
        with pytest.raises(ControlUnavailable) as caught:
            await fetched(address, key, tls)
        assert why in str(caught.value), caught.value
        assert caught.value.status is None


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://127.0.0.1:1", "the control API can't be reached: connection refused"),
        ("https://127.0.0.1:1", "the control API can't be reached: connection refused"),
        ("http://control.invalid", "the control API can't be reached: "),
    ],
)
async def test_an_unreachable_control_api_is_reported_in_plain_words(
    address: str, why: str
) -> None:
    with pytest.raises(ControlUnavailable) as caught:
        await fetched(address, "unused")
    assert str(caught.value).startswith(why)
    assert "ssl" not in str(caught.value)
