"""The ports of HTTP doors: the one of the sidecar, or one of their own, with TLS."""

import ssl
from pathlib import Path

import pytest
from aiohttp import ClientConnectorError, ClientOSError, ClientSession, ServerDisconnectedError

from policies.ground.addresses import ListenAddress
from sidecar.settings.sections import Door, DoorTls
from tests.sidecar.doors.http.checks import SPEAKER, checks
from tests.support.certificates import Authority, authority
from tests.support.fake_control_api import EVALUATE_KEY

ANY = ListenAddress("127.0.0.1", 0)
KEY = {"X-API-Key": EVALUATE_KEY}


async def test_a_door_s_own_port_serves_only_that_door(tmp_path: Path) -> None:
    doors = (
        Door("apart", "envoy_http", "crm", ANY, agent=SPEAKER),
        Door("here", "envoy_http", "crm", agent=SPEAKER),
    )
    async with checks(tmp_path, doors=doors) as asked, ClientSession() as session:
        [own] = asked.running.parts.doors.listeners
        shared = asked.running.address
        for address, path, status in (
            (own.address, "/v1/check/apart/a", 200),
            (own.address, "/v1/check/here/a", 404),
            (own.address, "/v1/context/evaluate", 404),
            (own.address, "/metrics", 404),
            (own.address, "/health", 404),
            (shared, "/v1/check/here/a", 200),
            (shared, "/v1/check/apart/a", 404),
        ):
            async with session.get(f"http://{address}{path}", headers=KEY) as answer:
                assert answer.status == status, (address, path)


def client(trusted: Authority, pair: object = None) -> ssl.SSLContext:
    return trusted.client(pair)  # type: ignore[arg-type]


async def test_a_door_without_a_key_serves_clients_of_its_authority_alone(tmp_path: Path) -> None:
    servers, gateways = authority("servers"), authority("gateways")
    pair = servers.issue("localhost", "127.0.0.1")
    tls = DoorTls(pair.certificate, pair.key, gateways.path)
    door = Door("mesh", "envoy_http", "crm", ANY, tls, "none", SPEAKER)
    async with checks(tmp_path, doors=(door,)) as asked, ClientSession() as session:
        [own] = asked.running.parts.doors.listeners
        url = f"https://127.0.0.1:{own.address.port}/v1/check/mesh/a"
        known = client(servers, gateways.issue("gateway.test"))
        async with session.get(url, ssl=known) as answer:
            assert answer.status == 200
        for other in (client(servers), client(servers, servers.issue("gateway.test"))):
            with pytest.raises((ClientOSError, ClientConnectorError, ServerDisconnectedError)):
                async with session.get(url, ssl=other) as answer:
                    await answer.read()
        assert len(await asked.decided()) == 1
