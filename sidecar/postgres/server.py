"""The sidecar's end of a connection to a server: TLS, login, and then its messages one by one."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from sidecar.http.client.tcp_keepalive import keep_alive
from sidecar.postgres import backend, frontend
from sidecar.postgres.backend import BackendKey, Status
from sidecar.postgres.connection import BUFFER_BYTES, ConnectionLost, FramedConnection
from sidecar.postgres.frames import Frame, ProtocolFault, from_server, from_server_at_login
from sidecar.postgres.scram import ScramExchange, ScramFailed
from sidecar.postgres.startup import SSL_REQUEST, VERSION_3_0, startup_message

_MOST_LOGIN_MESSAGES = 1_000
_OK, _CLEARTEXT, _MD5, _SASL, _SASL_CONTINUE, _SASL_FINAL = 0, 3, 5, 10, 11, 12
_DEMAND_SCRAM = "demand `scram-sha-256` in its `pg_hba.conf`"


class TlsRefused(ConnectionError):
    """the server has no TLS, or can't be verified"""


class LoginRefused(Exception):
    """the login failed"""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(f"the login failed: {message} (SQLSTATE {sqlstate})")
        self.sqlstate = sqlstate
        self.message = message
        """What the server said, or what is wrong with it. It may name the user and the database,
        and is for the log."""


class Login(NamedTuple):
    """The login of one connection."""

    user: str
    password: str | None
    """None where the server knows the sidecar by its certificate, or asks for nothing."""
    database: str
    parameters: Mapping[str, str] = {}
    """Further parameters of the startup message."""
    version: int = VERSION_3_0
    """The highest version of the protocol to speak. The server may choose a lower one; poolers that
    don't know 3.2 refuse it instead, which is why libpq asks for 3.0 too."""


class ServerConnection(FramedConnection):
    """A connection to a server: `secure`, then `log_in`, then `read` and `write`. `message_bytes`
    limits a message from the server, a DataRow above all."""

    def __init__(self, message_bytes: int, buffer_bytes: int = BUFFER_BYTES) -> None:
        super().__init__(from_server_at_login(), buffer_bytes)
        self._message_bytes = message_bytes
        self._scram: ScramExchange | None = None
        self._proven = self._let_in = False
        self.version = VERSION_3_0
        """The version of the protocol that the server speaks."""
        self.parameters: dict[bytes, bytes] = {}
        """The server's parameters, as they were when the login was complete."""
        self.key: BackendKey | None = None
        """What a CancelRequest must name."""
        self.status: Status = b"I"
        """The status of the transaction when the login was complete."""

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The TLS connection; None without TLS."""
        found: ssl.SSLObject | None = self._open_transport().get_extra_info("ssl_object")
        return found

    async def secure(self, context: ssl.SSLContext, server_name: str) -> None:
        """Ask the server for TLS, and verify that it is `server_name`. Raises `TlsRefused`,
        `ProtocolFault` and `ConnectionLost`."""
        self.write(SSL_REQUEST)
        while (answer := self._reader.take_byte()) is None:
            await self._more()
        if answer == b"N":
            raise TlsRefused("the server has no TLS: switch it on there, or set `tls: off` here")
        if answer != b"S":
            raise TlsRefused("the server does not answer an SSLRequest as PostgreSQL does")
        if self._reader.held:
            # Behind the handshake, they would count as the verified server's (CVE-2021-23222).
            raise ProtocolFault("bytes arrived behind the answer to an SSLRequest, unencrypted")
        try:
            secured = await self._loop.start_tls(
                self._open_transport(), self, context, server_hostname=server_name
            )
        except ssl.SSLCertVerificationError as error:
            raise TlsRefused(f"its certificate is not trusted: {error.verify_message}") from error
        except ssl.SSLError as error:
            reason = (error.reason or "no reason given").lower().replace("_", " ")
            raise TlsRefused(f"TLS failed: {reason}") from error
        if secured is None:
            raise ConnectionLost("the connection was lost in the TLS handshake")
        self._transport = secured

    async def log_in(self, login: Login) -> None:
        """Log in, and wait until the server is ready. Raises `LoginRefused`, `ProtocolFault` and
        `ConnectionLost`."""
        named = {"user": login.user, "database": login.database, **login.parameters}
        sent = {name.encode(): setting.encode() for name, setting in named.items()}
        self.version = login.version
        self.write(startup_message(login.version, sent))
        for _ in range(_MOST_LOGIN_MESSAGES):
            if await self._step(await self.read(), login):
                self._reader.limits = from_server(self._message_bytes)
                return
        raise ProtocolFault(f"the login takes more than {_MOST_LOGIN_MESSAGES:,} messages")

    def terminate(self) -> None:
        """End the connection in an orderly way."""
        self.write(frontend.TERMINATE)
        self.close()

    # ------------------------------------------------------------------------------------ the login

    async def _step(self, frame: Frame, login: Login) -> bool:
        """Take one message of the login. Returns True with the last one."""
        kind = frame.kind
        if kind == b"E":
            said = backend.parse_error(frame)
            raise LoginRefused(said.sqlstate, said.message)
        if kind == b"R" and not self._let_in:
            await self._authenticate(frame, login)
        elif kind == b"v" and not self._let_in:
            self._negotiated(frame)
        elif kind == b"S":
            name, setting = backend.parse_parameter_status(frame)
            self.parameters[name] = setting
        elif kind == b"K" and self._let_in:
            self.key = backend.parse_backend_key(frame)
        elif kind == b"Z" and self._let_in:
            self.status = backend.parse_ready(frame)
            return True
        elif kind != b"N":
            raise ProtocolFault(f"a message of kind 0x{kind.hex()} can't stand in a login")
        return False

    async def _authenticate(self, frame: Frame, login: Login) -> None:
        method, data = backend.parse_authentication(frame)
        if method == _OK:
            # A server that proved nothing may be another one, that lets everybody in.
            if login.password is not None and not self._proven:
                if self._scram is not None:
                    raise LoginRefused("28000", "the server skips its own proof")
                raise LoginRefused(
                    "28000", f"the server asks for no password (`trust`): {_DEMAND_SCRAM}"
                )
            self._let_in = True
            return
        if login.password is None:
            raise LoginRefused("28000", "the server asks for a password, and none is configured")
        try:
            await self._exchange(method, data, login.password)
        except ScramFailed as error:
            raise LoginRefused("28000", str(error)) from error

    async def _exchange(self, method: int, data: bytes, password: str) -> None:
        if method == _SASL and self._scram is None:
            self._scram = ScramExchange(password, backend.parse_mechanisms(data), self.tls)
            mechanism = self._scram.mechanism.encode()
            self.write(frontend.sasl_initial(mechanism, self._scram.begin()))
        elif method == _SASL_CONTINUE and self._scram is not None:
            self.write(frontend.sasl_response(await self._scram.prove(data)))
        elif method == _SASL_FINAL and self._scram is not None:
            self._scram.verify(data)
            self._proven = True
        else:
            asks = {_CLEARTEXT: "the password itself", _MD5: "its MD5 digest"}.get(
                method, f"the method {method} of authentication"
            )
            raise LoginRefused("28000", f"the server asks for {asks}: {_DEMAND_SCRAM}")

    def _negotiated(self, frame: Frame) -> None:
        version, unknown = backend.parse_negotiate_version(frame)
        if not VERSION_3_0 <= version <= self.version or unknown:
            raise ProtocolFault("the server negotiates what it was not asked for")
        self.version = version

    # ------------------------------------------------------------------------- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        keep_alive(self._open_transport())
