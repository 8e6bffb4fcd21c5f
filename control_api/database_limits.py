"""The limits on a process's use of PostgreSQL: connections and times. SQLite needs none."""

from dataclasses import dataclass

POOL_SECONDS = 5.0
"""How long a request waits for a connection before it gets a 503."""


@dataclass(frozen=True, slots=True)
class DatabaseLimits:
    """`connections` per process, and the `seconds` that a statement may run."""

    connections: int = 16
    seconds: float = 10.0

    @property
    def silent_seconds(self) -> float:
        """How long a writing transaction may be idle: for less time than others wait for its
        locks."""
        return self.seconds / 2

    def of_session(self) -> dict[str, str]:
        """Settings that the server enforces."""
        return {
            "application_name": "sluice",
            # A longer statement blocks others, so it is cancelled together with its transaction.
            "statement_timeout": f"{self.seconds * 1000:.0f}",
            "lock_timeout": f"{self.seconds * 800:.0f}",
            "idle_in_transaction_session_timeout": f"{self.seconds * 6000:.0f}",
            # `store.postgresql.transaction` quotes values for SET, and relies on this.
            "standard_conforming_strings": "on",
            "jit": "off",
        }

    def of_driver(self) -> dict[str, float]:
        """Timeouts that the driver enforces, in case the server is stopped or unreachable."""
        # Longer than the server's, so that its own, clearer errors come first.
        return {"timeout": POOL_SECONDS, "command_timeout": self.seconds + 2}


LIMITS = DatabaseLimits()
