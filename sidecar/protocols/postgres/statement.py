"""Reads a text of SQL: what each statement does, and what it names.

    parser.py     text -> parse tree, or `Unreadable`
    query.py      parse tree of a query -> the names in it, and why it is closed
    statement.py  parse tree of a statement -> `Statement`: its verb and class

What a statement does with the names is decided elsewhere: a relation by policies, a function by the
server's catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from sidecar.protocols.postgres import parser
from sidecar.protocols.postgres.names import QualifiedName
from sidecar.protocols.postgres.parameters import Setting
from sidecar.protocols.protocol import RouteClass

FEATURE_NOT_SUPPORTED = "0A000"
INVALID_PARAMETER_VALUE = "22023"


class Verb(Enum):
    """What a session has to do with a statement."""

    QUERY = "query"
    """`SELECT`, `VALUES`, `TABLE`, `INSERT`, `UPDATE`, `DELETE`, `MERGE`."""
    EXPLAIN = "explain"
    """`inner` is what is explained; with `analyze` it runs."""
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    RELEASE = "release"
    ROLLBACK_TO = "rollback to"
    SET = "set"
    """`setting` has the parameter and its value; None for `SET TRANSACTION`."""
    RESET = "reset"
    """`name` is the parameter; None for all."""
    SHOW = "show"
    DISCARD = "discard"
    """`name` is `all`, `plans`, `sequences` or `temp`."""
    DECLARE = "declare"
    FETCH = "fetch"
    MOVE = "move"
    CLOSE = "close"
    """`name` is the cursor; None for all."""
    PREPARE = "prepare"
    EXECUTE = "execute"
    DEALLOCATE = "deallocate"
    """`name` is the prepared statement; None for all."""
    COPY_OUT = "copy out"
    """`inner` is the query; None for a table, which `relations` has."""
    COPY_IN = "copy in"
    UNLISTEN = "unlisten"
    CLOSED = "closed"
    """A statement of no other kind, which `closed` says."""


class Closed(NamedTuple):
    """Why a statement may not run, whatever the policies say."""

    reason: str
    sqlstate: str = FEATURE_NOT_SUPPORTED


class Fetch(NamedTuple):
    """How far `FETCH` and `MOVE` go."""

    direction: str
    """`forward`, `backward`, `absolute` or `relative`."""
    rows: int | None
    """The number of rows, or the position; None for all."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a text."""

    text: str
    """Exactly as the agent sent it, from its first word to the `;`, which is left out. The last
    statement of a text has what comes behind it too, such as a comment."""
    verb: Verb
    route_class: RouteClass
    """RETRIEVE, WRITE, OPEN, BULK for `COPY`, or ADMIN for what is closed. An open query may still
    call `pg_advisory_unlock_all`, of which the server may have a namesake."""
    closed: Closed | None = None
    relations: tuple[QualifiedName, ...] = ()
    """The relations that the text names, in FROM and the like and as targets, without references to
    its own CTEs. Constants of the type `regclass` are not among them."""
    targets: tuple[QualifiedName, ...] = ()
    """Those of `relations` that it writes."""
    functions: tuple[QualifiedName, ...] = ()
    """All functions that it calls by name. Unless the server has no namesake of theirs outside
    `pg_catalog`, foreign code may run."""
    operators: tuple[QualifiedName, ...] = ()
    """All operators, `=` also where the server compares without one in the text. As `functions`."""
    types: tuple[QualifiedName, ...] = ()
    """All types, also those of relations: `null::hr.payroll` names the columns of one."""
    fields: tuple[str, ...] = ()
    """The names behind a dot. Each calls a function of that name, if there is no such column."""
    extension_names: tuple[QualifiedName, ...] = ()
    """Functions, operators and types of known extensions, to be verified by the session: foreign
    code, unless the extension owns all that have the name."""
    allowed_names: tuple[QualifiedName, ...] = ()
    """Functions that `functions.allow` covers. One without a schema is covered by its last part
    alone, so the session has to verify the schema."""
    foreign: bool = False
    """True if the text names a function, an operator or a type that is known to be neither the
    server's own nor an extension's."""
    row_lock: bool = False
    """True for `FOR UPDATE`, `FOR SHARE` and the like anywhere."""
    returns_rows: bool = False
    """True if it may return rows."""
    parameters: int = 0
    """The highest number of a `$1`."""
    shown_parameters: tuple[int, ...] = ()
    """The numbers of those that name a run-time parameter to show (`current_setting($1)`). The
    session judges their values, when they are bound, by `calls.value_refusal`."""
    name: str | None = None
    """The cursor, prepared statement, savepoint or parameter."""
    chained: bool = False
    """True if another transaction begins where this one ends (`AND CHAIN`)."""
    setting: Setting | None = None
    inner: Statement | None = None
    """What `DECLARE`, `PREPARE`, `EXPLAIN` and `COPY (…)` hold, with the whole statement as its
    text."""
    fetch: Fetch | None = None
    analyze: bool = False
    """True for `EXPLAIN` that runs the statement."""

    @property
    def executed(self) -> str | None:
        """The prepared statement that `EXECUTE` runs, also one below `EXPLAIN`; None if it is no
        such statement."""
        for each in (self, self.inner):
            if each is not None and each.verb is Verb.EXECUTE:
                return each.name
        return None

    def fingerprint(self) -> str:
        """Return the fingerprint: 16 hexadecimal digits, the same for statements that differ in
        constants only. Takes about 20 µs for a short statement."""
        return parser.fingerprint(self.text)
