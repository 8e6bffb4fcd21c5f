"""How much of a database a process takes, and for how long. Knows no database's own words but
PostgreSQL's; SQLite needs none of it."""

from dataclasses import dataclass

POOL_SECONDS = 5.0
"""How long a request waits for a connection before it is told to come again."""


@dataclass(frozen=True, slots=True)
class DatabaseLimits:
    """How much of PostgreSQL a process takes. `seconds` is how long a statement may run: one that
    takes longer holds up others, and is ended with its transaction."""

    connections: int = 16
    seconds: float = 10.0

    @property
    def silent_seconds(self) -> float:
        """How long a transaction that writes may say nothing: less than others wait for it."""
        return self.seconds / 2

    def of_session(self) -> dict[str, str]:
        """Kept by the server."""
        return {
            "application_name": "sluice",
            "statement_timeout": f"{self.seconds * 1000:.0f}",
            "lock_timeout": f"{self.seconds * 800:.0f}",
            "idle_in_transaction_session_timeout": f"{self.seconds * 6000:.0f}",
            "standard_conforming_strings": "on",
            "jit": "off",
        }

    def of_driver(self) -> dict[str, float]:
        """Kept here, for a server that is stopped, or out of reach, and keeps nothing: after the
        server's own, so that its errors are the ones that are told."""
        return {"timeout": POOL_SECONDS, "command_timeout": self.seconds + 2}


LIMITS = DatabaseLimits()
