"""Parses the Secret that holds the webhook's certificate, and plans the next step of creating and
renewing it. Also serves the certificate, from this Secret or from files.

A part of the Secret that can't be used counts as absent, so that a damaged Secret heals.

Each step leaves a state in which every review succeeds, even if a replica stops halfway. "Leaf" is
the server certificate, "bundle" the list of authorities that the API server trusts:

    new authority   The Secret gets it in front of the bundle. The old leaf stays in use.
    publish         The webhook configuration trusts the whole bundle, old and new.
    new leaf        Signed by the newest authority, once that has been published for a while.
    retire          An old authority goes when no leaf that it signed can be valid any more.

A crash between two steps loses nothing: the next round, of this replica or another, sees the same
Secret and configuration and plans the same step.

A TLS handshake uses the newest certificate, and connections that are open keep theirs.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from deploy.kubernetes.admission.certificates.authority import (
    BACKDATED,
    KeyPair,
    issue,
    make_authority,
)
from deploy.kubernetes.admission.metrics import ControllerFault, WebhookMetrics
from deploy.kubernetes.admission.settings import MAX_LEAF_HOURS
from policies.ground.process.tls_files import TlsFiles, UnusableTls


class ServingContext(ssl.SSLContext):
    """The TLS context of the HTTPS port. It has no certificate until `use` is called, and its
    certificate can be replaced at any time."""

    _current: ssl.SSLContext | None = None
    _pair: KeyPair | None = None
    _certificate: x509.Certificate | None = None
    _arrived: asyncio.Event

    @classmethod
    def empty(cls) -> ServingContext:
        made = cls(ssl.PROTOCOL_TLS_SERVER)
        made._arrived = asyncio.Event()
        return made

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Wrap a connection with the certificate served now. asyncio and uvloop both call this at
        the start of each handshake."""
        if self._current is None:
            return super().wrap_bio(*given, **named)
        return self._current.wrap_bio(*given, **named)

    def use(self, pair: KeyPair) -> bool:
        """Serve `pair` from the next handshake on. Returns False if it is served already. Raises
        `UnusableTls`; the old certificate then stays in use."""
        if pair == self._pair:
            return False
        context = _context(pair)
        try:
            certificate = x509.load_pem_x509_certificate(pair.certificate)
        except ValueError as error:
            raise UnusableTls("certificate", "is not PEM") from error
        self._current, self._pair, self._certificate = context, pair, certificate
        self._arrived.set()
        return True

    @property
    def pair(self) -> KeyPair | None:
        """The served certificate and its private key; None until there is one."""
        return self._pair

    async def arrived(self) -> None:
        """Wait until there is a certificate to serve."""
        await self._arrived.wait()

    def seconds_left(self, now: dt.datetime) -> float | None:
        """Return the seconds until the served certificate expires, a negative number if it has
        expired; None if there is no certificate."""
        if self._certificate is None:
            return None
        return (self._certificate.not_valid_after_utc - now).total_seconds()

    def valid(self, now: dt.datetime) -> bool:
        found = self._certificate
        return found is not None and (found.not_valid_before_utc <= now < found.not_valid_after_utc)


def _context(pair: KeyPair) -> ssl.SSLContext:
    # OpenSSL loads keys from files only. This one is in memory, has no name, and is gone when it is
    # closed: the key never reaches a disk, and the root file system may be read-only.
    handle = os.memfd_create("pair", os.MFD_CLOEXEC)
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.write(pair.key + b"\n" + pair.certificate)
        path = Path(f"/proc/self/fd/{handle}")
        return TlsFiles(path, path).context()
    finally:
        os.close(handle)


POLL_SECONDS = 10.0
MAX_FILE = 256 * 1024
_log = logging.getLogger("sluice.certificates")


class CertificateFiles:
    """Serves the certificate from the files `tls.crt` and `tls.key` of a directory, as Kubernetes
    mounts a Secret of type TLS."""

    def __init__(self, directory: Path, serving: ServingContext, metrics: WebhookMetrics) -> None:
        self._directory = directory
        self._serving = serving
        self._metrics = metrics
        self._complaint = ""

    async def run(self) -> None:
        """Read the files again every `POLL_SECONDS`, forever."""
        while True:
            self.load()
            await asyncio.sleep(POLL_SECONDS)

    def load(self) -> None:
        """Serve the files' current certificate. If it can't be used, the old one stays in use."""
        # Kubernetes replaces both files at once, by one link. Another tool may not: then key and
        # certificate don't match until the next look.
        try:
            pair = KeyPair(self._read("tls.crt"), self._read("tls.key"))
            changed = self._serving.use(pair)
        except (OSError, UnusableTls) as error:
            self._metrics.controller_faults.labels(ControllerFault.unusable).inc()
            # Once for each complaint, not at every look.
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.error("certificate in `%s` can't be used: %s", self._directory, error)
            return
        self._complaint = ""
        if changed:
            _log.info("certificate in `%s` is served", self._directory)

    def _read(self, name: str) -> bytes:
        with (self._directory / name).open("rb") as file:
            return file.read(MAX_FILE)


LEAF, LEAF_KEY, BUNDLE, AUTHORITY_KEY = "tls.crt", "tls.key", "ca.crt", "ca.key"
MAX_AUTHORITIES = 8
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True)
class Stored:
    """The usable contents of the Secret. `leaf` is the server certificate with its key. `bundle`
    are the authorities, the newest first; only that one signs, with `authority_key`."""

    leaf: KeyPair | None = None
    bundle: tuple[x509.Certificate, ...] = ()
    authority_key: bytes | None = None

    def __repr__(self) -> str:
        return f"Stored(leaf={self.leaf!r}, bundle=({len(self.bundle)}))"

    @classmethod
    def from_secret(cls, data: Mapping[str, str]) -> Stored:
        """Parse the field `data` of a Secret, whose values are base64. Parts that can't be used are
        left out."""
        raw = {name: _decoded(data.get(name)) for name in (LEAF, LEAF_KEY, BUNDLE, AUTHORITY_KEY)}
        bundle = _certificates(raw[BUNDLE])[:MAX_AUTHORITIES]
        key = raw[AUTHORITY_KEY]
        owns = bool(bundle) and _owns(bundle[0], key)
        leaf = KeyPair(raw[LEAF], raw[LEAF_KEY])
        chain = _certificates(leaf.certificate)
        usable = bool(chain) and _owns(chain[0], leaf.key)
        return cls(leaf if usable else None, bundle, key if owns else None)

    def to_secret(self) -> dict[str, str]:
        """Return the contents as the field `data` of a Secret, with base64 values."""
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
        """The newest authority with its key, which signs new certificates; None if the key is
        lost."""
        if self.authority_key is None or not self.bundle:
            return None
        return KeyPair(self.bundle[0].public_bytes(_PEM), self.authority_key)

    @property
    def served(self) -> x509.Certificate | None:
        """The server certificate, parsed; None if there is none."""
        return None if self.leaf is None else _certificates(self.leaf.certificate)[0]

    def issuer(self) -> x509.Certificate | None:
        """Return the authority of the bundle that signed the server certificate; None if none
        did."""
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
    """Return the DNS names that a certificate is valid for."""
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
    """Return whether `key` is the private key of the certificate, and an EC key as this module
    creates them."""
    try:
        loaded = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError):
        return False
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        return False
    return loaded.public_key() == certificate.public_key()


LONGEST_LEAF = dt.timedelta(hours=MAX_LEAF_HOURS)
SETTLE_SECONDS = 30.0
"""The seconds for which a new authority must have been published before a certificate signed by it
is served: every API server learns of the change by a watch of its own, with some delay."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The properties that the server certificate must have: its DNS names, and how long it is
    valid."""

    names: tuple[str, ...]
    life: dt.timedelta


@dataclass(frozen=True, slots=True)
class Published:
    """Tells whether all entries of the webhook configuration trust exactly the Secret's bundle
    (`matches`), and for how many seconds this replica has seen the newest authority there
    (`settled`; None if it is not there)."""

    matches: bool
    settled: float | None


@dataclass(frozen=True, slots=True)
class WriteSecret:
    """The step that replaces the contents of the Secret, with the reason for the log."""

    stored: Stored
    reason: str


@dataclass(frozen=True, slots=True)
class Publish:
    """The step that makes the webhook configuration trust the Secret's bundle."""

    bundle: bytes


Step = WriteSecret | Publish


def next_step(
    stored: Stored, published: Published | None, wanted: Wanted, now: dt.datetime
) -> Step | None:
    """Return the next step to take; None if there is nothing to do. `published` is None while the
    webhook configuration does not exist."""
    authority = stored.authority
    if authority is None or not _may_sign(stored.bundle[0], now):
        return _new_authority(stored, wanted, now)
    if not _works(stored, wanted, now):
        # Every review fails already, so there is nothing to wait for.
        leaf = issue(authority, wanted.names, now, wanted.life)
        return WriteSecret(replace(stored, leaf=leaf), "the certificate can't be used")
    if (kept := _kept(stored, now)) != stored.bundle:
        return WriteSecret(replace(stored, bundle=kept), "an old authority is retired")
    if published is not None and not published.matches:
        return Publish(stored.bundle_pem)
    leaf_certificate = stored.served
    assert leaf_certificate is not None
    ours = signed(leaf_certificate, stored.bundle[0])
    trusted = published is not None and (published.settled or 0.0) >= SETTLE_SECONDS
    # A leaf of the same authority is trusted wherever the old one is, so it needs no waiting.
    if _due(leaf_certificate, wanted, now) if ours else trusted:
        leaf = issue(authority, wanted.names, now, wanted.life)
        return WriteSecret(replace(stored, leaf=leaf), "the certificate is renewed")
    return None


def _new_authority(stored: Stored, wanted: Wanted, now: dt.datetime) -> WriteSecret:
    made = make_authority(now)
    old = tuple(each for each in stored.bundle if valid(each, now))
    bundle = (x509.load_pem_x509_certificate(made.certificate), *old)
    staged = Stored(stored.leaf, bundle, made.key)
    if _works(staged, wanted, now):
        # The leaf of the old authority stays in use until the new one is trusted everywhere.
        return WriteSecret(staged, "a new authority is introduced")
    leaf = issue(made, wanted.names, now, wanted.life)
    return WriteSecret(replace(staged, leaf=leaf), "the first certificate is made")


def _may_sign(authority: x509.Certificate, now: dt.datetime) -> bool:
    """Return whether the authority may still sign a new certificate: it must stay valid for longer
    than twice the longest life of a certificate."""
    return valid(authority, now) and now + 2 * LONGEST_LEAF < authority.not_valid_after_utc


def _works(stored: Stored, wanted: Wanted, now: dt.datetime) -> bool:
    """Return whether the server certificate can be served: it is valid, has the wanted names, and
    was signed by a valid authority of the bundle."""
    leaf, issuer = stored.served, stored.issuer()
    return (
        leaf is not None
        and issuer is not None
        and valid(leaf, now)
        and valid(issuer, now)
        and names_of(leaf) >= frozenset(wanted.names)
    )


def _due(leaf: x509.Certificate, wanted: Wanted, now: dt.datetime) -> bool:
    """Return whether the certificate should be renewed: less than half of the wanted life is left,
    or more than all of it. The latter happens after the setting was lowered or the clock was put
    back."""
    left = leaf.not_valid_after_utc - now
    return left < wanted.life / 2 or left > wanted.life + BACKDATED


def _kept(stored: Stored, now: dt.datetime) -> tuple[x509.Certificate, ...]:
    """Return the bundle without the authorities that can't have signed a certificate which is still
    valid.

    INVARIANT: only the newest authority signs. An older one signed its last certificate before the
    next authority was made, and no certificate lives longer than `LONGEST_LEAF`. So the
    certificates alone tell when no replica can still be serving one that an old authority signed.
    No replica has to report what it serves, not even one that has lost touch with the API server.
    """
    newest, *older = stored.bundle
    made = newest.not_valid_before_utc + BACKDATED
    if now > made + LONGEST_LEAF + BACKDATED:
        # The leaf in the Secret stays trusted in any case: its replacement may be delayed.
        issuer = stored.issuer()
        return (newest, *(each for each in older if each == issuer))
    return stored.bundle
