"""A JSON Web Key Set (RFC 7517): the public keys of one cluster, by `kid`. Pure.

Every key fixes its own algorithm: an RSA key verifies RS256, a P-256 key ES256, nothing else.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from policies.ground.errors import Malformed
from policies.ground.json_body import parse_object

RS256, ES256 = "RS256", "ES256"
ALGORITHMS = (RS256, ES256)
MAX_KEYS = 64
MAX_BYTES = 256 * 1024
_RSA_BITS = range(2048, 8192 + 1)
_P256_BYTES = 32
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


class UnusableKeySet(Exception):
    """the key set can't be used"""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies signatures of one algorithm."""

    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey

    @property
    def algorithm(self) -> str:
        return RS256 if isinstance(self.key, rsa.RSAPublicKey) else ES256

    def verifies(self, signature: bytes, message: bytes) -> bool:
        try:
            if isinstance(self.key, rsa.RSAPublicKey):
                self.key.verify(signature, message, padding.PKCS1v15(), SHA256())
            else:
                self.key.verify(_der(signature), message, ec.ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


def parse_key_set(raw: bytes) -> dict[str, PublicKey]:
    """The keys by `kid`. Keys of other kinds and uses are left out. Raises `UnusableKeySet` if the
    set can't be read, or holds no key that could verify a token."""
    try:
        keys = parse_object(raw, None, unique=True).get("keys")
    except Malformed as error:
        raise UnusableKeySet(f"it is not a JSON object: {error.message}") from None
    if not isinstance(keys, list) or len(keys) > MAX_KEYS:
        raise UnusableKeySet(f"`keys` is not a list of at most {MAX_KEYS} keys")
    found: dict[str, PublicKey] = {}
    several = set()
    for jwk in keys:
        kid = jwk.get("kid") if isinstance(jwk, dict) else None
        if not isinstance(kid, str) or not kid or not _verifies_signatures(jwk):
            continue
        key = _public_key(jwk)
        if key is not None:
            several.update({kid} & found.keys())
            found[kid] = key
    # Which of two keys a `kid` means would depend on the order in which they are listed.
    usable = {kid: key for kid, key in found.items() if kid not in several}
    if not usable:
        raise UnusableKeySet("it holds no RSA key of 2048 bits or more and no P-256 key")
    return usable


def _verifies_signatures(jwk: Mapping[str, Any]) -> bool:
    """Whether the key is public and meant for signatures. A set with a private key in it was
    published by mistake: that key can't be trusted any more."""
    if not _PRIVATE.isdisjoint(jwk):
        return False
    operations = jwk.get("key_ops")
    may_verify = operations is None or (isinstance(operations, list) and "verify" in operations)
    return jwk.get("use", "sig") == "sig" and may_verify


def _public_key(jwk: Mapping[str, Any]) -> PublicKey | None:
    try:
        if jwk.get("kty") == "RSA" and jwk.get("alg", RS256) == RS256:
            modulus, exponent = _number(jwk["n"]), _number(jwk["e"])
            if modulus.bit_length() not in _RSA_BITS:
                return None
            return PublicKey(rsa.RSAPublicNumbers(exponent, modulus).public_key())
        if jwk.get("kty") == "EC" and jwk.get("crv") == "P-256" and jwk.get("alg", ES256) == ES256:
            point = ec.EllipticCurvePublicNumbers(
                _number(jwk["x"]), _number(jwk["y"]), ec.SECP256R1()
            )
            return PublicKey(point.public_key())
    except (KeyError, TypeError, ValueError):
        # A damaged key verifies nothing; the others of the set stay in use.
        return None
    return None


def _number(text: object) -> int:
    if not isinstance(text, str) or not text.isascii():
        raise TypeError("not base64url")
    digits = text.rstrip("=")
    return int.from_bytes(base64.urlsafe_b64decode(digits + "=" * (-len(digits) % 4)))


def _der(signature: bytes) -> bytes:
    """An ECDSA signature of a token, R and S of 32 bytes each (RFC 7518, section 3.4), as DER."""
    if len(signature) != 2 * _P256_BYTES:
        raise InvalidSignature
    r, s = signature[:_P256_BYTES], signature[_P256_BYTES:]
    return encode_dss_signature(int.from_bytes(r), int.from_bytes(s))
