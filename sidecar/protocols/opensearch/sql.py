"""The indices of a SQL query, in the dialects of OpenSearch (both engines) and Elasticsearch: what
stands behind FROM, behind JOIN, and behind a comma among tables, at any depth.

Strict rather than complete: one SELECT with its subqueries; what stands behind a table must be
something that can stand there. Anything else is `Unresolved`. Pure.
"""

from sidecar.protocols.messages import Unresolved
from sidecar.protocols.opensearch.lexer import MARK, WORD, TokenCursor, tokens

_ENDS_TABLES = frozenset(
    ("where", "group", "having", "order", "limit", "union", "minus", "except", "intersect")
)
_JOINS = frozenset(("join", "inner", "left", "right", "full", "cross", "outer", "on", "using"))

# Words of the language that are no name for a table either.
_NO_ALIAS = frozenset(
    (
        "all",
        "and",
        "as",
        "between",
        "by",
        "distinct",
        "from",
        "in",
        "is",
        "like",
        "not",
        "null",
        "or",
        "select",
        "set",
        "values",
    )
)

# Would change what the words after it mean (`FROM FROZEN x`), or begin what is no query.
_REFUSED = frozenset(
    (
        "call",
        "create",
        "delete",
        "describe",
        "drop",
        "explain",
        "frozen",
        "insert",
        "into",
        "lateral",
        "pivot",
        "show",
        "sys",
        "table",
        "tables",
        "unnest",
        "update",
        "with",
    )
)


def indices_of_sql(query: object) -> list[str]:
    """The index expressions of `query`, as written. Raises `Unresolved`."""
    pieces = tokens(query)
    assert isinstance(query, str)
    if not pieces or pieces[0].text != "select" or pieces[0].kind != WORD:
        raise Unresolved("the query is no SELECT")
    for piece in pieces:
        if piece.kind == WORD and piece.text in _REFUSED:
            raise Unresolved(f"what `{piece.text}` does in a query is not told here")
    found = _walk(TokenCursor(query, pieces))
    if not found:
        raise Unresolved("the query names no index")
    return found


def _walk(cursor: TokenCursor) -> list[str]:
    found: list[str] = []
    # For each open parenthesis, whether a comma there goes on with tables.
    among_tables = [False]
    while (piece := cursor.next()) is not None:
        if piece.kind == WORD and piece.text in ("from", "join"):
            among_tables[-1] = True
            _tables(cursor, found, among_tables)
        elif piece.kind == WORD and piece.text in _ENDS_TABLES:
            among_tables[-1] = False
        elif piece.kind == MARK:
            if piece.text == "(":
                among_tables.append(False)
            elif piece.text == ")":
                among_tables.pop()
                if not among_tables:
                    raise Unresolved("the query's parentheses don't match")
            elif piece.text == "," and among_tables[-1]:
                _tables(cursor, found, among_tables)
            elif piece.text == ";" and cursor.now is not None:
                raise Unresolved("the query is more than one")
    if len(among_tables) != 1:
        raise Unresolved("the query's parentheses don't match")
    return found


def _tables(cursor: TokenCursor, found: list[str], among_tables: list[bool]) -> None:
    """Tables up to what is none. A subquery is left to the walk."""
    while True:
        if cursor.skip("(", "select"):
            among_tables.append(False)
            return
        if cursor.is_word(*_ENDS_TABLES, *_JOINS, *_NO_ALIAS):
            raise Unresolved("the query has no name where one is due")
        found.append(cursor.name())
        _alias(cursor)
        if not cursor.skip(","):
            break
    if cursor.now is None or cursor.is_word(*_ENDS_TABLES, *_JOINS):
        return
    if not cursor.is_mark(")") and not cursor.is_mark(";"):
        raise Unresolved("what stands behind a table can't be told")


def _alias(cursor: TokenCursor) -> None:
    said = cursor.skip("as")
    piece = cursor.now
    plain = piece is not None and piece.kind == WORD
    if plain and not cursor.is_word(*_ENDS_TABLES, *_JOINS, *_NO_ALIAS):
        cursor.next()
    elif said or cursor.is_word(*_NO_ALIAS):
        raise Unresolved("what stands behind a table can't be told")
