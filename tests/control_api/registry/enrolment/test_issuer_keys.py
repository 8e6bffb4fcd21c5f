"""An issuer's keys: when they are fetched, and what stays in use when they can't be."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from control_api.metrics.labels import KeySetFetch
from control_api.registry.enrolment.enrolment import (
    FetchFailed,
    IssuerKeys,
    KeysUnavailable,
    fetch_keys,
)
from control_api.security.issuers import Issuer, IssuerFaults, parse_issuers
from policies.ground.clock import Clock
from tests.support.clusters import EC_KID, RSA_KID, KeySetServer, ec_jwk, key_set, rsa_jwk
from tests.support.waiting import until_async


class IssuerSetup:
    """One issuer, by a clock and a set of keys that the test chooses."""

    def __init__(self, issuer: Issuer | None = None) -> None:
        self.now = 0.0
        self.fetches = 0
        self.body: bytes | Exception = key_set(rsa_jwk())
        self.outcomes: list[KeySetFetch] = []
        clock = Clock(lambda: 0, lambda: self.now)
        of = issuer or Issuer("i", "https://i/keys")
        own = fetch_keys if of.file else self.fetch
        self.keys = IssuerKeys(of, clock, self.outcomes.append, own)

    async def fetch(self, issuer: Issuer) -> bytes:
        self.fetches += 1
        await asyncio.sleep(0)
        if isinstance(self.body, Exception):
            raise self.body
        return self.body


async def test_an_unknown_kid_causes_a_fetch_a_minute() -> None:
    world = IssuerSetup()
    assert await world.keys.find(RSA_KID) is not None
    for _ in range(1000):
        assert await world.keys.find(os.urandom(8).hex()) is None
    assert world.fetches == 1
    # The cluster has rotated its keys.
    world.body = key_set(rsa_jwk(), ec_jwk())
    world.now = 59
    assert await world.keys.find(EC_KID) is None
    world.now = 61
    assert await world.keys.find(EC_KID) is not None
    assert world.fetches == 2


async def test_many_pods_at_once_share_a_fetch() -> None:
    world = IssuerSetup()
    found = await asyncio.gather(*(world.keys.find(RSA_KID) for _ in range(200)))
    assert all(found)
    assert world.fetches == 1


@pytest.mark.parametrize("body", [FetchFailed("away"), b"<html>", b'{"keys": []}'])
async def test_the_last_good_set_stays_in_use(body: bytes | Exception) -> None:
    world = IssuerSetup()
    good = await world.keys.find(RSA_KID)
    world.body = body
    for world.now in range(60, 7200, 60):
        assert await world.keys.find("another") is None
        assert await world.keys.find(RSA_KID) is good
    assert world.outcomes[1:] == [KeySetFetch.failed] * (world.fetches - 1)


async def test_a_pod_is_refused_for_a_while_if_no_key_set_can_be_fetched() -> None:
    world = IssuerSetup()
    world.body = FetchFailed("away")
    for _ in range(50):
        with pytest.raises(KeysUnavailable):
            await world.keys.find(RSA_KID)
    assert world.fetches == 1
    world.now, world.body = 11.0, key_set()
    assert await world.keys.find(RSA_KID) is not None


async def test_a_key_removed_from_the_set_no_longer_verifies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("control_api.registry.enrolment.enrolment.REFRESH_SECONDS", 0.01)
    world = IssuerSetup()
    assert await world.keys.find(RSA_KID) is not None
    world.body = key_set(ec_jwk())
    async with asyncio.TaskGroup() as group:
        loop = group.create_task(world.keys.run())
        await until_async("it was fetched again", lambda: world.fetches > 2)
        loop.cancel()
    assert await world.keys.find(RSA_KID) is None


async def test_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set(rsa_jwk()))
    world = IssuerSetup(Issuer("i", str(path)))
    assert await world.keys.find(RSA_KID) is not None
    path.write_bytes(key_set(ec_jwk()))
    world.now = 1.1
    assert await world.keys.find(RSA_KID) is None
    assert await world.keys.find(EC_KID) is not None
    path.unlink()
    world.now = 9.0
    assert await world.keys.find(EC_KID) is not None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda server: setattr(server, "status", 302), "answered 302"),
        (lambda server: setattr(server, "status", 500), "answered 500"),
        (lambda server: setattr(server, "body", b"x" * 300_000), "more than"),
    ],
)
async def test_only_a_small_answer_of_the_address_itself_counts(
    key_server: KeySetServer, change: Callable[[KeySetServer], None], why: str
) -> None:
    issuer = Issuer("i", key_server.url)
    assert await fetch_keys(issuer) == key_server.body
    key_server.headers["Location"] = key_server.url
    change(key_server)
    with pytest.raises(FetchFailed, match=why):
        await fetch_keys(issuer)
    assert len(key_server.asked) == 2


async def test_an_address_that_refuses_connections_is_a_failure() -> None:
    with pytest.raises(FetchFailed):
        await fetch_keys(Issuer("i", "http://127.0.0.1:9/keys"))
    with pytest.raises(FetchFailed, match="can't be read"):
        await fetch_keys(Issuer("i", "/nonexistent"))


def test_the_setting_lists_several_clusters(tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(key_set())
    found = parse_issuers(
        f"https://a=https://10.0.0.1/keys?x=1 , tenant=ten_a,token_file={tmp_path}/keys;\n"
        f"https://b={tmp_path}/keys;"
    )
    assert found == (
        Issuer("https://a", "https://10.0.0.1/keys?x=1", "ten_a", None, tmp_path / "keys"),
        Issuer("https://b", f"{tmp_path}/keys"),
    )
    assert parse_issuers("") == ()


def test_every_fault_of_the_setting_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(IssuerFaults) as refused:
        parse_issuers(
            "https://a;=x;https://b=http://b/keys;https://c=/nonexistent,tenant=,colour=red;"
            f"https://d=https://u:p@d/keys;https://e=https://e/,ca={tmp_path}/no.pem;"
            "https://f=https://f/,tenant=a,tenant=b;https://f=https://f/;"
            "https://g=http://127.0.0.1/,token_file=/x;https://h=ftp://h/x"
        )
    said = "\n".join(refused.value.faults)
    for each in (
        "`https://a` is not `<issuer>=<JWKS URL or file>`",
        "`=x` is not",
        "`https://b`: the key set must be fetched over https://",
        "`/nonexistent` is not a file",
        "`tenant=` of issuer `https://c`",
        "`colour=red` of issuer `https://c`",
        "`https://d`: the address of the key set must be a URL without user",
        "can't be read as certificates",
        "issuer `https://f` has two options `tenant`",
        "issuer `https://f` is listed twice",
        "`https://g`: `ca` and `token_file` are for an address that begins with https://",
        "`https://h`: the key set must be fetched over https://",
    ):
        assert each in said, each
    assert "u:p@" not in said
