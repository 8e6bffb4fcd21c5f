"""TLS of the API's port, by files that are read again when they are written anew: certificates run
out in weeks, and a service runs for months. TLS 1.2 or later, HTTP/1.1 only.

Knows files and contexts; opens no connection.
"""

import logging
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HANDSHAKE_SECONDS = 10.0
_NO_PASSWORD = ""
_log = logging.getLogger("sluice.tls")
_Stamp = tuple[tuple[int, int, int], ...]
"""Time of change, size and inode of each file. They are those of what a link leads to, so the swap
of a link, by which Kubernetes renews a Secret, changes them."""


class UnusableTls(Exception):
    """certificates that can't be served; `part` is the field of `TlsFiles` that is at fault"""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: our certificate with the chain to its authority, its key (not encrypted), and the
    authorities of clients, each of which must then show a certificate."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """A context of the files as they are; `UnusableTls` where they can't be used together."""
        for part, path in self._parts():
            _readable(part, path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_alpn_protocols(["http/1.1"])
        try:
            # Without a password given, an encrypted key would be asked for on the terminal.
            context.load_cert_chain(self.certificate, self.key, password=_NO_PASSWORD)
        except (ssl.SSLError, ValueError) as error:
            raise UnusableTls("certificate", f"does not go with its key: {_said(error)}") from error
        if self.client_ca is not None:
            _require_client(context, self.client_ca)
        return context

    def stamp(self) -> _Stamp:
        """`OSError` where a file is not there."""
        found = (path.stat() for _, path in self._parts())
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)

    def _parts(self) -> Iterator[tuple[str, Path]]:
        yield "certificate", self.certificate
        yield "key", self.key
        if self.client_ca is not None:
            yield "client_ca", self.client_ca


class RenewingContext(ssl.SSLContext):
    """Each handshake is made by a context of the newest files that can be used together.

    A context of its own for each set of files: the authorities of an existing context can only be
    added to, so one that was taken out of the file would go on being believed.
    """

    _files: TlsFiles
    _seen: _Stamp | None
    _current: ssl.SSLContext

    @classmethod
    def of(cls, files: TlsFiles) -> "RenewingContext":
        """`UnusableTls` where the files can't be used."""
        made = cls(ssl.PROTOCOL_TLS_SERVER)
        # Stamped before it is read: what is written in between is read at the next handshake.
        made._files, made._seen = files, _stamp_of(files)
        made._current = files.context()
        return made

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        """Both event loops begin each handshake here."""
        stamp = _stamp_of(self._files)
        if stamp != self._seen:
            self._seen = stamp
            self._renew()
        return self._current.wrap_bio(*given, **named)

    def _renew(self) -> None:
        """Told once for each state of the files; a half-written one is followed by another."""
        try:
            self._current = self._files.context()
        except UnusableTls as error:
            _log.error("the certificates in use stay: %s %s", _name(error.part), error)
        else:
            _log.info("the certificate `%s` was read again", self._files.certificate)


def _require_client(context: ssl.SSLContext, authorities: Path) -> None:
    try:
        context.load_verify_locations(authorities)
    except ssl.SSLError as error:
        raise UnusableTls("client_ca", f"holds no certificate: {_said(error)}") from error
    if not context.get_ca_certs():
        raise UnusableTls("client_ca", "holds no certificate of an authority")
    context.verify_mode = ssl.CERT_REQUIRED


def _readable(part: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise UnusableTls(part, f"`{path}` can't be read: {reason}") from error


def _stamp_of(files: TlsFiles) -> _Stamp | None:
    try:
        return files.stamp()
    except OSError:
        return None


def _name(part: str) -> str:
    return f"SLUICE_TLS_{part.upper()}:"


def _said(error: Exception) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return (reason or "it is not PEM").lower().replace("_", " ")
