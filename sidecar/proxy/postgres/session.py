"""Runs one agent's session: takes each message, has it judged, and releases the server's answer.

    parse, bind, describe     one round trip with looks; decided; only then released
    execute                   a batch of rows and a look; decided; only then released; and so on
    sync                      ends our transaction, if there is one

A message that fails or is denied ends the pipeline: what follows is skipped up to `Sync`, as the
server does. The simple protocol is translated into the extended one, statement by statement.

Knows the order of things. What a statement is, what it reads and whether it may: others know.
"""

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from sidecar.postgres import frontend
from sidecar.postgres.agent import AgentConnection
from sidecar.postgres.backend import (
    EMPTY_QUERY,
    command_complete,
    ready,
)
from sidecar.postgres.frames import Frame
from sidecar.postgres.frontend import Bind, Close, Describe, Execute, Flush, Parse, Query
from sidecar.protocols.postgres.statement import Statement, Verb
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.pipeline.lineage import FAILED, TRUNCATED
from sidecar.proxy.postgres import looks
from sidecar.proxy.postgres.admission import Admission, Stopped, Times
from sidecar.proxy.postgres.attribution import SessionAttribution
from sidecar.proxy.postgres.conversation import (
    CLOSED,
    COMPLETE,
    EXECUTED,
    Conversation,
    Outcome,
    OwnStatements,
    Step,
)
from sidecar.proxy.postgres.execution import Execution, sqlstate_of
from sidecar.proxy.postgres.judge import Judge, Judgement
from sidecar.proxy.postgres.lookout import CannotLook, Lookout, Part
from sidecar.proxy.postgres.looks import Looks
from sidecar.proxy.postgres.messages import (
    EXECUTE,
    Received,
    continues,
    extended,
    parts_of,
    step_of,
)
from sidecar.proxy.postgres.output import Output
from sidecar.proxy.postgres.registry import Portal, Prepared
from sidecar.proxy.postgres.released import Released
from sidecar.proxy.postgres.transaction import TEXTS, Transaction
from sidecar.settings.postgres import ResultLimits

_MOST_PENDING = 64
"""The number of messages that are gathered before they are answered."""


class Session:
    """One agent's session with the server. `closed` are the oids of the relations in the server's
    catalog that are closed."""

    def __init__(
        self,
        agent: AgentConnection,
        conversation: Conversation,
        judge: Judge,
        attribution: SessionAttribution,
        closed: Iterable[int],
        result: ResultLimits,
        limits: ProxyLimits,
    ) -> None:
        self._agent = agent
        self._conversation = conversation
        self._own = OwnStatements({**TEXTS, **looks.texts(closed)})
        self._transaction = Transaction(conversation, self._own)
        self._lookout = Lookout(conversation, self._transaction, self._own)
        self._output = Output(agent, limits.stream_idle_seconds)
        self._execution = Execution(conversation, self._lookout, self._output, result)
        self._admission = Admission(
            judge,
            conversation,
            self._transaction,
            self._output,
            attribution,
            Times(limits.reauthorize_seconds, result.statement_seconds + 1),
            Looks(self._own),
        )
        self._registry = self._admission.registry
        self._pending: list[Received] = []
        self._stopped = False
        """True from an error on until the agent's `Sync`."""
        self.idle = False
        """True while the agent has nothing to be answered."""

    async def prepare(self) -> None:
        """Prepare our own statements. Raises `CannotLook`."""
        if (await self._conversation.run(self._own.prepare())).error is not None:
            raise CannotLook
        await self._conversation.sync()

    async def run(self) -> None:
        """Serve the agent until it ends the session. Raises `ServerLost`, `ConnectionLost`,
        `ProtocolFault`."""
        server = self._conversation.server
        try:
            while True:
                if server.lost.done():
                    await self._conversation.end()
                self.idle = True
                frame = await self._agent.read()
                self.idle = False
                if frame.kind == b"X":
                    return
                await self._message(frame)
        finally:
            self._drop(self._registry.forget_portals())

    # ------------------------------------------------------------------------------- messages

    async def _message(self, frame: Frame) -> None:
        if frame.kind == b"S":
            frontend.parse(frame)
            await self._stopping(self._flush())
            await self._end()
        elif self._stopped:
            return  # up to `Sync` the server skips everything, the simple protocol too
        elif frame.kind == b"Q":
            message = frontend.parse(frame)
            assert isinstance(message, Query)
            await self._stopping(self._flush())
            if not self._stopped:
                await self._simple(message.text)
        else:
            await self._stopping(self._extended(frame))
            if frame.kind == b"F":
                # A call of a function has no `Sync` of its own.
                await self._end()

    async def _extended(self, frame: Frame) -> None:
        message = frontend.parse(frame)
        match message:
            case Execute():
                await self._flush()
                await self._execute(message, frame.raw)
            case Flush():
                await self._flush()
                await self._output.drain()
            case Parse() | Bind() | Describe() | Close():
                self._pending.append(Received(message, frame.raw))
                if len(self._pending) == _MOST_PENDING:
                    await self._flush()
            case _:
                await self._flush()
                await self._admission.refuse_message(frame)

    async def _stopping(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Stopped:
            self._stopped = True
            self._pending.clear()
            if self._lookout.code_denied:
                await self._forget_prepared()

    async def _forget_prepared(self) -> None:
        """Have the server forget all prepared statements of the agent."""
        # Code that was denied may have replaced them by statements with what it has read as a
        # constant. They outlive the transaction (`GROUND.md`, hole 3).
        self._lookout.code_denied = False
        names, self._registry.prepared = list(self._registry.prepared), {}
        steps = [Step(frontend.close(b"S", each), (CLOSED,)) for each in names]
        await self._conversation.run(steps)

    async def _simple(self, text: bytes) -> None:
        self._output.simple = True
        try:
            await self._stopping(self._statements(text))
            self._forget_unnamed()
            await self._end()
        finally:
            self._output.simple = False

    async def _statements(self, text: bytes) -> None:
        """Answer a message of the simple protocol, but for its end."""
        statements = await self._admission.read(text)
        if not statements:
            self._output.write(EMPTY_QUERY)
        for each in statements:
            prepared = await self._admission.admit(each)
            await self._part(prepared, extended(each.statement.text))
            await self._execute(Execute(b"", 0), EXECUTE)

    def _forget_unnamed(self) -> None:
        """Forget the statement and the portal without a name, as the server does at each message of
        the simple protocol."""
        self._registry.prepared.pop(b"", None)
        self._drop([self._registry.portals.pop(b"", None)])

    async def _end(self) -> None:
        """End the messages up to `Sync`, or a message of the simple protocol."""
        state, error = await self._transaction.end_segment(failed=self._stopped)
        if error is not None and not self._stopped:
            self._output.error(error)
        if state == b"I":
            self._transaction_ended()
        self._stopped = False
        self._output.frames((), self._conversation.take_asides())
        self._output.write(ready(state))
        await self._output.drain()

    # ------------------------------------------------------------------- before the execution

    async def _flush(self) -> None:
        """Have the pending messages answered, those about one statement together."""
        pending, self._pending = self._pending, []
        at = 0
        while at < len(pending):
            message, raw = pending[at]
            if isinstance(message, Close):
                await self._close(message, raw)
                at += 1
                continue
            if isinstance(message, Parse):
                prepared = await self._admission.parse(message)
            else:
                if isinstance(message, Bind):
                    await self._admission.check_name(message.portal)
                prepared = self._meant(message)
            until = at + 1
            while until < len(pending) and continues(message, pending[until].message):
                until += 1
            await self._part(prepared, pending[at:until])
            at = until

    async def _part(self, prepared: Prepared, received: Sequence[Received]) -> None:
        """Have messages about one prepared statement answered."""
        messages = [each.message for each in received]
        bound = next((each for each in messages if isinstance(each, Bind)), None)
        known = self._registry.prepared
        if isinstance(messages[0], Parse) and not messages[0].name:
            # The server forgets the last one without a name, even if this one fails or is denied.
            known.pop(b"", None)
        steps = [step_of(each, prepared, known) for each in received]
        judgement, plain = None, False
        if bound is not None:
            await self._admission.check_values(prepared.statement, bound)
        if self._admission.is_judged(prepared):
            judgement = self._admission.judge(prepared, bound)
            judgement.only_asks = bound is None
            outcome, plain = await self._judged(judgement, prepared, parts_of(messages, steps))
        else:
            outcome = await self._conversation.run(steps)
        self._output.frames(outcome.answers, self._conversation.take_asides())
        # It is prepared even if binding it has failed.
        if isinstance(messages[0], Parse) and any(outcome.answers[:1]):
            known[messages[0].name] = prepared
        if outcome.error is not None:
            if judgement is not None:
                judgement.end(Released().result(sqlstate_of(outcome.error)), FAILED)
            self._output.error(outcome.error)
            raise Stopped
        if bound is not None:
            self._transaction.bound = True
            self._drop([self._registry.portals.pop(bound.portal, None)])
            self._registry.portals[bound.portal] = Portal(prepared, judgement, plain=plain)

    async def _judged(
        self, judgement: Judgement, prepared: Prepared, parts: Sequence[Part]
    ) -> tuple[Outcome, bool]:
        """Return the answers to the parts of a judged statement, and whether it is plain: executing
        it reads nothing else."""
        outcome = None
        async with self._admission.told(judgement):
            if prepared.may_be_plain:
                outcome = await self._lookout.plain(judgement, prepared, parts)
            plain = outcome is not None
            if outcome is None:
                names = self._registry.names_of(judgement.statement)
                outcome = await self._lookout.run(judgement, parts, names)
            # Nothing leaves before the records are on disk: a description names columns.
            await judgement.durable()
        return outcome, plain

    def _meant(self, message: Bind | Describe) -> Prepared:
        """Return the prepared statement that a message is about. Raises `Stopped`."""
        registry = self._registry
        if isinstance(message, Describe) and message.kind == b"P":
            portal = registry.portals.get(message.name)
            if portal is None:
                raise self._admission.refuse_unknown("portal", message.name, "34000")
            return portal.prepared
        name = message.statement if isinstance(message, Bind) else message.name
        prepared = registry.prepared.get(name)
        if prepared is None:
            raise self._admission.refuse_unknown("prepared statement", name, "26000")
        return prepared

    async def _close(self, message: Close, raw: bytes) -> None:
        await self._admission.check_name(message.name)
        if message.kind == b"P":
            self._drop([self._registry.portals.pop(message.name, None)])
        else:
            self._registry.prepared.pop(message.name, None)
        outcome = await self._conversation.run([Step(raw, (CLOSED,))])
        self._output.frames(outcome.answers, self._conversation.take_asides())
        if outcome.error is not None:
            self._output.error(outcome.error)
            raise Stopped

    # ------------------------------------------------------------------------- the execution

    async def _execute(self, message: Execute, raw: bytes) -> None:
        portal = self._registry.portals.get(message.portal)
        if portal is None:
            raise self._admission.refuse_unknown("portal", message.portal, "34000")
        judgement = portal.judgement
        if judgement is None:
            await self._execute_open(raw, portal)
            return
        async with self._admission.told(judgement, portal):
            if portal.plain:
                error = await self._execution.stream(raw, portal, judgement)
            else:
                error = await self._execution.run(message.portal, portal, judgement, message.rows)
        if error is not None:
            portal.end(FAILED, sqlstate_of(error))
            self._output.error(error)
            raise Stopped
        self._executed(portal.prepared.statement, portal)

    async def _execute_open(self, raw: bytes, portal: Portal) -> None:
        """Execute what needs no judgement."""
        local = portal.prepared.local
        if local is not None:
            self._admission.set_attribution(portal.prepared.statement)
        step = Step(raw, EXECUTED)
        outcome = await self._conversation.run([step])
        if local is not None and outcome.error is None:
            outcome.answers[0][-1] = Frame(COMPLETE, command_complete(local.encode()))
        self._output.frames(outcome.answers, self._conversation.take_asides())
        if outcome.error is not None:
            self._output.error(outcome.error)
            raise Stopped
        self._executed(portal.prepared.statement, portal)

    def _executed(self, statement: Statement, portal: Portal) -> None:
        """Note what an executed statement did to the session."""
        registry = self._registry
        name = None if statement.name is None else statement.name.encode()
        match statement.verb:
            case Verb.BEGIN:
                self._transaction.begun()
            case Verb.COMMIT | Verb.ROLLBACK:
                self._transaction.ended(chained=statement.chained)
                self._transaction_ended()
            case Verb.ROLLBACK_TO:
                self._transaction.rolled_back()
            case Verb.PREPARE if name is not None and statement.inner is not None:
                registry.prepared[name] = Prepared(statement.inner)
            case Verb.DECLARE if name is not None and statement.inner is not None:
                cursor = self._admission.cursor(statement.inner, portal)
                registry.portals[name] = Portal(Prepared(statement.inner), cursor)
            case Verb.CLOSE if name is not None:
                self._drop([registry.portals.pop(name, None)])
            case Verb.CLOSE:
                self._drop(registry.forget_portals())
            case Verb.DEALLOCATE if name is not None:
                registry.prepared.pop(name, None)
            case Verb.DEALLOCATE:
                self._forgotten()
            case Verb.DISCARD if statement.name == "all":
                self._forgotten()
                self._admission.attribution.reset()
            case Verb.RESET if name is None:
                self._admission.attribution.reset()
        # The rest changes nothing that is kept here.

    def _forgotten(self) -> None:
        """Note that the agent has had all prepared statements forgotten, ours among them."""
        self._registry.prepared.clear()
        self._own.distrust()

    def _transaction_ended(self) -> None:
        self._admission.attribution.transaction_ended()
        self._drop(self._registry.forget_portals())

    @staticmethod
    def _drop(portals: Iterable[Portal | None]) -> None:
        """Note in the lineage that nothing more comes from these portals."""
        for each in portals:
            if each is not None:
                each.end(TRUNCATED)
