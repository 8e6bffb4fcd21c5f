"""Walks the parse tree of a query and collects what it names and does.

Every node is visited. A node that the tables don't know closes the statement, so that syntax of a
later grammar can't slip in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sidecar.protocols.postgres.calls import judge_arguments, shown_parameter
from sidecar.protocols.postgres.function_tables import SAMPLE_METHODS
from sidecar.protocols.postgres.functions import (
    WRITING_FUNCTIONS,
    AllowedFunctions,
    Origin,
    judge_function,
    judge_operator,
    judge_type,
)
from sidecar.protocols.postgres.names import QualifiedName
from sidecar.protocols.postgres.node_types import (
    FUNCTIONS_BY_SYNTAX,
    QUERY_NODES,
    TYPED_MEMBERS,
    words_of,
)

Node = dict[str, Any]
Scope = frozenset[str]
"""The names of the CTEs that a node can refer to."""

_NO_MEMBERS: dict[str, str] = {}
_NOT_VISITED: frozenset[str] = frozenset({"withClause"})
_BETWEEN = ("<", "<=", ">", ">=")
_WRITES = ("InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt")
# Nothing below these has a meaning of its own.
_LEAVES = frozenset({"A_Const", "A_Star", "String", "Integer", "Alias"})
# What is below these is not visited: `WITH` has scopes of its own, and the others are read by the
# functions of `_READ`.
_SKIPPED: dict[str, frozenset[str]] = {
    "SelectStmt": frozenset({"withClause", "intoClause"}),
    "LockingClause": frozenset({"lockedRels"}),
    **dict.fromkeys(_WRITES, frozenset({"withClause", "relation"})),
}


class Rules(NamedTuple):
    """What the settings of a source say about statements."""

    allowed: AllowedFunctions = AllowedFunctions()
    """`functions.allow`."""
    limits: Mapping[str, int] = {}
    """The highest value of each timeout that an agent may set, in milliseconds."""


@dataclass(slots=True)
class QueryContents:
    """What the queries of one statement name and do. Each dictionary is an ordered set."""

    rules: Rules
    relations: dict[QualifiedName, None] = field(default_factory=dict)
    targets: dict[QualifiedName, None] = field(default_factory=dict)
    functions: dict[QualifiedName, None] = field(default_factory=dict)
    operators: dict[QualifiedName, None] = field(default_factory=dict)
    types: dict[QualifiedName, None] = field(default_factory=dict)
    fields: dict[str, None] = field(default_factory=dict)
    extension_names: dict[QualifiedName, None] = field(default_factory=dict)
    allowed_names: dict[QualifiedName, None] = field(default_factory=dict)
    foreign: bool = False
    writes: bool = False
    row_lock: bool = False
    parameters: int = 0
    shown_parameters: dict[int, None] = field(default_factory=dict)
    closed: str | None = None
    """Why the statement is closed, by the first node that closes it."""

    def close(self, reason: str) -> None:
        if self.closed is None:
            self.closed = reason

    def add_operator(self, name: QualifiedName) -> None:
        self.operators[name] = None
        self.note(judge_operator(name), name)

    def add_equals(self) -> None:
        """Note the `=` by which the server compares where the text has no operator."""
        self.add_operator(QualifiedName(None, "="))

    def note(self, origin: Origin, name: QualifiedName) -> None:
        if origin is Origin.EXTENSION:
            self.extension_names[name] = None
        elif origin is not Origin.BUILT_IN:
            self.foreign = True
            if origin is Origin.ALLOWED:
                self.allowed_names[name] = None


def collect(found: QueryContents, nodes: Iterable[Node]) -> None:
    """Collect what wrapped nodes, such as `{"SelectStmt": {…}}`, and all below them name."""
    pending: list[tuple[str, Node, Scope]] = [
        (node_type, members, frozenset()) for node in nodes for node_type, members in node.items()
    ]
    pending.reverse()
    # Not by recursion: a tree is deeper than Python's stack.
    while pending:
        node_type, members, scope = pending.pop()
        if node_type in _LEAVES:
            continue
        if node_type not in QUERY_NODES:
            found.close(f"`{words_of(node_type)}` is not open in a query")
            continue
        read = _READ.get(node_type)
        if read is not None:
            read(found, members, scope)
        for name in FUNCTIONS_BY_SYNTAX.get(node_type, ()):
            found.functions[QualifiedName(None, name)] = None
        if "withClause" in members:
            tables, scope = _common_tables(members["withClause"], scope)
            pending += tables
        pending += _children(found, node_type, members, scope)


def _children(
    found: QueryContents, node_type: str, members: Node, scope: Scope
) -> list[tuple[str, Node, Scope]]:
    """Return the nodes right below a node, the last one first."""
    typed = TYPED_MEMBERS.get(node_type, _NO_MEMBERS)
    skipped = _SKIPPED.get(node_type, _NOT_VISITED)
    children: list[tuple[str, Node, Scope]] = []
    for name, value in members.items():
        if name in skipped:
            continue
        for child in value if type(value) is list else (value,):
            if type(child) is not dict:
                continue
            if name in typed:
                children.append((typed[name], child, scope))
                continue
            for child_type, its_members in child.items():
                # Types begin with a capital, members don't.
                if type(its_members) is dict and child_type[0].isupper():
                    children.append((child_type, its_members, scope))
                else:
                    found.close(f"`{name}` is not open in a query")
    children.reverse()
    return children


def _common_tables(clause: Node, scope: Scope) -> tuple[list[tuple[str, Node, Scope]], Scope]:
    """Return the queries of a `WITH`, each with the scope that it has, and the scope of the
    statement around them."""
    tables = [table["CommonTableExpr"] for table in clause["ctes"]]
    everything = scope | {table["ctename"] for table in tables}
    if clause.get("recursive"):
        # Each can refer to itself, and to later ones too.
        return [("CommonTableExpr", table, everything) for table in tables], everything
    queries: list[tuple[str, Node, Scope]] = []
    for table in tables:
        queries.append(("CommonTableExpr", table, scope))
        scope |= {table["ctename"]}
    return queries, everything


# ------------------------------------------------------------------------------- what a node says
def _range_var(found: QueryContents, members: Node, scope: Scope) -> None:
    name = relation_name(members)
    if name.schema is not None or name.name not in scope:
        found.relations[name] = None


def _select(found: QueryContents, members: Node, _scope: Scope) -> None:
    if "intoClause" in members:
        found.close("`SELECT INTO` creates a table")


def _write(found: QueryContents, members: Node, _scope: Scope) -> None:
    found.writes = True
    # A target is never a CTE, whatever its name.
    target = relation_name(members["relation"])
    found.relations[target] = found.targets[target] = None


def _locking(found: QueryContents, _members: Node, _scope: Scope) -> None:
    # The names in it are aliases of the query's own FROM.
    found.row_lock = True


def _function(found: QueryContents, members: Node, _scope: Scope) -> None:
    name = qualified(members["funcname"])
    found.functions[name] = None
    verdict = judge_function(name, found.rules.allowed)
    closed = verdict.closed
    if closed is None and verdict.origin is Origin.BUILT_IN:
        closed = judge_arguments(name.name, members.get("args", ()), found.rules.limits)
        found.writes |= name.name in WRITING_FUNCTIONS
        if number := shown_parameter(name.name, members.get("args", ())):
            found.shown_parameters[number] = None
    if closed is not None:
        found.close(closed)
    found.note(verdict.origin, name)


def _operator(found: QueryContents, members: Node, _scope: Scope) -> None:
    if "BETWEEN" in members["kind"]:
        for each in _BETWEEN:
            found.add_operator(QualifiedName(None, each))
    else:
        found.add_operator(qualified(members["name"]))


def _sublink(found: QueryContents, members: Node, _scope: Scope) -> None:
    if "operName" in members:
        found.add_operator(qualified(members["operName"]))
    elif "testexpr" in members:
        found.add_equals()


def _case(found: QueryContents, members: Node, _scope: Scope) -> None:
    if "arg" in members:
        found.add_equals()


def _join(found: QueryContents, members: Node, _scope: Scope) -> None:
    if "usingClause" in members or members.get("isNatural"):
        found.add_equals()


def _sort(found: QueryContents, members: Node, _scope: Scope) -> None:
    if "useOp" in members:
        found.add_operator(qualified(members["useOp"]))


def _type(found: QueryContents, members: Node, _scope: Scope) -> None:
    if members.get("pct_type"):
        found.close("`%TYPE` is not open in a query")
    if "names" in members:
        name = qualified(members["names"])
        found.types[name] = None
        found.note(judge_type(name), name)


def _column(found: QueryContents, members: Node, _scope: Scope) -> None:
    # The first is a column or a table, unless it stands alone.
    _add_fields(found, members["fields"][1:])


def _indirection(found: QueryContents, members: Node, _scope: Scope) -> None:
    _add_fields(found, members["indirection"])


def _add_fields(found: QueryContents, parts: Iterable[Node]) -> None:
    for part in parts:
        if "String" in part:
            found.fields[part["String"].get("sval", "")] = None


def _parameter(found: QueryContents, members: Node, _scope: Scope) -> None:
    found.parameters = max(found.parameters, members.get("number", 0))


def _sample(found: QueryContents, members: Node, _scope: Scope) -> None:
    name = qualified(members["method"])
    if not name.may_be_built_in or name.name not in SAMPLE_METHODS:
        found.close(f"the sampling method `{name}` is not known")
    found.functions[name] = None


_READ: dict[str, Callable[[QueryContents, Node, Scope], None]] = {
    "RangeVar": _range_var,
    "SelectStmt": _select,
    **dict.fromkeys(_WRITES, _write),
    "LockingClause": _locking,
    "FuncCall": _function,
    "A_Expr": _operator,
    "SubLink": _sublink,
    "CaseExpr": _case,
    "JoinExpr": _join,
    "SortBy": _sort,
    "TypeName": _type,
    "ColumnRef": _column,
    "A_Indirection": _indirection,
    "ParamRef": _parameter,
    "RangeTableSample": _sample,
}


def relation_name(members: Node) -> QualifiedName:
    """Return the name in a `RangeVar`, without the database: the server accepts only its own."""
    return QualifiedName(members.get("schemaname"), members["relname"])


def qualified(parts: list[Node]) -> QualifiedName:
    """Return the name that a list of strings makes, without a database before the schema."""
    words = [part["String"].get("sval", "") for part in parts]
    return QualifiedName(words[-2] if len(words) > 1 else None, words[-1])
