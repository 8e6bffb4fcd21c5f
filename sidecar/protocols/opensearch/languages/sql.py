"""The indices of a SQL query, in the dialects of OpenSearch (both engines) and Elasticsearch: the
names after FROM, after JOIN, and after a comma among tables, at any depth.

Strict rather than complete: one SELECT with its subqueries, and after a table only what the grammar
allows there. Anything else is `Unresolved`. Pure.
"""

from sidecar.protocols.messages import Unresolved
from sidecar.protocols.opensearch.languages.lexer import Kind, TokenCursor

_ENDS_TABLES = frozenset(
    ("where", "group", "having", "order", "limit", "union", "minus", "except", "intersect")
)
_JOINS = frozenset(("join", "inner", "left", "right", "full", "cross", "outer", "on", "using"))

# Other keywords that can't be an alias of a table.
_NO_ALIAS = frozenset((
    "all", "and", "as", "between", "by", "distinct", "from", "in", "is", "like", "not", "null",
    "or", "select", "set", "values",
))  # fmt: skip

# Words that change what the words after them mean (`FROM FROZEN x`), or that begin a statement
# other than a query.
_REFUSED = frozenset((
    "call", "create", "delete", "describe", "drop", "explain", "frozen", "insert", "into",
    "lateral", "pivot", "show", "sys", "table", "tables", "unnest", "update", "with",
))  # fmt: skip

_PARENTHESES = "the query's parentheses don't match"
_AFTER_TABLE = "the query has something unknown after an index name"


def indices_of_sql(query: str) -> list[str]:
    """Return the index expressions of `query`, as written. Raises `Unresolved`."""
    cursor = TokenCursor(query)
    if not cursor.is_word("select"):
        raise Unresolved("the query is not a SELECT")
    # Refuse these words anywhere, even where one could be a column: only a full grammar could tell.
    for token in cursor.tokens:
        if token.kind is Kind.WORD and token.text in _REFUSED:
            raise Unresolved(f"`{token.text}` is not supported in a query")
    found = _find_tables(cursor)
    if not found:
        raise Unresolved("the query names no index")
    return found


def _find_tables(cursor: TokenCursor) -> list[str]:
    found: list[str] = []
    # For each open parenthesis, whether a table follows a comma there: `FROM a, b` names two, and
    # `ORDER BY a, b` none. The first entry is for the text outside all parentheses.
    among_tables = [False]
    while (token := cursor.advance()) is not None:
        if token.is_word("from", "join"):
            among_tables[-1] = True
            _read_tables(cursor, found, among_tables)
        elif token.kind is Kind.WORD and token.text in _ENDS_TABLES:
            among_tables[-1] = False
        elif token.kind is Kind.MARK:
            if token.text == "(":
                among_tables.append(False)
            elif token.text == ")":
                among_tables.pop()
                if not among_tables:
                    raise Unresolved(_PARENTHESES)
            elif token.text == "," and among_tables[-1]:
                _read_tables(cursor, found, among_tables)
            # A semicolon may only end the query.
            elif token.text == ";" and cursor.current is not None:
                raise Unresolved("the query has more than one statement")
    if len(among_tables) != 1:
        raise Unresolved(_PARENTHESES)
    return found


def _read_tables(cursor: TokenCursor, found: list[str], among_tables: list[bool]) -> None:
    """Reads consecutive tables, with commas between them."""
    while True:
        # `_find_tables` reads the subquery like any other part of the query.
        if cursor.accept("(", "select"):
            among_tables.append(False)
            return
        if cursor.is_word(*_ENDS_TABLES, *_JOINS, *_NO_ALIAS):
            raise Unresolved("the query has no index name where one is expected")
        found.append(cursor.expect_name())
        _read_alias(cursor)
        if not cursor.accept(","):
            break
    if cursor.current is None or cursor.is_word(*_ENDS_TABLES, *_JOINS):
        return
    if not cursor.is_mark(")", ";"):
        raise Unresolved(_AFTER_TABLE)


def _read_alias(cursor: TokenCursor) -> None:
    # An alias may follow: `FROM a b` or `FROM a AS b`. A keyword without AS ends the table.
    required = cursor.accept("as")
    token = cursor.current
    word = token is not None and token.is_word()
    if word and not cursor.is_word(*_ENDS_TABLES, *_JOINS, *_NO_ALIAS):
        cursor.advance()
    elif required or cursor.is_word(*_NO_ALIAS):
        raise Unresolved(_AFTER_TABLE)
