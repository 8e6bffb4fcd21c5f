"""Decides about pods by the template file, which holds the parts to inject, and reads the file
again when it changes. The chart's admission policies change together with that file, and would
refuse pods that were injected by an older version of it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from deploy.kubernetes.admission import template
from deploy.kubernetes.admission.injection import review as decide
from deploy.kubernetes.admission.review import Review
from deploy.kubernetes.admission.server import NamespaceFacts
from deploy.kubernetes.admission.vocabulary import (
    LABEL,
    POD_SECURITY,
    Governance,
    Namespace,
    Verdict,
)
from policies.ground.settings import SettingsError

POLL_SECONDS = 10.0
_log = logging.getLogger("sluice.webhook")


class TemplateInjector:
    """Decides about each pod by the newest usable template. Raises `SettingsError` when it is made
    if the template file is unusable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = _read(path)
        self._fragment = template.read(self._text, str(path))

    def __call__(self, review: Review, facts: NamespaceFacts) -> Verdict:
        assert review.pod is not None
        # The review has no labels of the namespace; the selectors told them by the path.
        governed = Governance.OPTIONAL if facts.optional else Governance.ENABLED
        labels = {LABEL: governed.value}
        if facts.restricted:
            labels[POD_SECURITY] = "restricted"
        return decide(review.pod, Namespace(review.namespace, labels), self._fragment)

    async def run(self) -> None:
        """Read the template file again every `POLL_SECONDS`, forever."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.load()

    def load(self) -> None:
        """Read the template file and use it from now on. If it is unusable, log why and keep the
        template in use."""
        try:
            text = _read(self._path)
            if text == self._text:
                return
            # Noted before it is read, so that a fault is logged once and not at every look.
            self._text = text
            self._fragment = template.read(text, str(self._path))
        except SettingsError as error:
            for complaint in error.complaints:
                _log.error("the template in use stays in use: %s", complaint)
        else:
            _log.info("template `%s` is in use, digest %s", self._path, self._fragment.digest[:16])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise SettingsError([f"SLUICE_WEBHOOK_TEMPLATE: `{path}` can't be read: {error}"]) from None
