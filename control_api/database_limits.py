"""Limits how a process uses PostgreSQL: how many connections, for how long, and whether through a
pooler. SQLite needs none of it.
"""

from dataclasses import dataclass
from typing import Any

POOL_SECONDS = 5.0
"""How long a request waits for a connection before it gets a 503."""


@dataclass(frozen=True, slots=True)
class DatabaseLimits:
    """`connections` per process, and the `seconds` that a statement may run.

    `pooled`: a pooler in transaction mode, such as PgBouncer, gives each transaction another
    session. Then nothing may outlive a transaction in a session: no setting, no prepared statement.
    """

    connections: int = 16
    seconds: float = 10.0
    pooled: bool = False

    @property
    def silent_seconds(self) -> float:
        """How long a writing transaction may be idle: for less time than others wait for its
        locks."""
        return self.seconds / 2

    @property
    def commit_seconds(self) -> float:
        """How long a commit may take, beyond what the server itself limits: less than the driver's
        own limit, which must not end it (`control_api.store.postgresql.transaction`)."""
        return self.seconds + 1

    def of_connection(self) -> dict[str, Any]:
        """Return arguments of the driver's `connect`, by way of SQLAlchemy."""
        if not self.pooled:
            return {"server_settings": {**_OF_SESSION, **self._times()}, **self._patience()}
        return {
            "server_settings": _OF_SESSION,  # both are known to PgBouncer, which keeps them apart
            # What SQLAlchemy documents for PgBouncer, but with statements that have no name: they
            # need no `DISCARD ALL` to be gone.
            "statement_cache_size": 0,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": lambda: "",
            **self._patience(),
        }

    def of_transaction(self) -> dict[str, str]:
        """Return the settings that each transaction has to make for itself."""
        return self._times() if self.pooled else {}

    def _times(self) -> dict[str, str]:
        """Return the limits that the server enforces."""
        return {
            # A longer statement blocks others, so it is cancelled together with its transaction.
            "statement_timeout": f"{self.seconds * 1000:.0f}",
            "lock_timeout": f"{self.seconds * 800:.0f}",
            "idle_in_transaction_session_timeout": f"{self.seconds * 6000:.0f}",
            "jit": "off",
        }

    def _patience(self) -> dict[str, float]:
        """Return the timeouts of the driver, in case the server is stopped or unreachable."""
        # Longer than the server's, so that its own, clearer errors come first.
        return {"timeout": POOL_SECONDS, "command_timeout": self.seconds + 2}


LIMITS = DatabaseLimits()
_OF_SESSION = {
    "application_name": "sluice",
    # `store.postgresql.transaction` quotes values for SET, and relies on this.
    "standard_conforming_strings": "on",
}
