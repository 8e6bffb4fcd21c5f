"""Creates a certificate authority, and the server certificates that it signs: EC P-256, X.509 v3.
Knows nothing of Secrets, and reads no clock."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE = dt.timedelta(days=730)
BACKDATED = dt.timedelta(hours=1)
"""A certificate's validity begins this long before it is created: the API server's clock may be
behind this machine's."""
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM. `repr` shows neither, so that no traceback
    does."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair()"


def make_authority(now: dt.datetime) -> KeyPair:
    """Create a certificate authority that may sign only server certificates, no further
    authorities. `now` is the current time."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # Each has a name of its own: two authorities in one bundle are told apart by their names.
    subject = _name(f"sluice-webhook authority {serial:x}"[:64])
    made = (
        _builder(subject, subject, key.public_key(), serial)
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(made.public_bytes(_PEM), _encoded(key))


def issue(
    authority: KeyPair, names: tuple[str, ...], now: dt.datetime, life: dt.timedelta
) -> KeyPair:
    """Create a server certificate for the DNS names `names`, valid for `life` and signed by
    `authority`."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        # A common name has at most 64 characters; the names that count are below.
        _builder(_name("sluice-webhook"), issuer.subject, key.public_key())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    return KeyPair(made.public_bytes(_PEM), _encoded(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    serial: int | None = None,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(serial or x509.random_serial_number())
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _encoded(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
