"""Limits how a process uses PostgreSQL: the number of connections, the duration of statements and
transactions, and what may be left in a session if there is a pooler. SQLite needs none of this."""

from dataclasses import dataclass
from typing import Any

POOL_SECONDS = 5.0
"""The seconds for which a request waits for a connection before it gets a 503."""


@dataclass(frozen=True, slots=True)
class DatabaseLimits:
    """The limits for PostgreSQL: `connections` per process, and the `seconds` that a statement may
    run.

    `pooled` means that a pooler in transaction mode, such as PgBouncer, gives each transaction
    another session. Then nothing may outlive a transaction in a session: no setting, no prepared
    statement.
    """

    connections: int = 16
    seconds: float = 10.0
    pooled: bool = False

    @property
    def silent_seconds(self) -> float:
        """The most seconds for which a writing transaction may be idle. It is shorter than others
        wait for that transaction's locks."""
        return self.seconds / 2

    @property
    def commit_seconds(self) -> float:
        """The most seconds that a commit may take, beyond what the server itself limits. It is less
        than the driver's own limit, which must not end a commit
        (`control_api.store.postgresql.transaction`)."""
        return self.seconds + 1

    def of_connection(self) -> dict[str, Any]:
        """Return the arguments for the driver's `connect`, to be passed through SQLAlchemy."""
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
        """Return the settings that each transaction must make for itself, because a pooled session
        does not keep them. Empty without a pooler."""
        return self._times() if self.pooled else {}

    def _times(self) -> dict[str, str]:
        """Return the PostgreSQL settings that limit the time of statements, locks and idle
        transactions."""
        return {
            # A longer statement blocks others, so it is cancelled together with its transaction.
            "statement_timeout": f"{self.seconds * 1000:.0f}",
            "lock_timeout": f"{self.seconds * 800:.0f}",
            "idle_in_transaction_session_timeout": f"{self.seconds * 6000:.0f}",
            "jit": "off",
        }

    def _patience(self) -> dict[str, float]:
        """Return the driver's own timeouts, in case the server is stopped or unreachable."""
        # Longer than the server's, so that its own, clearer errors come first.
        return {"timeout": POOL_SECONDS, "command_timeout": self.seconds + 2}


LIMITS = DatabaseLimits()
_OF_SESSION = {
    "application_name": "sluice",
    # `store.postgresql.transaction` quotes values for SET, and relies on this.
    "standard_conforming_strings": "on",
}
