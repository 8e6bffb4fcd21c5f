"""Remembers the prepared statements and portals of one session, by name.

A portal of the protocol and a cursor of SQL share their names, as they do in the server; so do
statements prepared by either. What a name stands for is judged again at each use.
"""

from dataclasses import dataclass, field

from sidecar.protocols.postgres.comments import StatedAttribution
from sidecar.protocols.postgres.names import QualifiedName
from sidecar.protocols.postgres.statement import Statement, Verb
from sidecar.protocols.protocol import RouteClass
from sidecar.proxy.postgres.judge import Judgement
from sidecar.proxy.postgres.released import Released

_NOTHING = StatedAttribution()


@dataclass(slots=True)
class Prepared:
    """A prepared statement."""

    statement: Statement
    stated: StatedAttribution = _NOTHING
    """For whom the comments of its text say that it is."""
    local: str | None = None
    """The command tag with which the sidecar answers it by itself; None if the server answers."""
    types: tuple[int, ...] = ()
    """The oids of those types of its parameters that are not the server's own."""
    whole: bool = False
    """True if it is known to read more than what its text names, or to run foreign code."""

    @property
    def may_be_plain(self) -> bool:
        """True if the statement may read no more than what its text names. One that writes runs
        triggers and defaults, and one about a prepared statement or a cursor runs another."""
        statement = self.statement
        reads = statement.verb is Verb.QUERY and statement.route_class is not RouteClass.WRITE
        return reads and not self.whole and not statement.foreign


@dataclass(slots=True)
class Portal:
    """A portal or a cursor."""

    prepared: Prepared
    judgement: Judgement | None
    """The judgement of the statement; None if it needs none."""
    released: Released = field(default_factory=Released)
    plain: bool = False
    """True if it reads nothing that was not decided before it is executed."""
    ended: bool = False
    """True once its result is in the lineage."""

    def end(self, outcome: str, sqlstate: str = "") -> None:
        """Note, once, what has left of the result."""
        if self.judgement is not None and not self.ended:
            self.ended = True
            self.judgement.end(self.released.result(sqlstate), outcome)


class Registry:
    def __init__(self) -> None:
        self.prepared: dict[bytes, Prepared] = {}
        self.portals: dict[bytes, Portal] = {}

    def names_of(self, statement: Statement) -> tuple[QualifiedName, ...]:
        """Return the names in a statement, and in the one that it executes, that may be those of
        relations. A type may be that of a relation's rows, and names its columns."""
        names = (*statement.relations, *statement.types)
        if statement.executed is not None:
            inner = self.prepared.get(statement.executed.encode())
            if inner is not None:
                names += self.names_of(inner.statement)
        return names

    def forget_portals(self) -> list[Portal]:
        """Forget all portals, since the transaction has ended, and return them."""
        portals, self.portals = list(self.portals.values()), {}
        return portals
