"""Decides whether a statement may read what the server says that it reads, and records it.

A statement is decided in parts: by the relations that the first looks show, and again for each
relation that appears later. What a look shows twice is decided once. Each relation has a record of
its own; those of one look are stored all or none. Knows relations, sources and decisions. Knows
nothing of messages.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from policies.statement import Look
from sidecar.http.attribution import Attribution
from sidecar.platform.eager import Watch, unwatched
from sidecar.protocols.postgres.catalog import closed_reason, read_through
from sidecar.protocols.postgres.names import QualifiedName
from sidecar.protocols.postgres.query import Rules
from sidecar.protocols.postgres.relations import RelationNames
from sidecar.protocols.postgres.statement import Statement
from sidecar.protocols.protocol import SourceRef
from sidecar.proxy.pipeline.authorizer import Authorizer, Denied, Refused
from sidecar.proxy.pipeline.lineage import COMPLETED, LineageRecorder
from sidecar.proxy.pipeline.statement_reads import StatementReads
from sidecar.proxy.postgres.looks import FIRST_NORMAL_OID, Relation
from sidecar.recorder import RecordedDecision

CLOSED_STATEMENT = "closed_statement"
CLOSED_CATALOG = "closed_catalog"
UNKNOWN_RELATION = "unknown_relation"

Parameters = Sequence[str | bytes | None]
"""The values that are bound to a statement: texts, binary values, or None for NULL."""

_RECORDED_TEXT = 16 * 1024
"""The most characters of a statement's text that its records hold."""


class Seen(NamedTuple):
    """A relation that a statement reads, and the look at which it was first seen."""

    relation: Relation
    look: Look


class Result(NamedTuple):
    """What left of a statement's result: the numbers of rows and of bytes, and the SHA-256, in
    hex, of the bytes."""

    rows: int
    size: int
    sha256: str
    sqlstate: str = ""
    """The code of the error that the statement ended with; empty if it ended without one."""


class Judgement:
    """The decisions about one execution of a statement by one caller."""

    def __init__(
        self, judge: "Judge", statement: Statement, who: Attribution, parameters: Parameters
    ) -> None:
        self._judge = judge
        self.statement = statement
        self._parameters = parameters
        self._marked: StatementReads | None = None
        self.who = who
        self.decisions: list[RecordedDecision] = []
        self._looks: dict[SourceRef, Look] = {}
        self.refs: dict[SourceRef, Look] = {}
        """The sources that were decided, with the look at which each was first seen."""
        self.reads: dict[int, Relation] = {}
        """The relations that were seen, by oid."""
        self.only_asks = False
        """True while the statement is only prepared: nothing is read yet, so only a denial is
        recorded."""
        self.started = judge.now()

    async def decide(self, seen: Iterable[Seen], watch: Watch = unwatched) -> None:
        """Decide about the relations that this statement reads, if they aren't decided yet. Raises
        `Denied` after the denial is on disk, and `SpoolError` if nothing can be recorded."""
        authorizer = self._judge.authorizer
        try:
            new: dict[SourceRef, Look] = {}
            through = self._read_through()
            for relation, look in seen:
                ref = self._source(relation, through)
                if ref is not None and ref not in self.refs:
                    new.setdefault(ref, look)
            self._looks |= new
            if new and self.only_asks:
                await authorizer.reauthorize(new, self.who, statement=self._record())
            elif new:
                self.decisions += await authorizer.allow(
                    new, self.who, watch, statement=self._record()
                )
        except Refused as refused:
            raise await authorizer.refuse(refused, statement=self._record()) from None
        self.refs |= new

    async def refuse(
        self, policy_name: str, reason: str, relations: Iterable[Relation] = ()
    ) -> Denied:
        """Record that the statement is denied for a reason of its own, and return the denial. The
        record names the first of `relations`, or the whole source."""
        named = (self._judge.names.of(each.schema or "", each.name or "") for each in relations)
        refused = Refused(403, policy_name, reason, self.who, source=next(named, None))
        return await self._judge.authorizer.refuse(refused, statement=self._record())

    async def durable(self) -> None:
        """Wait until the records are on disk. Raises `SpoolError` if one is lost."""
        for recorded in self.decisions:
            await recorded.durable

    async def reauthorize(self) -> None:
        """Raise `Denied`, recorded, if one of the sources is no longer allowed."""
        await self._judge.authorizer.reauthorize(self.refs, self.who, statement=self._record())

    def end(self, result: Result, outcome: str = COMPLETED) -> None:
        """Note what the statement returned, as lineage of each of its records."""
        self._judge.note(self, result, outcome)

    def _record(self) -> StatementReads | None:
        """Return what the records say of the statement; None if there is no text."""
        if self._marked is None and self.statement.text:
            text = self.statement.text
            marked = StatementReads.of(
                text.encode(),
                self._judge.new_id(),
                fingerprint=self.statement.fingerprint(),
                parameters=self._parameters,
                looks=self._looks,
            )
            # The digest is of the whole.
            self._marked = marked._replace(text=text[:_RECORDED_TEXT])
        return self._marked

    def _read_through(self) -> frozenset[str]:
        """Return the names of the closed relations in the server's catalog that were read by its
        own open views alone."""
        own = [each for each in self.reads.values() if each.oid < FIRST_NORMAL_OID]
        others = [each for each in self.reads.values() if each.oid >= FIRST_NORMAL_OID]
        if self.statement.foreign or not all(each.plain for each in others):
            return frozenset()  # a view or a function of the database may have read them
        found = read_through(QualifiedName(each.schema, each.name or "") for each in own)
        return found - {each.name for each in self.statement.relations}

    def _source(self, relation: Relation, through: frozenset[str]) -> SourceRef | None:
        """Return the source that a relation is; None for one of the server's own catalog that is
        open, or is in `through`. Raises `Refused`."""
        schema, name = relation.schema, relation.name
        if schema is None or name is None:
            reason = (
                f"the statement reads a relation with the oid {relation.oid}, which has no name"
            )
            raise Refused(403, UNKNOWN_RELATION, reason, self.who)
        own = relation.oid < FIRST_NORMAL_OID
        if own and name in through:
            return None
        closed = closed_reason(QualifiedName(schema, name))
        if closed is not None:
            source = self._judge.names.of(schema, name)
            raise Refused(403, CLOSED_CATALOG, closed, self.who, source=source)
        if own:
            return None
        return self._judge.names.of(schema, name)


class Judge:
    """Judges the statements of one source's sessions."""

    def __init__(
        self,
        names: RelationNames,
        authorizer: Authorizer,
        lineage: LineageRecorder,
        new_id: Callable[[], str],
        *,
        writes: bool,
        rules: Rules,
    ) -> None:
        self.names = names
        self.authorizer = authorizer
        self._lineage = lineage
        self.new_id = new_id
        """Makes the id that joins the records of one execution of a statement."""
        self.writes = writes
        """True if statements may write."""
        self.rules = rules
        """What the settings say about statements."""

    def now(self) -> float:
        return self._lineage.now()

    async def admit(self, who: Attribution) -> None:
        """Raise `Denied`, recorded, if the caller may ask for nothing at all."""
        await self.authorizer.reauthorize((), who)

    async def refuse(self, policy_name: str, reason: str, who: Attribution) -> None:
        """Record a denial under the whole source, for a connection that gets no session."""
        await self.authorizer.record(Refused(403, policy_name, reason, who))

    def of(self, statement: Statement, who: Attribution, parameters: Parameters = ()) -> Judgement:
        """Return the judgement of one execution of a statement, with these values."""
        return Judgement(self, statement, who, parameters)

    def note(self, judgement: Judgement, result: Result, outcome: str) -> None:
        detail: dict[str, int | str] = {
            "rows": result.rows,
            "bytes": result.size,
            "sha256": result.sha256,
            "duration_ms": int((self.now() - judgement.started) * 1000),
        }
        if result.sqlstate:
            detail["sqlstate"] = result.sqlstate
        self._lineage.note_detail(judgement.decisions, detail, outcome)
