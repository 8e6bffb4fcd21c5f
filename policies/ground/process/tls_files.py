"""Makes the API port's TLS context from files, which are read again when they change: certificates
expire in weeks. The port speaks TLS 1.2 or later, and HTTP/1.1 only.

Also TLS to a Kubernetes cluster's API server, whose certificates its installer made.
"""

import logging
import math
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.x509 import load_pem_x509_certificates

from policies.ground.errors import worded

HANDSHAKE_SECONDS = 10.0
_NO_PASSWORD = ""
_log = logging.getLogger("sluice.tls")
# Modification time, size and inode of each file. Links are followed, so swapping a link, as
# Kubernetes does to renew a Secret, changes the stamp.
_Stamp = tuple[tuple[int, int, int], ...]


class UnusableTls(Exception):
    """the TLS files can't be used; `part` is the field of `TlsFiles` at fault"""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of a server's TLS: the certificate with its chain, its key (not encrypted), and
    the authorities of client certificates. With authorities, every client must present a
    certificate (mTLS)."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return a TLS context from the current files. Raises `UnusableTls` if they can't be used
        together."""
        for part, path in self._parts():
            _readable(part, path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # With renegotiation a client could keep us busy without end. Compression leaks secrets
        # (CRIME).
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_alpn_protocols(["http/1.1"])
        try:
            # Without the `password` argument, OpenSSL would ask on the terminal for the password of
            # an encrypted key.
            context.load_cert_chain(self.certificate, self.key, password=_NO_PASSWORD)
        except (ssl.SSLError, ValueError) as error:
            reason = _reason(error)
            raise UnusableTls("certificate", f"does not match its key: {reason}") from error
        if self.client_ca is not None:
            _require_client(context, self.client_ca)
        return context

    def stamp(self) -> _Stamp | None:
        """Return a value that changes with every change of a file, from time, size and inode. None
        while a file is missing."""
        try:
            found = [path.stat() for _, path in self._parts()]
        except OSError:
            # The file may be missing only while it is replaced. None differs from every stamp, so
            # `_renew` is tried once, logs what is missing, and is tried again when it is back.
            return None
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)

    def _parts(self) -> Iterator[tuple[str, Path]]:
        yield "certificate", self.certificate
        yield "key", self.key
        if self.client_ca is not None:
            yield "client_ca", self.client_ca


class RenewingContext(ssl.SSLContext):
    """A TLS context that uses the newest usable files for each handshake."""

    _files: TlsFiles
    _seen: _Stamp | None
    # Each version of the files gets a context of its own. Authorities can only be added to a
    # context, so an authority that was removed from the file would stay trusted.
    _current: ssl.SSLContext

    @classmethod
    def of(cls, files: TlsFiles) -> "RenewingContext":
        """Return a context for the files. Raises `UnusableTls` if they can't be used now."""
        made = cls(ssl.PROTOCOL_TLS_SERVER)
        # Take the stamp before reading the files: the next handshake then notices a change in
        # between.
        made._files, made._seen = files, files.stamp()
        made._current = files.context()
        return made

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Start the TLS of a connection, with the newest usable files. asyncio and uvloop both call
        this at the start of each handshake."""
        # Two or three `stat` calls cost little beside the cryptography of a handshake.
        stamp = self._files.stamp()
        if stamp != self._seen:
            self._seen = stamp
            self._renew()
        return self._current.wrap_bio(*given, **named)

    def _renew(self) -> None:
        """Load the changed files. If they can't be used, log that and go on with the old ones."""
        # The caller has noted the stamp, so a fault is logged once, not at every handshake. A file
        # that is only half written will change again soon, and is then loaded again.
        try:
            self._current = self._files.context()
        except UnusableTls as error:
            setting = f"SLUICE_TLS_{error.part.upper()}"
            _log.error("the current certificates stay in use: %s: %s", setting, error)
        else:
            _log.info("certificate `%s` was reloaded", self._files.certificate)


def _require_client(context: ssl.SSLContext, authorities: Path) -> None:
    try:
        context.load_verify_locations(authorities)
    except ssl.SSLError as error:
        raise UnusableTls("client_ca", f"contains no certificate: {_reason(error)}") from error
    # OpenSSL also loads certificates that are not an authority's. `get_ca_certs` lists authorities
    # only.
    if not context.get_ca_certs():
        raise UnusableTls("client_ca", "contains no certificate of an authority")
    context.verify_mode = ssl.CERT_REQUIRED


def _readable(part: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise UnusableTls(part, f"`{path}` can't be read: {worded(error)}") from error


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return (reason or "it is not PEM").lower().replace("_", " ")


def seconds_left(certificate: Path, now: int) -> float:
    """Return the seconds from `now` (microseconds since 1970 UTC) until the first certificate of
    the chain in this file expires, negative afterwards; NaN if the file can't be read."""
    try:
        chain = load_pem_x509_certificates(certificate.read_bytes())
    except (OSError, ValueError):
        # Half written, or replaced at this moment. The handshake that loads it logs what is wrong.
        return math.nan
    return min(each.not_valid_after_utc.timestamp() for each in chain) - now / 1e6


def cluster_context(cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """Return a client's TLS context that trusts the cluster's authorities, given as a file or as
    PEM text. It checks signatures, validity and names. Raises `OSError` (`ssl.SSLError` is one) if
    there is no certificate."""
    made = ssl.create_default_context(cafile=cafile, cadata=cadata)
    # From 3.13 on, Python also asks for extensions that the certificates of many clusters lack,
    # such as the Authority Key Identifier (kubernetes-client/python#2394: all of EKS).
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return made
