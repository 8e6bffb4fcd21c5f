"""Tokens that must get nothing: a name, how to make it, and the reason it is refused for."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.support.clusters import (
    EC_KID,
    OTHER_RSA,
    P384,
    RSA,
    RSA_KID,
    b64,
    claims,
    rs256,
    rsa_jwk,
    token,
)

GOOD_NOW = int(time.time())


def signed(header: dict[str, Any] | None = None, **changed: Any) -> Callable[[], str]:
    """A token with changed claims and a changed header, properly signed."""
    return lambda: token(claims(**changed), {"alg": "RS256", "kid": RSA_KID, **(header or {})})


def later(name: str) -> Callable[[], str]:
    """A token with this time in five minutes, from when it is made: a test may run late."""

    def make() -> str:
        changed: dict[str, Any] = {name: int(time.time()) + 300}
        return token(claims(**changed))

    return make


def bound(**changed: Any) -> Callable[[], str]:
    """A token with changed private claims."""
    private = {**claims()["kubernetes.io"], **changed}
    kept = {name: value for name, value in private.items() if value is not None}
    bound_claims: dict[str, Any] = {"kubernetes.io": kept}
    return lambda: token(claims(**bound_claims))


def raw(text: str) -> Callable[[], str]:
    """A token whose claims end in `text`, which `json` would not write."""
    return lambda: token(json.dumps(claims())[:-1].encode() + b", " + text.encode() + b"}")


def hs256_with_the_public_key() -> str:
    pem = RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return token(
        None,
        {"alg": "HS256", "kid": RSA_KID},
        lambda data: hmac.new(pem, data, hashlib.sha256).digest(),
    )


def ps256(data: bytes) -> bytes:
    salt = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
    return RSA.sign(data, salt, hashes.SHA256())


def es384(data: bytes) -> bytes:
    r, s = decode_dss_signature(P384.sign(data, ec.ECDSA(hashes.SHA384())))
    return r.to_bytes(48, "big") + s.to_bytes(48, "big")


def der_es256(data: bytes) -> bytes:
    from tests.support.clusters import EC

    return EC.sign(data, ec.ECDSA(hashes.SHA256()))


def unsigned(algorithm: str) -> Callable[[], str]:
    head = b64(json.dumps({"alg": algorithm, "kid": RSA_KID}).encode())
    return lambda: f"{head}.{b64(json.dumps(claims()).encode())}."


def spaced(where: str) -> Callable[[], str]:
    return lambda: where.format(token())


def padded() -> str:
    head, body, signature = token().split(".")
    return f"{head}==.{body}=.{signature}=="


def loose_bits() -> str:
    """The signature's last character with other unused bits: the same bytes, another spelling."""
    good = token()
    return good[:-1] + chr(ord(good[-1]) + 1)


def kid(name: str) -> Callable[[], str]:
    return lambda: token(None, {"alg": "RS256", "kid": name})


HOSTILE: list[tuple[str, Callable[[], str], str]] = [
    ("another audience", signed(aud=["https://kubernetes.default.svc"]), "audience"),
    ("two audiences", signed(aud=["sluice", "vault"]), "audience"),
    ("the audience twice", signed(aud=["sluice", "sluice"]), "audience"),
    ("no audience", signed(aud=None), "audience"),
    ("an empty list of audiences", signed(aud=[]), "audience"),
    ("an audience in another case", signed(aud=["Sluice"]), "audience"),
    ("an audience with a confusable letter", signed(aud=["sluiсe"]), "audience"),
    ("another issuer", signed(iss="https://evil.example"), "issuer"),
    ("the legacy issuer", signed(iss="kubernetes/serviceaccount"), "issuer"),
    ("no issuer", signed(iss=None), "issuer"),
    ("a list of issuers", signed(iss=["https://kubernetes.default.svc.cluster.local"]), "issuer"),
    ("an issuer with a slash more", signed(iss=claims()["iss"] + "/"), "issuer"),
    ("another cluster's key", lambda: token(sign=lambda d: rs256(d, OTHER_RSA)), "signature"),
    ("another cluster's kid", kid("rsa-of-another-cluster"), "key"),
    ("expired", signed(iat=GOOD_NOW - 700, nbf=GOOD_NOW - 700, exp=GOOD_NOW - 100), "expired"),
    ("not yet valid", later("nbf"), "early"),
    ("issued in the future", later("iat"), "early"),
    ("valid for a day", signed(exp=GOOD_NOW + 86400), "lifetime"),
    ("expired before it was issued", signed(exp=GOOD_NOW - 1), "lifetime"),
    ("no exp", signed(exp=None), "malformed"),
    ("no iat", signed(iat=None), "malformed"),
    ("no nbf", signed(nbf=None), "malformed"),
    ("exp as a text", signed(exp=str(GOOD_NOW + 600)), "malformed"),
    ("exp as a float", signed(exp=GOOD_NOW + 600.5), "malformed"),
    ("exp as true", signed(exp=True), "malformed"),
    ("a negative exp", signed(exp=-1), "malformed"),
    ("a huge exp", signed(exp=1 << 62), "malformed"),
    ("exp beyond 64 bits", signed(exp=10**30), "malformed"),
    ("exp not a number", raw('"x": NaN'), "malformed"),
    ("alg none", unsigned("none"), "algorithm"),
    ("alg None", unsigned("None"), "algorithm"),
    ("RS256 without a signature", unsigned("RS256"), "malformed"),
    ("HS256 with the public key", hs256_with_the_public_key, "algorithm"),
    ("PS256", lambda: token(None, {"alg": "PS256", "kid": RSA_KID}, ps256), "algorithm"),
    ("PS256 that says RS256", lambda: token(sign=ps256), "signature"),
    ("ES384", lambda: token(None, {"alg": "ES384", "kid": EC_KID}, es384), "algorithm"),
    ("RS512", signed({"alg": "RS512"}), "algorithm"),
    ("no alg", signed({"alg": None}), "algorithm"),
    ("alg as a list", signed({"alg": ["RS256"]}), "algorithm"),
    ("RS256 with a P-256 key", signed({"kid": EC_KID}), "algorithm"),
    ("ES256 with an RSA key", lambda: token(None, {"alg": "ES256", "kid": RSA_KID}), "algorithm"),
    (
        "ES256 as DER",
        lambda: token(None, {"alg": "ES256", "kid": EC_KID}, der_es256),
        "signature",
    ),
    (
        "ES256 of zeros",
        lambda: token(None, {"alg": "ES256", "kid": EC_KID}, lambda _: bytes(64)),
        "signature",
    ),
    ("no kid", lambda: token(None, {"alg": "RS256"}), "header"),
    ("an empty kid", kid(""), "header"),
    ("a kid that is a path", kid("../../../../dev/null"), "key"),
    ("a kid that is a URL", kid("http://evil.example/key"), "key"),
    ("a kid that is SQL", kid("' UNION SELECT 'key'; --"), "key"),
    ("a kid that is a command", kid("rsa-1; cat /etc/passwd"), "key"),
    ("a kid with a NUL", kid("rsa-1\0"), "key"),
    ("a kid with a confusable letter", kid("rѕa-1"), "key"),
    ("a long kid", kid("k" * 300), "header"),
    ("a kid that is a number", signed({"kid": 1}), "header"),
    ("jku", signed({"jku": "https://evil.example/jwks"}), "header"),
    ("x5u", signed({"x5u": "https://evil.example/chain"}), "header"),
    ("x5c", signed({"x5c": ["MIIB"]}), "header"),
    (
        "jwk",
        lambda: token(
            None,
            {"alg": "RS256", "kid": RSA_KID, "jwk": rsa_jwk(OTHER_RSA)},
            lambda data: rs256(data, OTHER_RSA),
        ),
        "header",
    ),
    ("crit", signed({"crit": ["exp"], "exp": 1}), "header"),
    ("crit without names", signed({"crit": []}), "header"),
    ("b64 false", signed({"b64": False, "crit": ["b64"]}), "header"),
    ("compressed", signed({"zip": "DEF"}), "header"),
    ("nested", signed({"cty": "JWT"}), "header"),
    ("another type", signed({"typ": "at+jwt"}), "header"),
    ("encrypted", lambda: token() + ".AAAA.BBBB", "malformed"),
    ("a header member twice", lambda: token(None, b'{"alg":"none","alg":"RS256"}'), "malformed"),
    ("a claim twice", raw('"aud": ["sluice"]'), "malformed"),
    (
        "a private claim twice",
        lambda: token(
            json.dumps(claims()).replace('"namespace"', '"namespace": "x", "namespace"').encode()
        ),
        "malformed",
    ),
    ("a subject of another namespace", signed(sub="system:serviceaccount:x:loans"), "subject"),
    ("a subject of another account", signed(sub="system:serviceaccount:lending:root"), "subject"),
    ("a user's subject", signed(sub="kubernetes-admin"), "subject"),
    ("no subject", signed(sub=None), "subject"),
    ("not bound to a pod", bound(pod=None), "binding"),
    ("bound to a secret", bound(pod=None, secret={"name": "s", "uid": "u"}), "binding"),
    ("a pod without uid", bound(pod={"name": "loans-0"}), "binding"),
    ("a pod that is a list", bound(pod=["loans-0"]), "binding"),
    ("no service account", bound(serviceaccount=None), "binding"),
    ("an account without uid", bound(serviceaccount={"name": "loans"}), "binding"),
    ("no private claims", signed(**{"kubernetes.io": None}), "binding"),
    ("another namespace than the subject", bound(namespace="payments"), "subject"),
    ("a namespace with a colon", bound(namespace="lending:loans"), "binding"),
    ("a namespace in capitals", bound(namespace="LENDING"), "binding"),
    ("a namespace with a confusable letter", bound(namespace="lеnding"), "binding"),
    ("a uid with a line break", bound(pod={"name": "loans-0", "uid": "a\nb"}), "binding"),
    ("padded base64", padded, "malformed"),
    ("loose bits", loose_bits, "malformed"),
    ("standard base64", spaced("{}+/"), "malformed"),
    ("a trailing dot", spaced("{}."), "malformed"),
    ("a leading dot", spaced(".{}"), "malformed"),
    ("a space before", spaced(" {}"), "malformed"),
    ("a line break after", spaced("{}\n"), "malformed"),
    ("a byte order mark", spaced("\ufeff{}"), "malformed"),
    ("full-width letters", spaced("{}ａ"), "malformed"),
    ("empty", spaced(""), "malformed"),
    ("two parts", lambda: token().rpartition(".")[0], "malformed"),
    ("huge", lambda: token(claims(x="x" * 9000)), "malformed"),
    ("nested deeply", raw('"x": ' + "[" * 1500 + "]" * 1500), "malformed"),
    ("claims that are a list", lambda: token(b"[]"), "malformed"),
    ("claims that are not UTF-8", lambda: token(b'{"iss": "\xff"}'), "malformed"),
    ("a header that is not JSON", lambda: token(None, b"alg=RS256"), "malformed"),
    ("an API key", lambda: "slc_" + "0" * 49, "malformed"),
]
