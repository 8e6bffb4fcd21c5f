"""Reports whether this sidecar can work, and if not, why. Knows no HTTP."""

from collections.abc import Callable

Probe = Callable[[], str | None]
"""A function that returns the present fault of one part, without paths or secrets; None if the part
works."""

_PROCESS = "process"


class Readiness:
    """The readiness of the sidecar: probes and facts, by name. A fact is shown but does not affect
    readiness. `draining` is set when the sidecar begins to stop."""

    def __init__(
        self, probes: dict[str, Probe], facts: dict[str, Callable[[], str]] | None = None
    ) -> None:
        self._probes = probes
        self._facts = facts or {}
        self.draining = False

    def facts(self) -> dict[str, str]:
        """Return the facts that an operator should know about a sidecar that is ready."""
        return {name: fact() for name, fact in self._facts.items()}

    def problems(self) -> dict[str, str]:
        """Return the reason for each part that is not ready, by its name; empty if everything is
        ready."""
        found = {name: why for name, probe in self._probes.items() if (why := probe()) is not None}
        if self.draining:
            found[_PROCESS] = "the sidecar is stopping and takes no new requests"
        return found

    def not_ready(self) -> dict[str, float]:
        """Return 1 for each part that is not ready and 0 for each other part, by its name."""
        problems = self.problems()
        return {name: float(name in problems) for name in (*self._probes, _PROCESS)}
