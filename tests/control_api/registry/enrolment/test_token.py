"""Hostile tokens, each wrong in one way, against the verifier alone and by the real keys of a
cluster. The same tokens go through a running control API in `test_hostile_tokens.py`."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from control_api.registry.enrolment.token import (
    TokenRefused,
    UnusableKeySet,
    parse_key_set,
    read_token,
    verify,
)
from tests.control_api.registry.enrolment.hostile import GOOD_NOW, HOSTILE
from tests.support import clusters
from tests.support.clusters import EC_KID, claims, ec_jwk, es256, key_set, rsa_jwk, token

KEYS = parse_key_set(key_set())


def pod_of(text: str, now: int | None = None) -> object:
    read = read_token(text)
    return verify(read, KEYS[read.kid], (int(time.time()) if now is None else now) * 1_000_000)


def test_a_pod_is_known_by_its_token() -> None:
    pod = verify(read_token(token()), KEYS["rsa-1"], int(time.time() * 1e6))
    assert pod.workload == f"{clusters.ISSUER}:system:serviceaccount:lending:loans"
    assert (pod.name, pod.uid, pod.node) == ("loans-0", "loans-0-lending", "node-1")


def test_a_token_signed_with_an_elliptic_key_is_accepted() -> None:
    assert pod_of(token(None, {"alg": "ES256", "kid": EC_KID, "typ": "JWT"}, es256))


def test_an_audience_may_be_a_text() -> None:
    assert pod_of(token(claims(aud="sluice")))


@pytest.mark.parametrize(("name", "make", "reason"), HOSTILE, ids=[each[0] for each in HOSTILE])
def test_a_hostile_token_is_refused(name: str, make: Callable[[], str], reason: str) -> None:
    text = make()
    if reason in ("issuer", "key") and "no issuer" != name != "a list of issuers":
        read = read_token(text)
        # `Enrolments` looks them up, and finds nothing.
        assert read.issuer != clusters.ISSUER or read.kid not in KEYS
        return
    with pytest.raises(TokenRefused) as refused:
        pod_of(text)
    assert refused.value.reason == reason, refused.value.message
    # Whose token it was is told only where the signature holds.
    told = reason in ("audience", "lifetime", "expired", "early")
    times = not {"exp", "iat", "nbf"}.isdisjoint(name.split())
    told = told or (times and name != "exp not a number")  # which can't be read at all
    assert (refused.value.pod is not None) == told
    # What an operator and a stranger read never holds a part of the token.
    assert not text or text[:20] not in refused.value.message


@pytest.mark.parametrize("step", [-3600, -31, 631, 7200, 86400])
def test_a_token_is_refused_outside_its_time_by_a_stepped_clock_too(step: int) -> None:
    with pytest.raises(TokenRefused) as refused:
        pod_of(token(claims(iat=GOOD_NOW, nbf=GOOD_NOW, exp=GOOD_NOW + 600)), GOOD_NOW + step)
    assert refused.value.reason == ("early" if step < 0 else "expired")


@pytest.mark.parametrize("step", [-29, 0, 599, 629])
def test_clocks_may_differ_by_half_a_minute(step: int) -> None:
    assert pod_of(token(claims(iat=GOOD_NOW, nbf=GOOD_NOW, exp=GOOD_NOW + 600)), GOOD_NOW + step)


def test_every_cut_and_every_changed_character_is_refused() -> None:
    good = token()
    assert pod_of(good)
    # Each third position: the whole would take a second.
    for at in range(0, len(good), 3):
        changed = good[:at] + ("A" if good[at] != "A" else "B") + good[at + 1 :]
        for text in (good[:at], changed):
            with pytest.raises((TokenRefused, KeyError)):
                pod_of(text)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [1, null, {}]}',
        b'{"keys": [], "keys": []}',
        key_set({"kty": "oct", "kid": "k", "k": "c2VjcmV0"}),
        key_set({**rsa_jwk(), "use": "enc"}),
        key_set({**rsa_jwk(), "key_ops": ["encrypt"]}),
        key_set({**rsa_jwk(), "d": "AQAB"}),
        key_set({**rsa_jwk(), "alg": "PS256"}),
        key_set({**rsa_jwk(), "n": "AQAB"}),
        key_set({**rsa_jwk(), "n": "ö"}),
        key_set({**rsa_jwk(), "kid": 1}),
        key_set({**ec_jwk(), "crv": "P-384"}),
        key_set({**ec_jwk(), "x": ec_jwk()["y"]}),
        # Two keys of one name: which one is meant would depend on their order.
        key_set(rsa_jwk(), rsa_jwk(clusters.OTHER_RSA)),
    ],
)
def test_an_unusable_key_set_is_refused(raw: bytes) -> None:
    with pytest.raises(UnusableKeySet):
        parse_key_set(raw)


def test_a_damaged_key_does_not_affect_the_others() -> None:
    assert parse_key_set(key_set({**rsa_jwk(kid="bad"), "n": "x"}, ec_jwk())).keys() == {EC_KID}
