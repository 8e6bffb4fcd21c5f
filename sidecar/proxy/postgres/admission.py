"""Admits statements to a session: reads their text, refuses what is closed before the server hears
of it, and turns everything that stops a statement into the error that its agent gets.

Knows which error is which. Knows nothing of when a message is sent.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from policies.ground.errors import SluiceError
from sidecar.postgres.frames import Frame
from sidecar.postgres.frontend import Bind, Parse
from sidecar.protocols.postgres.calls import value_refusal
from sidecar.protocols.postgres.comments import stated_in_comments
from sidecar.protocols.postgres.parameters import Setting
from sidecar.protocols.postgres.parser import Unreadable
from sidecar.protocols.postgres.reader import read_statements
from sidecar.protocols.postgres.statement import Statement, Verb
from sidecar.protocols.protocol import ALWAYS_DENIED, RouteClass
from sidecar.proxy.pipeline.authorizer import UNREADABLE, WRITE_DENIED, Denied
from sidecar.proxy.pipeline.lineage import FAILED, TRUNCATED
from sidecar.proxy.postgres import answers, looks
from sidecar.proxy.postgres.answers import Refusal
from sidecar.proxy.postgres.attribution import PREFIX, SessionAttribution
from sidecar.proxy.postgres.conversation import (
    PARAMETER,
    RESERVED,
    Conversation,
    TooMuchHeld,
)
from sidecar.proxy.postgres.execution import TooMuchReturned
from sidecar.proxy.postgres.judge import CLOSED_STATEMENT, Judge, Judgement
from sidecar.proxy.postgres.lookout import CannotLook
from sidecar.proxy.postgres.output import Output
from sidecar.proxy.postgres.registry import Portal, Prepared, Registry
from sidecar.proxy.postgres.released import Released
from sidecar.proxy.postgres.transaction import Transaction

log = logging.getLogger(__name__)

_SEVERAL = "a message of the extended protocol may hold one statement only"
_LONG_TEXT = 16 * 1024
"""The bytes of a text from which on it is read in a thread."""
_EMPTY = Statement("", Verb.QUERY, RouteClass.OPEN)
MOST_NAME_BYTES = 63
"""The longest name that PostgreSQL tells from others (`NAMEDATALEN`)."""


class Stopped(Exception):
    """the messages up to `Sync` end here, with an error that the agent has been told"""


class Times(NamedTuple):
    """Times in seconds."""

    reauthorize: float
    """Between two decisions on a statement that runs."""
    statement: float
    """After which a statement is cancelled."""


class Admission:
    """Admits the statements of one session."""

    def __init__(
        self,
        judge: Judge,
        conversation: Conversation,
        transaction: Transaction,
        output: Output,
        attribution: SessionAttribution,
        times: Times,
        own_looks: looks.Looks,
    ) -> None:
        self._judge = judge
        self._conversation = conversation
        self._transaction = transaction
        self._output = output
        self.attribution = attribution
        self.registry = Registry()
        self._times = times
        self._looks = own_looks

    # ------------------------------------------------------------------------ what is admitted

    async def read(self, text: bytes) -> Sequence[Prepared]:
        """Return the statements in a text, which are still to be admitted. Raises `Stopped` if it
        can't be read, or holds several of which one is not open."""
        try:
            whole = text.decode()
            if len(text) > _LONG_TEXT:
                # It may take a good part of a second: other sessions go on meanwhile.
                statements = await asyncio.to_thread(read_statements, whole, self._judge.rules)
            else:
                statements = read_statements(whole, self._judge.rules)
            stated = stated_in_comments(whole)
        except UnicodeDecodeError:
            reason = "the text is not UTF-8"
            raise await self._refused(None, UNREADABLE, reason, answers.UNREADABLE) from None
        except Unreadable as error:
            raise await self._refused(
                None, UNREADABLE, str(error), answers.UNREADABLE, error.position
            ) from None
        return [Prepared(each, stated=stated) for each in statements]

    async def parse(self, message: Parse) -> Prepared:
        """Return the prepared statement that a message makes. Raises `Stopped`."""
        await self.check_name(message.name)
        statements = await self.read(message.text)
        if len(statements) > 1:
            raise await self._refused(None, UNREADABLE, _SEVERAL, answers.UNREADABLE)
        if not statements:
            return Prepared(_EMPTY)
        prepared = await self.admit(statements[0])
        prepared.types = tuple(each for each in message.types if each >= looks.FIRST_NORMAL_OID)
        return prepared

    async def admit(self, prepared: Prepared) -> Prepared:
        """Return a statement as it may be prepared. Raises `Stopped` for one that is closed."""
        statement = prepared.statement
        if self._transaction.failed:
            return prepared  # the server refuses all but the end of the transaction
        if statement.closed is not None:
            raise await self._refused(
                statement, CLOSED_STATEMENT, statement.closed.reason, statement.closed.sqlstate
            )
        if statement.name is not None and statement.name.startswith(RESERVED):
            reason = f"names that begin with `{RESERVED}` are the sidecar's own"
            raise await self._refused(statement, CLOSED_STATEMENT, reason, answers.CLOSED)
        if statement.route_class in ALWAYS_DENIED:
            reason = "`COPY` is closed: it copies a whole relation; read it by `SELECT`"
            raise await self._refused(statement, CLOSED_STATEMENT, reason, answers.CLOSED)
        if statement.route_class is RouteClass.WRITE and not self._judge.writes:
            reason = "the statement writes, and the source denies writes"
            raise await self._refused(statement, WRITE_DENIED, reason, answers.DENIED)
        unsure = [each.name for each in statement.allowed_names if each.schema is None]
        if unsure and (closed := await self._closed_function(unsure)) is not None:
            raise await self._refused(statement, CLOSED_STATEMENT, closed, answers.CLOSED)
        if statement.executed is not None:
            await self._check_executed(statement, statement.executed)
        own = statement.verb in (Verb.SET, Verb.RESET) and (statement.name or "").startswith(PREFIX)
        if own:
            prepared.local = statement.verb.value.upper()
        return prepared

    async def _check_executed(self, statement: Statement, name: str) -> None:
        """Raise `Stopped` unless `EXECUTE` may run the prepared statement of this name."""
        prepared = self.registry.prepared.get(name.encode())
        if prepared is None:
            # A function may have prepared it, with what it has read as a constant.
            reason = f"the session has not prepared `{name}`"
            raise await self._refused(statement, CLOSED_STATEMENT, reason, "26000")
        if prepared.statement.shown_parameters:
            reason = f"`{name}` shows a parameter of the server by its name: run it by `Bind`"
            raise await self._refused(statement, CLOSED_STATEMENT, reason, answers.CLOSED)

    async def check_values(self, statement: Statement, message: Bind) -> None:
        """Raise `Stopped` if a statement shows a parameter that an agent may not see."""
        for number in statement.shown_parameters:
            value = message.values[number - 1] if number <= len(message.values) else None
            reason = value_refusal(value)
            if reason is not None:
                raise await self._refused(statement, CLOSED_STATEMENT, reason, answers.CLOSED)

    async def _closed_function(self, names: Sequence[str]) -> str | None:
        """Return why a function may not be called by a name without a schema: the server has one
        of that name that `functions.allow` doesn't cover. None if it covers all of them."""
        outcome = await self._conversation.run([self._looks.functions(names)])
        if outcome.error is not None:
            return "the server does not say which functions it has"
        allowed = self._judge.rules.allowed
        for each in looks.qualified(outcome.answers[0]):
            if not allowed.allows(each):
                return (
                    f"`{each.name}` may stand for `{each}`, which `functions.allow` doesn't cover"
                )
        return None

    def is_judged(self, prepared: Prepared) -> bool:
        """Return whether the statement may read something, so that its reads are looked at."""
        statement = prepared.statement
        # The value of a parameter may run the code of its type, and a function of the server may
        # have a namesake.
        names_code = bool(prepared.types or statement.functions)
        retrieves = statement.route_class is not RouteClass.OPEN
        return not self._transaction.failed and (retrieves or names_code)

    def judge(self, prepared: Prepared, bound: Bind | None = None) -> Judgement:
        """Return a new judgement of a statement, with the values in `bound`."""
        statement = prepared.statement
        values = () if bound is None else _values(bound)
        judgement = self._judge.of(statement, self.attribution.of(prepared.stated), values)
        if statement.verb in (Verb.FETCH, Verb.MOVE) and statement.name is not None:
            cursor = self.registry.portals.get(statement.name.encode())
            if cursor is not None and cursor.judgement is not None:
                judgement.reads |= cursor.judgement.reads
        return judgement

    def cursor(self, statement: Statement, declared: Portal) -> Judgement | None:
        """Return the judgement of a cursor's query, which `declared` has declared: what it reads is
        known, and is decided when the cursor is used."""
        if declared.judgement is None:
            return None
        judgement = self._judge.of(statement, declared.judgement.who)
        judgement.reads |= declared.judgement.reads
        return judgement

    def set_attribution(self, statement: Statement) -> None:
        """Do what a statement `SET sluice.…` or `RESET sluice.…` says."""
        self.attribution.set(statement.setting or Setting(statement.name or "", None))

    # ----------------------------------------------------------------------- what is refused

    async def check_name(self, name: bytes) -> None:
        """Raise `Stopped` for a name that is the sidecar's own, or that the server cuts off: two
        names would then mean one thing."""
        if len(name) > MOST_NAME_BYTES:
            reason = f"a name has more than {MOST_NAME_BYTES} bytes"
            raise await self._refused(None, CLOSED_STATEMENT, reason, answers.CLOSED)
        if name.startswith(RESERVED.encode()):
            reason = f"names that begin with `{RESERVED}` are the sidecar's own"
            raise await self._refused(None, CLOSED_STATEMENT, reason, answers.CLOSED)

    def refuse_unknown(self, what: str, name: bytes, sqlstate: str) -> Stopped:
        """Tell the agent that the session has no prepared statement or portal of a name, and return
        what to raise. The server may know it all the same: of a statement that was denied."""
        shown = name.decode("utf-8", "replace")
        self._output.refuse(Refusal(sqlstate, f'{what} "{shown}" does not exist'))
        return Stopped()

    async def refuse_message(self, frame: Frame) -> None:
        """Refuse a message of a type that is closed, such as a call of a function by its oid."""
        kind = frame.kind.decode("latin-1")
        reason = f"messages of the type `{kind}` are closed"
        raise await self._refused(None, CLOSED_STATEMENT, reason, answers.CLOSED)

    async def _refused(
        self,
        statement: Statement | None,
        policy_name: str,
        reason: str,
        sqlstate: str,
        position: int = 0,
    ) -> Stopped:
        """Record that a statement is denied for a reason of its own, tell the agent, and return
        what to raise."""
        judgement = self._judge.of(statement or _EMPTY, self.attribution.of())
        try:
            named = await self._resolved(statement)
            denied = await judgement.refuse(policy_name, reason, named)
            refusal = answers.of_denial(denied, sqlstate)
            self._output.refuse(refusal._replace(position=position))
        except SluiceError as error:
            self._output.refuse(answers.of_failure(error))
        return Stopped()

    async def _resolved(self, statement: Statement | None) -> list[looks.Relation]:
        """Return the relations that a statement's text names, for the record of its denial."""
        if statement is None or not statement.relations or self._transaction.failed:
            return []
        outcome = await self._conversation.run([self._looks.resolve(statement.relations)])
        return [] if outcome.error is not None else looks.relations(outcome.answers[0])

    @asynccontextmanager
    async def told(self, judgement: Judgement, portal: Portal | None = None) -> AsyncIterator[None]:
        """Tell the agent what stops the `with` block, and raise `Stopped`. While it runs, the
        statement is judged again every second, and cancelled if it is no longer allowed, or takes
        too long: the server's own limit counts each batch of rows anew."""
        watch = _Watch(judgement, self._conversation, self._times)
        try:
            with watch:
                yield
            if watch.stopped is not None:
                raise watch.stopped
            return
        except (Denied, SluiceError) as error:
            refusal = answers.of_stop(watch.stopped or error)
        except TooMuchHeld:
            await self._conversation.abandon()
            refusal = Refusal(
                answers.TOO_LARGE,
                "the rows of a batch take more than `result.hold` allows",
                hint="Read fewer or narrower rows, or set a larger `result.hold`.",
            )
        except TooMuchReturned:
            refusal = Refusal(
                answers.TOO_LARGE,
                "the statement returns more than `result.max_bytes` allows",
                hint="Read fewer rows, or set a larger `result.max_bytes`.",
            )
        except CannotLook:
            log.warning("a statement is denied: the server does not say what was read")
            refusal = Refusal(answers.DENIED, "the server does not say what the statement reads")
        # Notices may tell what was read; a parameter is a setting of the session.
        asides = self._conversation.take_asides()
        self._output.frames((), [each for each in asides if each.kind == PARAMETER])
        if portal is not None:
            portal.end(TRUNCATED)
        else:
            judgement.end(Released().result(), FAILED)
        self._output.refuse(refusal)
        raise Stopped


def _values(bound: Bind) -> list[str | bytes | None]:
    """Return the values that a message binds: texts as texts."""
    formats = bound.formats
    found: list[str | bytes | None] = []
    for index, value in enumerate(bound.values):
        kind = formats[index if len(formats) > 1 else 0] if formats else 0
        if value is None or kind == 1:
            found.append(value)
        else:
            found.append(value.decode("utf-8", "replace"))
    return found


class _Watch:
    """Judges a statement again and again while it runs, and cancels it at the server once it is no
    longer allowed, or takes too long."""

    def __init__(self, judgement: Judgement, conversation: Conversation, times: Times) -> None:
        self._judgement = judgement
        self._conversation = conversation
        self._times = times
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.stopped: Denied | SluiceError | None = None
        """Why the statement was cancelled: it was denied, and this recorded or not; None if it is
        still allowed."""

    def __enter__(self) -> None:
        # Most statements have ended before, and cost no more than a timer.
        loop = asyncio.get_running_loop()

        def start() -> None:
            self._task = loop.create_task(self._run())

        self._timer = loop.call_later(self._times.reauthorize, start)

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._times.statement - self._times.reauthorize
        while True:
            try:
                await self._judgement.reauthorize()
            except (Denied, SluiceError) as stopped:
                self.stopped = stopped
                await self._conversation.cancel()
                return
            if loop.time() >= end:
                await self._conversation.cancel()
                end = math.inf
            await asyncio.sleep(self._times.reauthorize)
