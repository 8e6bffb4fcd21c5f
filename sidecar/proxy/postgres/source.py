"""Serves agents' connections to one PostgreSQL source: logs in at the server for each, and runs the
session between the two.

Of an agent's startup message, only what is harmless reaches the server; the login is the source's
own. The agent gets a key of ours for cancelling, which leads to its session and no other.

Knows lifetimes. Knows nothing of statements.
"""

import asyncio
import logging
import ssl
from collections.abc import Mapping
from functools import partial

from policies.ground.errors import Malformed, SluiceError
from sidecar.http.attribution import Attribution
from sidecar.postgres import backend
from sidecar.postgres.agent import AgentConnection
from sidecar.postgres.backend import BackendKey
from sidecar.postgres.cancel_keys import CancelKeys
from sidecar.postgres.connection import ConnectionLost
from sidecar.postgres.frames import ProtocolFault, from_agent
from sidecar.postgres.server import ServerConnection
from sidecar.postgres.startup import (
    VERSION_3_2,
    CancelRequest,
    Startup,
    receive_startup,
)
from sidecar.protocols.postgres.catalog import closed_reason
from sidecar.protocols.postgres.names import QualifiedName
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.pipeline.authorizer import UNREADABLE, Denied
from sidecar.proxy.postgres import answers, looks
from sidecar.proxy.postgres.answers import Refusal
from sidecar.proxy.postgres.attribution import SessionAttribution
from sidecar.proxy.postgres.conversation import Conversation, ServerLost
from sidecar.proxy.postgres.judge import Judge
from sidecar.proxy.postgres.lookout import CannotLook
from sidecar.proxy.postgres.server_login import ServerBusy, ServerLogins
from sidecar.proxy.postgres.session import Session
from sidecar.proxy.postgres.startup import read_start
from sidecar.settings.postgres import ResultLimits

log = logging.getLogger(__name__)

_AGAIN = "Try again in a second."
_MARGIN_SECONDS = 10
"""The seconds beyond the limit of a statement after which a server is given up."""


class PostgresSource:
    """One source of the kind `postgres`. `logins` makes the connections to the server, `who` is the
    attribution of statements that state none, and `context` the certificate of the port, None
    without TLS."""

    def __init__(
        self,
        judge: Judge,
        logins: ServerLogins,
        who: Attribution,
        result: ResultLimits,
        limits: ProxyLimits,
        context: ssl.SSLContext | None,
    ) -> None:
        self._judge = judge
        self._logins = logins
        self._who = who
        self._result = result
        self._limits = limits
        self._context = context
        self._keys: CancelKeys[Conversation] = CancelKeys()

    async def serve(self, agent: AgentConnection) -> None:
        """Serve one connection to its end."""
        try:
            startup = await receive_startup(agent, self._context, self._limits.handshake_seconds)
            if isinstance(startup, CancelRequest):
                await self._cancel(startup)
            else:
                await self._session(agent, startup)
        except ServerLost as lost:
            agent.write(answers.of_loss(lost).fatal())
        except ConnectionLost:
            pass
        except ProtocolFault as fault:
            await self._judge.refuse(UNREADABLE, str(fault), self._who)
            agent.write(Refusal(fault.sqlstate, str(fault)).fatal())
        except TimeoutError:
            log.info("an agent is cut off: it took too long")
        finally:
            agent.close()

    async def _session(self, agent: AgentConnection, startup: Startup) -> None:
        attribution = SessionAttribution(self._who)
        try:
            start = read_start(startup.parameters, self._judge.rules.limits)
            if start.database != self._judge.names.database:
                raise Malformed(f"the source has the database `{self._judge.names.database}` alone")
            attribution.start(start.settings)
        except Malformed as error:
            await self._judge.refuse(UNREADABLE, error.message, self._who)
            agent.write(Refusal(answers.CLOSED, error.message).fatal())
            return
        try:
            await self._judge.admit(attribution.of())
            server = await self._logins.connect(start.for_server)
        except Denied as denied:
            agent.write(answers.of_denial(denied).fatal())
            return
        except ServerBusy as busy:
            agent.write(Refusal(busy.sqlstate, busy.message, hint=_AGAIN).fatal())
            return
        except SluiceError as error:
            agent.write(Refusal(answers.UNREACHABLE, error.message).fatal())
            return
        try:
            await self._run(agent, server, startup.version, attribution)
        finally:
            server.abort()

    async def _run(
        self,
        agent: AgentConnection,
        server: ServerConnection,
        version: int,
        attribution: SessionAttribution,
    ) -> None:
        seconds = self._result.statement_seconds + _MARGIN_SECONDS
        conversation = Conversation(server, partial(self._logins.cancel, server), seconds)
        try:
            closed = await _closed_catalog(conversation)
        except CannotLook:
            log.error("a session is refused: the server does not answer our own statements")
            agent.write(Refusal(answers.UNREACHABLE, "the server can't be used").fatal())
            return
        session = Session(
            agent,
            conversation,
            self._judge,
            attribution,
            closed,
            self._result,
            self._limits,
        )
        await session.prepare()
        agent.admit(from_agent())
        agent.lost.add_done_callback(conversation.leave)
        telling: list[asyncio.Task[None]] = []

        def ended(_lost: object) -> None:
            # A session that runs something finds out by itself.
            if session.idle:
                telling.append(
                    asyncio.get_running_loop().create_task(_tell_end(agent, conversation))
                )

        server.lost.add_done_callback(ended)
        key = self._keys.issue(conversation, long=version >= VERSION_3_2)
        try:
            agent.write(_greeting(server.parameters, key))
            await session.run()
        finally:
            self._keys.withdraw(key)

    async def _cancel(self, request: CancelRequest) -> None:
        running = self._keys.find(request.key)
        if running is not None:
            await running.cancel()


async def _tell_end(agent: AgentConnection, conversation: Conversation) -> None:
    """Tell an agent that asks for nothing why the server has ended its session."""
    try:
        await conversation.end()
    except ServerLost as lost:
        agent.write(answers.of_loss(lost).fatal())
        agent.close()


async def _closed_catalog(conversation: Conversation) -> list[int]:
    """Return the oids of the relations in the server's catalog that are closed. Raises
    `CannotLook`."""
    outcome = await conversation.run([looks.catalog()])
    if outcome.error is not None:
        raise CannotLook
    await conversation.sync()
    found = looks.relations(outcome.answers[0])
    strange = [each for each in found if each.schema not in looks.OWN_SCHEMAS]
    if strange:
        log.error(
            "`%s.%s` has an oid of the catalog's, so it was made in single-user mode: what is read "
            "can't be told in this database. Restore it from a dump",
            strange[0].schema,
            strange[0].name,
        )
        raise CannotLook
    return [
        each.oid
        for each in found
        if closed_reason(QualifiedName(each.schema, each.name or "")) is not None
    ]


def _greeting(parameters: Mapping[bytes, bytes], key: BackendKey) -> bytes:
    """Return what the agent gets in place of the server's answer to a login."""
    parts = [backend.AUTHENTICATION_OK]
    parts += [backend.parameter_status(name, value) for name, value in parameters.items()]
    parts += [backend.backend_key_data(key.process, key.secret), backend.ready(b"I")]
    return b"".join(parts)
