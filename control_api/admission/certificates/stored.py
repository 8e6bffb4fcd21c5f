"""What the Secret holds, parsed: the served certificate, the bundle of authorities, and the key of
the newest. What can't be used counts as absent, so that a damaged Secret heals.

Pure: knows no API server and no clock.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from control_api.admission.certificates.authority import KeyPair

LEAF, LEAF_KEY, BUNDLE, AUTHORITY_KEY = "tls.crt", "tls.key", "ca.crt", "ca.key"
MAX_AUTHORITIES = 8
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True)
class Stored:
    """The usable contents. `bundle` has the newest authority first, the only one that signs."""

    leaf: KeyPair | None = None
    bundle: tuple[x509.Certificate, ...] = ()
    authority_key: bytes | None = None

    def __repr__(self) -> str:
        return f"Stored(leaf={self.leaf!r}, bundle=({len(self.bundle)}))"

    @classmethod
    def from_secret(cls, data: Mapping[str, str]) -> Stored:
        """Parses the `data` of a Secret, in base64."""
        raw = {name: _decoded(data.get(name)) for name in (LEAF, LEAF_KEY, BUNDLE, AUTHORITY_KEY)}
        bundle = _certificates(raw[BUNDLE])[:MAX_AUTHORITIES]
        key = raw[AUTHORITY_KEY]
        owns = bool(bundle) and _owns(bundle[0], key)
        leaf = KeyPair(raw[LEAF], raw[LEAF_KEY])
        chain = _certificates(leaf.certificate)
        usable = bool(chain) and _owns(chain[0], leaf.key)
        return cls(leaf if usable else None, bundle, key if owns else None)

    def to_secret(self) -> dict[str, str]:
        """The `data` of the Secret, in base64."""
        leaf = self.leaf or KeyPair(b"", b"")
        raw = {
            LEAF: leaf.certificate,
            LEAF_KEY: leaf.key,
            BUNDLE: self.bundle_pem,
            AUTHORITY_KEY: self.authority_key or b"",
        }
        return {name: base64.b64encode(value).decode() for name, value in raw.items()}

    @property
    def bundle_pem(self) -> bytes:
        return b"".join(each.public_bytes(_PEM) for each in self.bundle)

    @property
    def authority(self) -> KeyPair | None:
        """The authority that signs; None if its key is lost."""
        if self.authority_key is None or not self.bundle:
            return None
        return KeyPair(self.bundle[0].public_bytes(_PEM), self.authority_key)

    @property
    def served(self) -> x509.Certificate | None:
        """The certificate of the leaf."""
        return None if self.leaf is None else _certificates(self.leaf.certificate)[0]

    def issuer(self) -> x509.Certificate | None:
        """The authority of the bundle that signed the leaf."""
        leaf = self.served
        return next((each for each in self.bundle if leaf is not None and signed(leaf, each)), None)


def signed(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def valid(certificate: x509.Certificate, now: dt.datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def names_of(certificate: x509.Certificate) -> frozenset[str]:
    """The DNS names that the certificate is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return frozenset()
    return frozenset(found.get_values_for_type(x509.DNSName))


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except ValueError:
        return b""


def _certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(pem)) if pem else ()
    except ValueError:
        return ()


def _owns(certificate: x509.Certificate, key: bytes) -> bool:
    """Whether `key` is the certificate's, and of the kind that we make."""
    try:
        loaded = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError):
        return False
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        return False
    return loaded.public_key() == certificate.public_key()
