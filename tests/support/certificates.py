"""A certificate authority for one test run, and certificates that it signs."""

import atexit
import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sidecar.settings.model import Pair

_NOW = dt.datetime.now(dt.UTC)
_PEM = serialization.Encoding.PEM
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass
class Authority:
    """Signs; its own certificate is at `path`."""

    folder: Path
    name: str
    _key: ec.EllipticCurvePrivateKey
    _certificate: x509.Certificate

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}.pem"

    def issue(self, *names: str, password: bytes | None = None) -> Pair:
        """Return a certificate for these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = (
            _builder(names[0], self._certificate.subject, key)
            .add_extension(x509.SubjectAlternativeName([_name(each) for each in names]), False)
            .add_extension(_names_issuer(self._key), False)
            .sign(self._key, hashes.SHA256())
        )
        stem = self.folder / f"{self.name}-{made.serial_number:x}"
        pair = Pair(stem.with_suffix(".crt"), stem.with_suffix(".key"))
        pair.certificate.write_bytes(made.public_bytes(_PEM))
        cipher: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            cipher = serialization.BestAvailableEncryption(password)
        form = serialization.PrivateFormat.PKCS8
        pair.key.write_bytes(key.private_bytes(_PEM, form, cipher))
        return pair

    def client(self, pair: Pair | None = None) -> ssl.SSLContext:
        """Return a client's context that trusts this authority, and shows a certificate. As strict
        as Python 3.13."""
        context = ssl.create_default_context(cafile=self.path)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context

    def server(self, *names: str, asks: bool = False) -> ssl.SSLContext:
        """Return a server's context for these names; with `asks`, it asks for a certificate of this
        authority."""
        pair = self.issue(*names)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        if asks:
            context.load_verify_locations(self.path)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@cache
def authority(name: str = "authority") -> Authority:
    """Return an authority of this process for each name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        _builder(name, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(_SIGNS_CERTIFICATES, True)
        .sign(key, hashes.SHA256())
    )
    folder = Path(mkdtemp(prefix="sluice-tls-"))
    atexit.register(rmtree, folder, ignore_errors=True)
    authority = Authority(folder, name, key, made)
    authority.path.write_bytes(made.public_bytes(_PEM))
    return authority


def _names_issuer(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOW - dt.timedelta(days=1))
        .not_valid_after(_NOW + dt.timedelta(days=2))
    )


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
