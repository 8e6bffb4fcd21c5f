"""Makes the TLS context of the HTTPS port, and loads the certificate that cert-manager or an
operator puts into files.

The certificate can be replaced at any time: each handshake uses the newest, and connections that
are open keep theirs.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
import ssl
from pathlib import Path
from typing import Any

from cryptography import x509

from deploy.kubernetes.admission.certificates.authority import KeyPair
from deploy.kubernetes.admission.metrics import ControllerFault, WebhookMetrics
from policies.ground.process.tls_files import TlsFiles, UnusableTls


class ServingContext(ssl.SSLContext):
    """A context without a certificate until `use` is called."""

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
        """Wrap a connection with the served certificate. asyncio and uvloop both call this at the
        start of each handshake."""
        if self._current is None:
            return super().wrap_bio(*given, **named)
        return self._current.wrap_bio(*given, **named)

    def use(self, pair: KeyPair) -> bool:
        """Serve `pair` from the next handshake on; return False if it is served already. Raises
        `UnusableTls`, and then the old pair stays in use."""
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
        """The served certificate and its key; None until there is a certificate."""
        return self._pair

    async def arrived(self) -> None:
        """Wait until there is a certificate to serve."""
        await self._arrived.wait()

    def seconds_left(self, now: dt.datetime) -> float | None:
        """Return the seconds until the served certificate expires; negative afterwards; None
        without one."""
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
    """`tls.crt` and `tls.key` of a directory, as a Secret is mounted."""

    def __init__(self, directory: Path, serving: ServingContext, metrics: WebhookMetrics) -> None:
        self._directory = directory
        self._serving = serving
        self._metrics = metrics
        self._complaint = ""

    async def run(self) -> None:
        """Read the files now and again, forever."""
        while True:
            self.load()
            await asyncio.sleep(POLL_SECONDS)

    def load(self) -> None:
        """Serve the files' current contents. If they can't be used, the served certificate stays in
        use."""
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
