"""`listen_tls`: all that `listen` serves, it serves over TLS 1.2 or later, and nothing else."""

import asyncio
import ssl
import sys
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession, TCPConnector

from sidecar.http.tls_contexts import presented_certificates
from sidecar.settings.model import Pair
from sidecar.wait import __main__ as wait_for_ready
from tests.sidecar.wire import GOOD, request, with_key
from tests.support.certificates import authority
from tests.support.fake_control_api import EVALUATE_KEY
from tests.support.sidecar import EVALUATE, RunningSidecar, ask, settings
from tests.support.stack import ROOT


@pytest.fixture
def pair() -> Pair:
    return authority().issue("127.0.0.1")


@pytest.fixture
def sidecar_settings(pair: Pair) -> dict[str, Any]:
    return {"listen_tls": pair}


@pytest.fixture
async def client() -> AsyncIterator[ClientSession]:
    async with ClientSession(connector=TCPConnector(ssl=authority().client())) as made:
        yield made


async def test_all_paths_are_served_over_tls(
    sidecar: RunningSidecar, client: ClientSession
) -> None:
    at = f"https://{sidecar.address}"
    key = {"X-API-Key": EVALUATE_KEY}
    async with client.post(f"{at}{EVALUATE}", json=ask(), headers=key) as answer:
        assert (answer.status, (await answer.json())["decision"]) == (200, "ALLOW")
    for path in ("/health", "/health/ready", "/metrics"):
        async with client.get(f"{at}{path}") as answer:
            assert answer.status == 200
    assert [each["decision"] for each in await sidecar.responses()] == ["ALLOW"]


async def test_a_connection_without_tls_decides_nothing(sidecar: RunningSidecar) -> None:
    reader, writer = await asyncio.open_connection(sidecar.address.host, sidecar.address.port)
    writer.write(request(with_key(), GOOD))
    async with asyncio.timeout(20):
        assert not (await reader.read()).startswith(b"HTTP/")
    writer.close()
    assert await sidecar.records() == []


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_modern_tls_is_accepted(sidecar: RunningSidecar, version: ssl.TLSVersion) -> None:
    context = authority().client()
    context.minimum_version = context.maximum_version = version
    host, port = sidecar.address.host, sidecar.address.port
    _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    assert writer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
    writer.close()


async def test_tls_1_1_is_refused(sidecar: RunningSidecar) -> None:
    context = authority().client()
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    host, port = sidecar.address.host, sidecar.address.port
    with pytest.raises(OSError):  # noqa: PT011  # OpenSSL words it differently in each version
        await asyncio.open_connection(host, port, ssl=context, server_hostname=host)


async def test_pipelined_evaluations_are_answered_in_order(sidecar: RunningSidecar) -> None:
    host, port = sidecar.address.host, sidecar.address.port
    reader, writer = await asyncio.open_connection(
        host, port, ssl=authority().client(), server_hostname=host
    )
    last = with_key() + b"Connection: close\r\n"
    writer.write(request(with_key(), GOOD) * 20 + request(last, GOOD))
    async with asyncio.timeout(20):
        answered = await reader.read()
    writer.close()
    assert answered.count(b"HTTP/1.1 200 ") == 21
    sent = [part.split(b"\r\n\r\n")[1] for part in answered.split(b"HTTP/1.1 ")[1:]]
    events = [orjson.loads(body)["event_id"] for body in sent]
    assert events == [each["eid"] for each in await sidecar.records()]


async def test_the_sidecar_s_certificate_is_in_the_metric_of_expiries(
    sidecar: RunningSidecar, client: ClientSession
) -> None:
    async with client.get(f"https://{sidecar.address}/metrics") as answer:
        assert "sluice_tls_certificate_expiry_seconds" in await answer.text()


def test_the_sidecar_s_certificate_is_watched_for_changes(tmp_path: Path, pair: Pair) -> None:
    class Place:
        address, redis_url = "http://127.0.0.1:1", None

    assert presented_certificates(settings(tmp_path, Place(), listen_tls=pair)) == (
        pair.certificate,
    )


async def test_the_wait_command_can_ask_over_tls(
    sidecar: RunningSidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a name that its certificate need not have."""
    told = ["sluice wait", "--port", str(sidecar.address.port), "--seconds", "0"]
    for https, code in ((["--https"], 0), ([], 1)):
        monkeypatch.setattr(sys, "argv", [*told, *https])
        assert await asyncio.to_thread(wait_for_ready.main) == code


@pytest.mark.deep(stands_in="test_the_wait_command_can_ask_over_tls")
async def test_waiting_over_tls(sidecar: RunningSidecar) -> None:
    port = str(sidecar.address.port)
    for https, code in ((["--https"], 0), ([], 1)):
        waiting = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sidecar.wait", "--port", port, "--seconds", "0", *https),
            cwd=ROOT,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert await waiting.wait() == code
