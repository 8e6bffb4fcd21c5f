"""Logs in at a source's server, with the source's own login, and cancels what runs there. Knows the
settings. Knows nothing of agents."""

import logging
from collections.abc import Mapping

from sidecar.postgres.frames import ProtocolFault
from sidecar.postgres.server import Login, LoginRefused, ServerConnection, TlsRefused
from sidecar.postgres.upstream import Upstream
from sidecar.proxy.proxy_metrics import UpstreamUnreachable, UpstreamUnverified
from sidecar.proxy.upstream.client import Reachability
from sidecar.settings.postgres import Login as LoginSettings
from sidecar.settings.postgres import ResultLimits

log = logging.getLogger(__name__)

_CHECK_SECONDS = 1
_IDLE_SECONDS = 600


_BUSY = {
    "53300": "has no connection left",
    "57P01": "is shutting down",
    "57P03": "is starting up or shutting down",
}


class ServerBusy(UpstreamUnreachable):
    """the server takes no connection now. `sqlstate` is the code that it gave."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class ServerLogins:
    """The logins at one server, `upstream`."""

    def __init__(
        self,
        upstream: Upstream,
        reachability: Reachability,
        login: LoginSettings,
        database: str,
        result: ResultLimits,
    ) -> None:
        self._upstream = upstream
        self._reachability = reachability
        self._login = login
        self._database = database
        # In the startup message, so that `RESET ALL` and `DISCARD ALL` come back to these.
        self._parameters = {
            # What changes how a text is read: the sidecar reads it so.
            "client_encoding": "UTF8",
            "standard_conforming_strings": "on",
            # A parallel worker's locks and counters are its own, and no look sees them.
            "max_parallel_workers_per_gather": "0",
            "client_connection_check_interval": f"{_CHECK_SECONDS}s",
            "statement_timeout": f"{result.statement_seconds}s",
            "idle_in_transaction_session_timeout": f"{_IDLE_SECONDS}s",
        }

    @property
    def connections(self) -> int:
        """The number of connections that are open, or being opened."""
        return self._upstream.connections

    async def connect(self, settings: Mapping[str, str]) -> ServerConnection:
        """Return a new connection, logged in, with an agent's `settings` of the session. Raises
        `UpstreamFailed`."""
        alias = self._reachability.alias
        try:
            connection = await self._reachability.connected(self._connect(settings))
        except (LoginRefused, ProtocolFault) as error:
            log.warning("the data source `%s` refuses the login: %s", alias, error)
            sqlstate = error.sqlstate
            if sqlstate in _BUSY:
                said = f"the data source `{alias}` {_BUSY[sqlstate]}"
                raise ServerBusy(sqlstate, said) from error
            raise UpstreamUnreachable(f"the data source `{alias}` refuses the login") from error
        self._reachability.answered()
        return connection

    async def cancel(self, connection: ServerConnection) -> None:
        """Ask the server to cancel the statement that `connection` runs. A failure is logged."""
        if connection.key is None:
            return
        try:
            await self._upstream.cancel(connection.key)
        except (OSError, ProtocolFault) as error:
            alias = self._reachability.alias
            log.warning("a statement at `%s` may not have been cancelled: %s", alias, error)

    async def _connect(self, settings: Mapping[str, str]) -> ServerConnection:
        file = self._login.password_file
        password = None if file is None else file.read_text().rstrip("\r\n")
        parameters = {**settings, **self._parameters}
        login = Login(self._login.user, password, self._database, parameters)
        try:
            return await self._upstream.connect(login)
        except TlsRefused as error:
            alias = self._reachability.alias
            log.warning("the data source `%s` can't be verified: %s", alias, error)
            raise UpstreamUnverified(f"the data source `{alias}` can't be verified") from error
