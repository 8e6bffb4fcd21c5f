"""A provider that is away, slow, huge, or not the one that was configured."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from control_api.signin import provider as provider_module
from control_api.signin import provider_answers
from control_api.signin.attempt import Person, ProviderUnavailable, SignInRefusal, SignInRefused
from control_api.signin.provider import parse_metadata
from tests.control_api.signin.hostile_provider import (
    DISCOVERY,
    Handler,
    HostileProvider,
    lying,
    new_key,
)
from tests.control_api.signin.signing_in import Client, client_of, settings_for
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, until_async


@pytest_asyncio.fixture
async def hostile() -> AsyncIterator[HostileProvider]:
    async with lying(free_port()) as made:
        yield made


async def arrive(client: Client, hostile: HostileProvider, **answer: str) -> Person:
    """The end of a sign-in whose browser has come back."""
    attempt, _ = await client.begin()
    hostile.claims.setdefault("nonce", attempt.nonce)
    return await client.idp.person({"state": attempt.state, "code": "c", **answer}, attempt)


async def test_an_honest_provider_is_accepted_and_a_foreign_issuer_refused(
    hostile: HostileProvider,
) -> None:
    hostile.claims["groups"] = ["a"]
    person = await arrive(client_of(hostile.issuer), hostile)
    assert (person.subject, person.groups) == ("ann", frozenset("a"))
    # A provider that does not announce RFC 9207 may name itself nevertheless, rightly.
    del hostile.claims["nonce"]
    await arrive(client_of(hostile.issuer), hostile, iss=hostile.issuer)
    del hostile.claims["nonce"]
    with pytest.raises(SignInRefused, match=r"evil\.example"):
        await arrive(client_of(hostile.issuer), hostile, iss="https://evil.example")


async def test_an_unreachable_provider_is_reported_and_not_asked_by_every_visitor() -> None:
    client = client_of(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ProviderUnavailable, match="can't be asked"):
        await client.begin()


@pytest.mark.parametrize("path", [DISCOVERY, "/jwks", "/token", "/userinfo"])
async def test_no_answer_takes_more_than_its_budget(
    hostile: HostileProvider, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(b" " * 5_000_000)

    async def hang(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError("it was waited for")

    async def drip(request: web.Request) -> web.StreamResponse:
        # Each byte comes in time, and the whole never does.
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(600):
            await response.write(b" ")
            await asyncio.sleep(0.1)
        return response

    async def flood(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b" " * (provider_answers.MAX_BYTES + 1))

    async def bomb(request: web.Request) -> web.StreamResponse:
        return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

    for handler, seconds, told in (
        (hang, 0.3, "no answer"),
        (drip, 0.3, "no answer"),
        (flood, 60.0, "more"),
        (bomb, 60.0, "not with a JSON"),
    ):
        monkeypatch.setattr(provider_answers, "TOTAL_SECONDS", seconds)
        hostile.instead[path] = handler
        hostile.claims.clear()
        with pytest.raises(ProviderUnavailable, match=told):
            await arrive(client_of(hostile.issuer), hostile)


ODD = (
    (200, b"[]"), (200, b"<html>"), (200, b""), (200, b'{"a":1,"a":2}'), (200, b"\xff"),
    (302, b"{}"), (307, b"{}"), (404, b"{}"), (500, b"{}"),
)  # fmt: skip
"""Statuses and bodies that are no answer."""


def answering(hostile: HostileProvider, status: int, body: bytes) -> Handler:
    """It would also lead elsewhere."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers={"Location": f"{hostile.issuer}/x"})

    return answer


async def test_nothing_but_a_json_object_at_its_own_address_is_read(
    hostile: HostileProvider,
) -> None:
    client, url = provider_answers.ProviderClient(None), f"{hostile.issuer}/odd"
    for status, body in ODD:
        hostile.instead["/odd"] = answering(hostile, status, body)
        with pytest.raises(ProviderUnavailable):
            await client.get(url)
        if status == 200:
            with pytest.raises(ProviderUnavailable):
                await client.post(url, {}, "a=b")
        else:
            assert (await client.post(url, {}, "a=b")).status == status
    assert not hostile.asked["/x"], "it followed a redirect"


@pytest.mark.deep(stands_in="test_nothing_but_a_json_object_at_its_own_address_is_read")
@pytest.mark.parametrize("path", [DISCOVERY, "/jwks", "/token", "/userinfo"])
async def test_no_answer_but_a_json_object_is_read(hostile: HostileProvider, path: str) -> None:
    for status, body in ODD:
        hostile.instead[path] = answering(hostile, status, body)
        hostile.claims.clear()
        with pytest.raises(ProviderUnavailable):
            await arrive(client_of(hostile.issuer), hostile)
    assert not hostile.asked["/x"], "it followed a redirect"


@pytest.mark.parametrize(
    "changed",
    [
        {"issuer": "https://evil.example"},
        {"issuer": None},
        {"issuer": ["x"]},
        {"token_endpoint": None},
        {"authorization_endpoint": "http://id.example/authorize"},
        {"token_endpoint": "http://id.example/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"userinfo_endpoint": "https://user:pw@id.example/"},
        {"end_session_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": "https://id.example/a\r\nSet-Cookie: b=c"},
        {"code_challenge_methods_supported": ["plain"]},
        {"token_endpoint_auth_methods_supported": ["private_key_jwt"]},
    ],
    ids=str,
)
async def test_an_impossible_description_of_the_provider_is_refused(
    hostile: HostileProvider, changed: dict[str, Any]
) -> None:
    hostile.metadata = changed
    with pytest.raises(ProviderUnavailable):
        await client_of(hostile.issuer).begin()


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
def test_a_remote_provider_cannot_send_the_service_to_its_own_host(name: str) -> None:
    issuer = "https://id.example"
    described = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "jwks_uri": f"{issuer}/jwks",
    }
    assert parse_metadata(described, settings_for(issuer)).token_endpoint == f"{issuer}/token"
    for inside in ("http://127.0.0.1:8700/v1/keys", "http://localhost/", "HTTP://[::1]/"):
        with pytest.raises(ProviderUnavailable, match="is not HTTPS"):
            parse_metadata({**described, name: inside}, settings_for(issuer))


@pytest.mark.parametrize("kid", ["k", None])
async def test_the_next_key_may_have_the_name_of_the_one_before(
    hostile: HostileProvider, kid: str | None
) -> None:
    """Some providers call each of their keys the same, or nothing."""
    hostile.kid = kid
    client = client_of(hostile.issuer)
    hostile.claims["groups"] = []
    await arrive(client, hostile)
    for _ in range(2):
        hostile.key = new_key()
        del hostile.claims["nonce"]
        assert (await arrive(client, hostile)).subject == "ann"
    assert hostile.asked["/jwks"] == 3
    # A signature by a key that the provider does not publish is no better for being asked twice.
    published, hostile.key = hostile.key, new_key()
    hostile.published = published
    del hostile.claims["nonce"]
    with pytest.raises(SignInRefused, match="not signed by a key"):
        await arrive(client, hostile)
    assert hostile.asked["/jwks"] == 4


async def test_a_changed_issuer_is_noticed(hostile: HostileProvider) -> None:
    client = client_of(hostile.issuer)
    await client.begin()
    hostile.metadata["issuer"] = "https://evil.example"
    await client.begin()
    client.time.waited += provider_module.METADATA_SECONDS
    with pytest.raises(ProviderUnavailable, match=r"evil\.example"):
        await client.begin()


async def test_one_discovery_serves_all_concurrent_callers(hostile: HostileProvider) -> None:
    client = client_of(hostile.issuer)
    await asyncio.gather(*(client.begin() for _ in range(50)))
    assert hostile.asked[DISCOVERY] == 1
    client.time.waited += provider_module.METADATA_SECONDS
    await asyncio.gather(*(client.begin() for _ in range(50)))
    assert hostile.asked[DISCOVERY] == 2


async def test_a_failure_is_remembered_for_seconds(hostile: HostileProvider) -> None:
    client = client_of(hostile.issuer)
    hostile.metadata["issuer"] = None
    failed = await asyncio.gather(*(client.begin() for _ in range(50)), return_exceptions=True)
    assert all(isinstance(each, ProviderUnavailable) for each in failed)
    assert hostile.asked[DISCOVERY] == 1
    hostile.metadata.clear()
    client.time.waited += provider_module.RETRY_SECONDS
    await client.begin()


@pytest.mark.parametrize(
    ("claims", "tokens"),
    [
        ({"nonce": "another"}, {}),
        ({"aud": "another client"}, {}),
        ({"iss": "https://evil.example"}, {}),
        ({"groups": {"a": "b"}}, {}),
        ({"_claim_names": {"groups": "src1"}}, {}),
        ({}, {"id_token": None}),
        ({}, {"id_token": "a.b.c"}),
        ({}, {"id_token": 7}),
    ],
    ids=str,
)
async def test_tokens_that_do_not_fit_are_refused(
    hostile: HostileProvider, claims: dict[str, Any], tokens: dict[str, Any]
) -> None:
    hostile.claims, hostile.tokens = dict(claims), tokens
    with pytest.raises(SignInRefused):
        await arrive(client_of(hostile.issuer), hostile)


async def test_userinfo_of_someone_else_is_refused(hostile: HostileProvider) -> None:
    for other in ({"sub": "eve", "groups": ["a"]}, {"groups": ["a"]}):
        hostile.user_info = other
        hostile.claims.clear()
        with pytest.raises(SignInRefused, match="someone else"):
            await arrive(client_of(hostile.issuer), hostile)
    # What the signed token says is not overruled there.
    hostile.user_info = {"sub": "ann", "groups": ["a"], "iss": "https://evil.example"}
    hostile.claims.clear()
    person = await arrive(client_of(hostile.issuer), hostile)
    assert (person.issuer, person.groups) == (hostile.issuer, frozenset("a"))


async def test_a_public_client_names_itself_and_shows_no_secret(hostile: HostileProvider) -> None:
    shown: list[tuple[dict[str, Any], str | None]] = []

    async def refuse(request: web.Request) -> web.StreamResponse:
        shown.append((dict(await request.post()), request.headers.get("Authorization")))
        return web.json_response({"error": "invalid_grant"}, status=400)

    hostile.instead["/token"] = refuse
    with pytest.raises(SignInRefused):
        await arrive(client_of(hostile.issuer, client_secret=None), hostile)
    [(form, authorization)] = shown
    assert (form["client_id"], authorization) == ("sluice", None)
    assert "client_secret" not in form


async def test_errors_of_the_token_endpoint_are_reported_shortened(
    hostile: HostileProvider,
) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        told = {"error": "invalid_client\n", "error_description": "x" * 9999}
        return web.json_response(told, status=401)

    hostile.instead["/token"] = refuse
    with pytest.raises(ProviderUnavailable) as caught:
        await arrive(client_of(hostile.issuer), hostile)
    assert len(caught.value.message) < 400
    assert "\n" not in caught.value.message


async def test_only_a_bounded_number_of_codes_is_exchanged_at_a_time(
    hostile: HostileProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of them are to wait at once, however long it takes until the last is sent.
    monkeypatch.setattr(provider_answers, "TOTAL_SECONDS", PATIENCE)
    client, hold = client_of(hostile.issuer), asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        await hold.wait()
        return web.json_response({"error": "invalid_grant"}, status=400)

    hostile.instead["/token"] = wait
    waiting = [
        asyncio.ensure_future(arrive(client, hostile)) for _ in range(provider_module.MAX_EXCHANGES)
    ]
    await until_async(
        "as many as may wait", lambda: hostile.asked["/token"] >= provider_module.MAX_EXCHANGES
    )
    with pytest.raises(ProviderUnavailable, match="too many people"):
        await arrive(client, hostile)
    hold.set()
    for each in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(each, SignInRefused)
        assert each.reason is SignInRefusal.code
