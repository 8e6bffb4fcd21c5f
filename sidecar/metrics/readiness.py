"""Whether this sidecar can do its work, and if not, why. Knows no HTTP."""

from collections.abc import Callable

Probe = Callable[[], str | None]
"""What is wrong at the moment, in words without a path or a secret; None where nothing is."""


class Readiness:
    """The probes and the facts, by name. A fact is told, and makes nothing unready. `draining` goes
    up once and stays."""

    def __init__(
        self, probes: dict[str, Probe], facts: dict[str, Callable[[], str]] | None = None
    ) -> None:
        self._probes = probes
        self._facts = facts or {}
        self.draining = False

    def facts(self) -> dict[str, str]:
        """What an operator should know of a sidecar that is ready."""
        return {name: fact() for name, fact in self._facts.items()}

    def problems(self) -> dict[str, str]:
        """What is not ready, and why; empty where everything is."""
        found = {name: why for name, probe in self._probes.items() if (why := probe()) is not None}
        if self.draining:
            found["process"] = "it was told to stop and takes no new work"
        return found
