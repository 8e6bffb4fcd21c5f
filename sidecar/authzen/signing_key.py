"""The key that signs the metadata. It is read from a PEM file, gives its public half as a JSON Web
Key, and signs tokens in the compact form of JSON Web Signature (RFC 7515). Knows no metadata.

Import this module only if there is a key: the library takes megabytes, and most sidecars sign
nothing.
"""

import hashlib
from pathlib import Path
from typing import Any

import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from policies.ground.errors import worded
from sidecar.authzen import wire

_MAX_BYTES = 16 * 1024  # a wrong path may name a device or a file of gigabytes
_P256_BYTES = 32

PrivateKey = Ed25519PrivateKey | EllipticCurvePrivateKey


class SigningKey:
    """A private key for signatures, Ed25519 or P-256. `jwk` is its public half, with its RFC 7638
    thumbprint as `kid`."""

    def __init__(self, private: PrivateKey) -> None:
        self._private = private
        public = _public_members(private)
        # RFC 7638: the required members alone, in order of their names, without white space.
        thumbprint = hashlib.sha256(orjson.dumps(public, option=orjson.OPT_SORT_KEYS)).digest()
        self._kid = wire.base64url_encode(thumbprint)
        self._alg = "EdDSA" if isinstance(private, Ed25519PrivateKey) else "ES256"
        self.jwk = {**public, "use": "sig", "alg": self._alg, "kid": self._kid}

    @classmethod
    def load(cls, path: Path) -> "SigningKey":
        """Read the key from a PEM file (PKCS 8, not encrypted). Raises `ValueError` with a message
        that never shows the file's content."""
        try:
            with path.open("rb") as file:
                pem = file.read(_MAX_BYTES)
        except OSError as error:
            raise ValueError(f"`{path}` can't be read: {worded(error)}") from error
        expected = "expected a private key, Ed25519 or P-256, as unencrypted PEM (PKCS 8)"
        if b"-----BEGIN PRIVATE KEY-----" not in pem:
            raise ValueError(f"`{path}` holds no such key: {expected}")
        try:
            private = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            # The cause could show bytes of the key.
            raise ValueError(f"`{path}` can't be parsed: {expected}") from None
        if isinstance(private, Ed25519PrivateKey) or (
            isinstance(private, EllipticCurvePrivateKey) and isinstance(private.curve, SECP256R1)
        ):
            return cls(private)
        raise ValueError(f"`{path}` holds a key of another kind: {expected}")

    def sign(self, claims: dict[str, Any]) -> str:
        """Return a JSON Web Token with these claims."""
        header = {"alg": self._alg, "typ": "JWT", "kid": self._kid}
        parts = (wire.base64url_encode(orjson.dumps(part)) for part in (header, claims))
        signed = ".".join(parts)
        return f"{signed}.{wire.base64url_encode(self._signature(signed.encode()))}"

    def _signature(self, message: bytes) -> bytes:
        if isinstance(self._private, Ed25519PrivateKey):
            return self._private.sign(message)
        # RFC 7518, section 3.4: the two numbers side by side, not the DER that the library makes.
        r, s = decode_dss_signature(self._private.sign(message, ECDSA(SHA256())))
        return r.to_bytes(_P256_BYTES, "big") + s.to_bytes(_P256_BYTES, "big")


def _public_members(private: PrivateKey) -> dict[str, str]:
    """Return the members that RFC 8037 and RFC 7518 require of a public key as a JSON Web Key."""
    if isinstance(private, Ed25519PrivateKey):
        return {
            "crv": "Ed25519",
            "kty": "OKP",
            "x": wire.base64url_encode(private.public_key().public_bytes_raw()),
        }
    point = private.public_key().public_numbers()
    return {
        "crv": "P-256",
        "kty": "EC",
        "x": wire.base64url_encode(point.x.to_bytes(_P256_BYTES, "big")),
        "y": wire.base64url_encode(point.y.to_bytes(_P256_BYTES, "big")),
    }
