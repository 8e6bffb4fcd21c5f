"""The metadata: what it names, and that another library verifies its signature."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from joserfc import jwt
from joserfc.jwk import KeySet

from sidecar.api.route import ApiRequest
from sidecar.authzen.signing_key import SigningKey
from sidecar.authzen.wire import metadata_routes

URL = "https://pdp.example.com"
NOW = 1_800_000_000_123_456
KEYS: dict[str, Any] = {
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
}
ENDPOINTS = {
    "access_evaluation_endpoint": "/access/v1/evaluation",
    "access_evaluations_endpoint": "/access/v1/evaluations",
    "search_subject_endpoint": "/access/v1/search/subject",
    "search_resource_endpoint": "/access/v1/search/resource",
    "search_action_endpoint": "/access/v1/search/action",
}


def pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))


def loaded(tmp_path: Path, content: bytes) -> SigningKey:
    path = tmp_path / "authzen.pem"
    path.write_bytes(content)
    return SigningKey.load(path)


async def documents(url: str, key: SigningKey | None) -> dict[str, Any]:
    found = {}
    for path, route in metadata_routes(url, key, NOW).items():
        assert (route.name, route.methods, route.scopes) == ("metadata", ("GET", "HEAD"), None)
        reply = await route.handle(ApiRequest(None, None), b"")
        assert reply.media == b"application/json"
        assert reply.cache == b"max-age=300"
        found[path] = orjson.loads(reply.body)
    return found


async def test_without_a_key_the_metadata_is_unsigned_and_names_no_key_set() -> None:
    assert await documents(URL, None) == {
        "/.well-known/authzen-configuration": {
            "policy_decision_point": URL,
            **{name: URL + path for name, path in ENDPOINTS.items()},
        }
    }


async def test_the_path_of_the_url_is_placed_as_the_specification_demands() -> None:
    url = "https://pdp.example.com:8443/eu/t1"
    found = await documents(url, None)
    assert list(found) == ["/.well-known/authzen-configuration/eu/t1"]
    members = found["/.well-known/authzen-configuration/eu/t1"]
    assert members["access_evaluation_endpoint"] == f"{url}/access/v1/evaluation"


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("algorithm", KEYS)
async def test_another_library_verifies_the_signed_metadata_by_the_key_set(
    tmp_path: Path, algorithm: str
) -> None:
    found = await documents(URL, loaded(tmp_path, pem(KEYS[algorithm])))
    members = found["/.well-known/authzen-configuration"]
    key_set = found["/.well-known/jwks.json"]
    signed = members.pop("signed_metadata")
    verified = jwt.decode(signed, KeySet.import_key_set(key_set), algorithms=[algorithm])
    [jwk] = key_set["keys"]
    assert verified.header == {"alg": algorithm, "typ": "JWT", "kid": jwk["kid"]}
    assert verified.claims == {**members, "iss": URL, "iat": 1_800_000_000}
    assert members["jwks_uri"] == f"{URL}/.well-known/jwks.json"
    assert "d" not in jwk, "the private half"


@pytest.mark.parametrize("algorithm", KEYS)
async def test_the_key_id_is_the_thumbprint_of_rfc_7638(tmp_path: Path, algorithm: str) -> None:
    [jwk] = (await documents(URL, loaded(tmp_path, pem(KEYS[algorithm]))))[
        "/.well-known/jwks.json"
    ]["keys"]
    required = {name: jwk[name] for name in ("crv", "kty", "x", "y") if name in jwk}
    text = "{" + ",".join(f'"{name}":"{required[name]}"' for name in sorted(required)) + "}"
    digest = hashlib.sha256(text.encode()).digest()
    assert jwk["kid"] == urlsafe_b64encode(digest).decode().rstrip("=")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"slc_not_a_key",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        pem(rsa.generate_private_key(65537, 2048)),
        pem(ed448.Ed448PrivateKey.generate()),
        pem(ec.generate_private_key(ec.SECP384R1())),
        pem(KEYS["ES256"], PrivateFormat.TraditionalOpenSSL),
        KEYS["ES256"].private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
        ),
    ],
    ids=["empty", "text", "damaged", "rsa", "ed448", "p384", "not PKCS 8", "encrypted"],
)
def test_an_unusable_key_file_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ValueError, match=r"authzen\.pem.*expected a private key") as refused:
        loaded(tmp_path, content)
    for line in content.decode().splitlines()[1:-1]:
        assert line not in str(refused.value)


def test_a_key_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can't be read: ENOENT"):
        SigningKey.load(tmp_path / "absent.pem")
