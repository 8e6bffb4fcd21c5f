"""Reads the statements of a text (`read_statements`), by a function for each kind of statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sidecar.protocols.postgres import parser
from sidecar.protocols.postgres.names import CATALOG, QualifiedName
from sidecar.protocols.postgres.node_types import words_of
from sidecar.protocols.postgres.parameters import Setting, may_reset, refusal, show_refusal
from sidecar.protocols.postgres.parser import Unreadable
from sidecar.protocols.postgres.query import Node, QueryContents, Rules, collect, relation_name
from sidecar.protocols.postgres.statement import (
    FEATURE_NOT_SUPPORTED,
    INVALID_PARAMETER_VALUE,
    Closed,
    Fetch,
    Statement,
    Verb,
)
from sidecar.protocols.protocol import RouteClass

MAX_STATEMENTS = 100
MAX_PARAMETERS = 1000
MAX_RELATIONS = 64

DEFAULT_RULES = Rules()
_QUERIES = frozenset({"SelectStmt", "InsertStmt", "UpdateStmt", "DeleteStmt", "MergeStmt"})
_EXPLAINED = _QUERIES | {"DeclareCursorStmt", "ExecuteStmt"}
_UNLOCK_ALL = {
    QualifiedName(None, "pg_advisory_unlock_all"),
    QualifiedName(CATALOG, "pg_advisory_unlock_all"),
}
_WITH_HOLD = 0x20
_EVERYTHING = 2**63 - 1

_TRANSACTION_VERBS = {
    "TRANS_STMT_BEGIN": Verb.BEGIN,
    "TRANS_STMT_START": Verb.BEGIN,
    "TRANS_STMT_COMMIT": Verb.COMMIT,
    "TRANS_STMT_ROLLBACK": Verb.ROLLBACK,
    "TRANS_STMT_SAVEPOINT": Verb.SAVEPOINT,
    "TRANS_STMT_RELEASE": Verb.RELEASE,
    "TRANS_STMT_ROLLBACK_TO": Verb.ROLLBACK_TO,
}
_EXPLAIN_OPTIONS = frozenset({
    "analyze", "buffers", "costs", "format", "generic_plan", "memory", "serialize", "settings",
    "summary", "timing", "verbose", "wal",
})  # fmt: skip
_OFF = frozenset({"off", "false", "0"})


def read_statements(text: str, rules: Rules = DEFAULT_RULES) -> tuple[Statement, ...]:
    """Return the statements of a text; none if it has only comments and white space.

    Several are returned only if all are open: what comes after a denied one would run by rules that
    no driver knows. Raises `Unreadable`.
    """
    parsed = parser.parse(text)
    if len(parsed.statements) > MAX_STATEMENTS:
        raise Unreadable(f"the text has more than {MAX_STATEMENTS} statements")
    found = tuple(_read_raw(raw, parsed.data, rules) for raw in parsed.statements)
    if len(found) > 1 and any(each.route_class is not RouteClass.OPEN for each in found):
        raise Unreadable(
            "a text of several statements may only hold those that read and write nothing;"
            " send them one by one"
        )
    return found


def _read_raw(raw: dict[str, Any], data: bytes, rules: Rules) -> Statement:
    start = raw.get("stmt_location", 0)
    length = raw.get("stmt_len", 0)
    text = data[start : start + length if length else None].decode()
    statement = _read(raw["stmt"], text, rules)
    if statement.parameters > MAX_PARAMETERS:
        raise Unreadable(f"the statement has more than {MAX_PARAMETERS:,} parameters")
    if len(statement.relations) > MAX_RELATIONS:
        raise Unreadable(f"the statement names more than {MAX_RELATIONS} relations")
    return statement


def _read(node: Node, text: str, rules: Rules) -> Statement:
    ((node_type, members),) = node.items()
    if node_type in _QUERIES:
        return _query(node, text, rules)
    read = _READERS.get(node_type)
    if read is None:
        return _closed(text, f"`{words_of(node_type)}` is closed")
    return read(members, text, rules)


def _closed(text: str, reason: str, verb: Verb = Verb.CLOSED) -> Statement:
    return Statement(text, verb, RouteClass.ADMIN, Closed(reason))


def _open(text: str, verb: Verb, name: str | None = None) -> Statement:
    return Statement(text, verb, RouteClass.OPEN, name=name)


def _query(node: Node, text: str, rules: Rules) -> Statement:
    ((node_type, members),) = node.items()
    found = QueryContents(rules)
    collect(found, [node])
    statement = replace(
        _of(found, text, Verb.QUERY),
        returns_rows=node_type == "SelectStmt" or "returningClause" in members,
    )
    if statement.route_class is RouteClass.RETRIEVE and _reads_nothing(found):
        return replace(statement, route_class=RouteClass.OPEN)
    return statement


def _reads_nothing(found: QueryContents) -> bool:
    """Return whether a query names nothing at all, such as `SELECT 1`, by which pools ask if a
    connection is alive, or only what asyncpg's reset calls."""
    others = (found.relations, found.operators, found.types, found.fields)
    return not any(others) and found.functions.keys() <= _UNLOCK_ALL


def _of(found: QueryContents, text: str, verb: Verb) -> Statement:
    """Return a statement with what was collected."""
    route_class = RouteClass.WRITE if found.writes or found.row_lock else RouteClass.RETRIEVE
    return Statement(
        text,
        verb,
        RouteClass.ADMIN if found.closed is not None else route_class,
        None if found.closed is None else Closed(found.closed),
        relations=tuple(found.relations),
        targets=tuple(found.targets),
        functions=tuple(found.functions),
        operators=tuple(found.operators),
        types=tuple(found.types),
        fields=tuple(found.fields),
        extension_names=tuple(found.extension_names),
        allowed_names=tuple(found.allowed_names),
        foreign=found.foreign,
        row_lock=found.row_lock,
        parameters=found.parameters,
        shown_parameters=tuple(found.shown_parameters),
    )


def _around(inner: Statement, verb: Verb, name: str | None = None) -> Statement:
    """Return a statement that holds another one, and names and does what that does."""
    open_query = inner.route_class is RouteClass.OPEN
    route_class = RouteClass.RETRIEVE if open_query else inner.route_class
    return replace(inner, verb=verb, route_class=route_class, name=name, inner=inner)


def _explain(members: Node, text: str, rules: Rules) -> Statement:
    ((explained, _),) = members["query"].items()
    if explained not in _EXPLAINED:
        return _closed(text, f"`EXPLAIN` of `{words_of(explained)}` is closed", Verb.EXPLAIN)
    analyze = False
    for option in members.get("options", ()):
        element = option["DefElem"]
        if element["defname"] not in _EXPLAIN_OPTIONS:
            reason = f"`EXPLAIN` with `{element['defname']}` is closed"
            return _closed(text, reason, Verb.EXPLAIN)
        # In doubt it runs the statement.
        if element["defname"] == "analyze":
            analyze |= _option_text(element).lower() not in _OFF
    inner = _read(members["query"], text, rules)
    return replace(_around(inner, Verb.EXPLAIN), returns_rows=True, analyze=analyze)


def _option_text(element: Node) -> str:
    """Return the value of an option; an empty text for none."""
    for value in element.get("arg", {}).values():
        return str(next(iter(value.values()), "0"))
    return ""


def _declare(members: Node, text: str, rules: Rules) -> Statement:
    inner = _read(members["query"], text, rules)
    statement = _around(inner, Verb.DECLARE, members["portalname"])
    if inner.closed is None and members.get("options", 0) & _WITH_HOLD:
        reason = "a cursor `WITH HOLD` runs when the transaction ends, where it can't be judged"
        statement = replace(statement, route_class=RouteClass.ADMIN, closed=Closed(reason))
    return replace(statement, returns_rows=False)


def _prepare(members: Node, text: str, rules: Rules) -> Statement:
    types = QueryContents(rules)
    collect(types, members.get("argtypes", ()))
    inner = _read(members["query"], text, rules)
    if inner.verb is not Verb.QUERY:
        return _closed(text, "`PREPARE` of such a statement is closed", Verb.PREPARE)
    if inner.shown_parameters:
        return _closed(text, "`PREPARE` of `current_setting($1)` is closed", Verb.PREPARE)
    # A parameter's value may run the code of its type, whenever the inner query is executed.
    if types.types and inner.route_class is RouteClass.OPEN:
        inner = replace(inner, route_class=RouteClass.RETRIEVE)
    inner = replace(
        inner,
        types=tuple(dict.fromkeys((*types.types, *inner.types))),
        extension_names=tuple(dict.fromkeys((*types.extension_names, *inner.extension_names))),
        foreign=inner.foreign or types.foreign,
    )
    return replace(_around(inner, Verb.PREPARE, members["name"]), returns_rows=False)


def _execute(members: Node, text: str, rules: Rules) -> Statement:
    found = QueryContents(rules)
    collect(found, members.get("params", ()))
    return replace(_of(found, text, Verb.EXECUTE), name=members["name"], returns_rows=True)


def _fetch(members: Node, text: str, _rules: Rules) -> Statement:
    # A count of 0 is left out of the tree, as are all zeros.
    count = members.get("howMany", 0)
    direction = members["direction"].removeprefix("FETCH_").lower()
    return Statement(
        text,
        Verb.MOVE if members.get("ismove") else Verb.FETCH,
        RouteClass.RETRIEVE,
        name=members["portalname"],
        fetch=Fetch(direction, None if count == _EVERYTHING else count),
        returns_rows=not members.get("ismove"),
    )


def _close(members: Node, text: str, _rules: Rules) -> Statement:
    return _open(text, Verb.CLOSE, members.get("portalname"))


def _deallocate(members: Node, text: str, _rules: Rules) -> Statement:
    return _open(text, Verb.DEALLOCATE, None if members.get("isall") else members.get("name"))


def _discard(members: Node, text: str, _rules: Rules) -> Statement:
    return _open(text, Verb.DISCARD, members["target"].removeprefix("DISCARD_").lower())


def _unlisten(members: Node, text: str, _rules: Rules) -> Statement:
    return _open(text, Verb.UNLISTEN, members.get("conditionname"))


def _transaction(members: Node, text: str, _rules: Rules) -> Statement:
    verb = _TRANSACTION_VERBS.get(members["kind"])
    if verb is None:
        return _closed(text, "a transaction in two phases would outlive its session")
    statement = _open(text, verb, members.get("savepoint_name"))
    return replace(statement, chained=bool(members.get("chain")))


def _show(members: Node, text: str, _rules: Rules) -> Statement:
    name = members["name"].lower()
    reason = show_refusal(name)
    if reason is not None:
        return replace(_closed(text, reason, Verb.SHOW), name=name)
    return replace(_open(text, Verb.SHOW, name), returns_rows=True)


def _set(members: Node, text: str, rules: Rules) -> Statement:
    kind = members["kind"]
    if kind == "VAR_RESET_ALL":
        return _open(text, Verb.RESET)
    name = members["name"].lower()
    if kind == "VAR_SET_MULTI":
        if name == "transaction snapshot":
            return _closed(text, "`SET TRANSACTION SNAPSHOT` reads by another session", Verb.SET)
        return _open(text, Verb.SET)
    if kind == "VAR_RESET":
        if not may_reset(name):
            return _closed(text, f"`{name}` is not one of the parameters that an agent may set")
        return _open(text, Verb.RESET, name)
    value = _value(members.get("args", ())) if kind == "VAR_SET_VALUE" else None
    setting = Setting(name, value, bool(members.get("is_local")))
    reason = refusal(setting, rules.limits)
    statement = replace(_open(text, Verb.SET, name), setting=setting)
    if reason is None:
        return statement
    closed = Closed(reason, INVALID_PARAMETER_VALUE if may_reset(name) else FEATURE_NOT_SUPPORTED)
    return replace(statement, route_class=RouteClass.ADMIN, closed=closed)


def _value(arguments: list[Node]) -> str:
    """Return the value of a `SET` as a text."""
    return ", ".join(_constant(each) for each in arguments)


def _constant(node: Node) -> str:
    # An interval, which only `SET TIME ZONE` has.
    if "TypeCast" in node:
        return _constant(node["TypeCast"]["arg"])
    for kind, value in node["A_Const"].items():
        if kind == "boolval":
            return "true" if value.get("boolval") else "false"
        if kind in {"sval", "ival", "fval"}:
            return str(value.get(kind, "" if kind == "sval" else 0))
    return ""


def _copy(members: Node, text: str, rules: Rules) -> Statement:
    if members.get("is_program"):
        return _closed(text, "`COPY` with a program runs a command on the server")
    if "filename" in members:
        return _closed(text, "`COPY` with a file reads or writes the server's files")
    if "query" in members:
        inner = _read(members["query"], text, rules)
        statement = _around(inner, Verb.COPY_OUT)
        if inner.closed is not None:
            return statement
        return replace(statement, route_class=RouteClass.BULK, returns_rows=False)
    found = QueryContents(rules)
    where = members.get("whereClause")
    collect(found, [] if where is None else [where])
    name: QualifiedName = relation_name(members["relation"])
    is_in = bool(members.get("is_from"))
    statement = _of(found, text, Verb.COPY_IN if is_in else Verb.COPY_OUT)
    if statement.closed is not None:
        return statement
    return replace(
        statement,
        route_class=RouteClass.BULK,
        relations=tuple(dict.fromkeys((name, *statement.relations))),
        targets=(name,) if is_in else (),
    )


_READERS: dict[str, Callable[[Node, str, Rules], Statement]] = {
    "ExplainStmt": _explain,
    "DeclareCursorStmt": _declare,
    "PrepareStmt": _prepare,
    "ExecuteStmt": _execute,
    "FetchStmt": _fetch,
    "ClosePortalStmt": _close,
    "DeallocateStmt": _deallocate,
    "DiscardStmt": _discard,
    "UnlistenStmt": _unlisten,
    "TransactionStmt": _transaction,
    "VariableShowStmt": _show,
    "VariableSetStmt": _set,
    "CopyStmt": _copy,
}
