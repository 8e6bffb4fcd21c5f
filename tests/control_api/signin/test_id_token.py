"""ID tokens that are not what they should be: every claim and every part of the header, changed."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from joserfc import jws, jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from control_api.signin.attempt import SignInRefused
from control_api.signin.provider_answers import (
    LEEWAY,
    Expected,
    UnknownKey,
    parse_keys,
    verify_id_token,
)

NOW = 1_800_000_000
ISSUER, CLIENT, NONCE = "https://id.example.com", "sluice", "a nonce"
EXPECTED = Expected(ISSUER, CLIENT, NONCE, None)
RSA = RSAKey.generate_key(2048, {"kid": "r", "use": "sig"})
EC = ECKey.generate_key("P-256", {"kid": "e", "use": "sig"})
OKP = OKPKey.generate_key("Ed25519", {"kid": "o", "use": "sig"})
KEYS = parse_keys({"keys": [key.as_dict(private=False) for key in (RSA, EC, OKP)]})
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "sub": "ann",
    "aud": CLIENT,
    "nonce": NONCE,
    "iat": NOW - 5,
    "exp": NOW + 300,
}


def token(key: Any = RSA, header: dict[str, Any] | None = None, **changed: Any) -> str:
    """A token by `key`, with claims changed, or left out where they are None."""
    claims = {name: value for name, value in {**CLAIMS, **changed}.items() if value is not None}
    given = {"alg": "RS256", "kid": "r", **(header or {})}
    shown = {name: value for name, value in given.items() if value is not None}
    return jwt.encode(shown, claims, key, algorithms=[given["alg"]])


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def part(value: dict[str, Any]) -> str:
    return encoded(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA, "RS256"), (RSA, "PS256"), (EC, "ES256"), (OKP, "EdDSA"), (OKP, "Ed25519")],
)
def test_a_token_by_a_key_of_the_provider_is_accepted(key: Any, algorithm: str) -> None:
    found = verify_id_token(token(key, {"alg": algorithm, "kid": key.kid}), KEYS, EXPECTED, NOW)
    assert found["sub"] == "ann"


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://evil.example.com"},
        {"iss": ISSUER + "/"},
        {"iss": None},
        {"iss": [ISSUER]},
        {"aud": "another client"},
        {"aud": None},
        {"aud": []},
        {"aud": [CLIENT, "another client"]},  # without `azp`
        {"aud": [CLIENT, "another client"], "azp": "another client"},
        {"azp": "another client"},
        {"nonce": "another"},
        {"nonce": None},
        {"nonce": [NONCE]},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "a" * 256},
        {"sub": "ann\x00"},
        {"exp": None},
        {"exp": NOW - LEEWAY},
        {"exp": "never"},
        {"exp": True},
        {"exp": float("nan")},
        {"iat": None},
        {"iat": NOW + LEEWAY + 1},
        {"nbf": NOW + LEEWAY + 1},
    ],
    ids=str,
)
def test_a_token_with_a_wrong_claim_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(SignInRefused):
        verify_id_token(token(**changed), KEYS, EXPECTED, NOW)


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": [CLIENT]},
        {"aud": [CLIENT, "another client"], "azp": CLIENT},
        {"exp": NOW - LEEWAY + 1},
        {"iat": NOW + LEEWAY},
        {"nbf": NOW + LEEWAY},
    ],
    ids=str,
)
def test_a_token_that_the_specification_allows_is_accepted(changed: dict[str, Any]) -> None:
    assert verify_id_token(token(**changed), KEYS, EXPECTED, NOW)["sub"] == "ann"


@pytest.mark.parametrize("seconds", [-86_400, 86_400])
def test_a_token_is_refused_by_a_stepped_clock_and_accepted_once_it_is_right(seconds: int) -> None:
    with pytest.raises(SignInRefused):
        verify_id_token(token(), KEYS, EXPECTED, NOW + seconds)
    assert verify_id_token(token(), KEYS, EXPECTED, NOW)


def test_a_token_without_a_signature_is_refused() -> None:
    for algorithm in ("none", "None", "nOnE", ""):
        for signature in ("", "AAAA", token().split(".")[2]):
            forged = f"{part({'alg': algorithm, 'kid': 'r'})}.{part(CLAIMS)}.{signature}"
            with pytest.raises(SignInRefused):
                verify_id_token(forged, KEYS, EXPECTED, NOW)


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_the_public_key_is_no_secret_of_hmac(algorithm: str) -> None:
    for public in (
        RSA.as_pem(private=False),
        RSA.as_der(private=False),
        json.dumps(RSA.as_dict(private=False)).encode(),
    ):
        # By hand: joserfc makes no such token.
        signed = f"{part({'alg': algorithm, 'kid': 'r'})}.{part(CLAIMS)}"
        digest = hmac.digest(public, signed.encode(), f"sha{algorithm[2:]}")
        with pytest.raises(SignInRefused):
            verify_id_token(f"{signed}.{encoded(digest)}", KEYS, EXPECTED, NOW)


def test_a_changed_part_breaks_the_signature() -> None:
    header, claims, signature = token().split(".")
    other = token(sub="eve").split(".")
    for forged in (
        f"{header}.{other[1]}.{signature}",
        f"{header}.{claims}.{other[2]}",
        f"{header}.{claims}.",
        f"{header}.{claims}",
        f"{header}.{claims}.{signature}.{signature}",
        "",
        ".",
        "..",
        "not a token",
        "é.é.é",
        "a" * 300_000,
    ):
        with pytest.raises(SignInRefused):
            verify_id_token(forged, KEYS, EXPECTED, NOW)


def test_a_key_in_the_token_s_own_header_is_not_trusted() -> None:
    own = RSAKey.generate_key(2048)
    header = {"jwk": own.as_dict(private=False)}
    with pytest.raises(SignInRefused):
        verify_id_token(token(own, {"kid": "r", **_shortened(header)}), KEYS, EXPECTED, NOW)
    with pytest.raises(SignInRefused):
        verify_id_token(
            token(own, {"kid": "r", "jku": "https://evil.example.com"}), KEYS, EXPECTED, NOW
        )


def _shortened(header: dict[str, Any]) -> dict[str, Any]:
    # joserfc refuses a header of more than 512 bytes, which would be another reason.
    return header if len(str(header)) < 400 else {"x5u": "https://evil.example.com"}


def test_a_token_of_an_unknown_key_requires_newer_keys() -> None:
    with pytest.raises(UnknownKey):
        verify_id_token(token(header={"kid": "another"}), KEYS, EXPECTED, NOW)


def test_a_token_without_a_key_id_is_accepted_only_if_there_is_a_single_key() -> None:
    nameless = token(header={"kid": None})
    with pytest.raises(UnknownKey):
        verify_id_token(nameless, KEYS, EXPECTED, NOW)
    single = parse_keys({"keys": [RSA.as_dict(private=False)]})
    assert verify_id_token(nameless, single, EXPECTED, NOW)["sub"] == "ann"


def test_a_key_does_not_verify_by_another_algorithm_than_its_own() -> None:
    pinned = RSAKey.import_key(RSA.as_dict(private=False), {"alg": "PS256"})
    keys = parse_keys({"keys": [pinned.as_dict(private=False)]})
    with pytest.raises((SignInRefused, UnknownKey)):
        verify_id_token(token(), keys, EXPECTED, NOW)


def test_the_access_token_must_be_the_one_that_the_id_token_came_with() -> None:
    expected = Expected(ISSUER, CLIENT, NONCE, "an access token")
    with pytest.raises(SignInRefused):
        verify_id_token(token(at_hash="AAAAAAAAAAAAAAAAAAAAAA"), KEYS, expected, NOW)


def test_claims_that_are_no_object_are_refused() -> None:
    for payload in (b"[]", b'"text"', b"null", b"{", b"\xff", b"[" * 100_000):
        forged = jws.serialize_compact({"alg": "RS256", "kid": "r"}, payload, RSA)
        with pytest.raises(SignInRefused):
            verify_id_token(forged, KEYS, EXPECTED, NOW)


def test_a_key_set_keeps_what_can_verify_and_ignores_the_rest() -> None:
    good = RSA.as_dict(private=False)
    assert [key.kid for key in KEYS] == ["r", "e", "o"]
    others: list[Any] = [
        None,
        7,
        {},
        {"kty": "oct", "kid": "s", "k": "AAAA"},
        {"kty": "AKP", "kid": "q", "pub": "AAAA"},
        {**good, "use": "enc"},
        {**good, "key_ops": ["encrypt"]},
        {**good, "n": "AAAA"},
        {**good, "n": 7},
        {**good, "e": None},
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "EC", "crv": "P-1", "x": "AAAA", "y": "AAAA"},
        {"kty": "OKP", "crv": "Ed25519", "x": "A"},
        RSAKey.generate_key(1024, {"use": "sig"}).as_dict(private=False),
    ]
    assert [key.kid for key in parse_keys({"keys": [*others, good]})] == ["r"]
    bodies: list[dict[str, Any]] = [{}, {"keys": None}, {"keys": {}}, {"keys": []}]
    for body in bodies:
        assert not parse_keys(body)
    # A private key that the provider publishes by mistake stays out of memory.
    (kept,) = parse_keys({"keys": [RSA.as_dict(private=True)]})
    assert not kept.is_private
    assert len(parse_keys({"keys": [good] * 1000}).keys) <= 64
