"""Serves the certificate that cert-manager or an operator puts into files, and reads it again when
it changes."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from control_api.admission.certificates.authority import KeyPair
from control_api.admission.certificates.serving import ServingContext
from control_api.admission.metrics import ControllerFault, WebhookMetrics
from control_api.security.tls_files import UnusableTls

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
        """Serve the files' current contents. If they can't be used, what is served stays."""
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
