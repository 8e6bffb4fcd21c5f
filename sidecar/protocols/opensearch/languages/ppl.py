"""The indices of a query in PPL, OpenSearch's language of commands with `|` between them.

Strict rather than complete: a command that isn't listed here may read an index in its own way, so
it is `Unresolved`. So is a source in an unexpected place. Pure.
"""

from sidecar.protocols.messages import Unresolved
from sidecar.protocols.opensearch.languages.lexer import Kind, Token, TokenCursor
from sidecar.protocols.opensearch.languages.ppl_joins import last_tables

# Commands that work on the piped documents, and read nothing else.
_COMMANDS = frozenset((
    "bin", "dedup", "eval", "eventstats", "expand", "fields", "fillnull", "flatten", "grok", "head",
    "parse", "patterns", "rare", "regex", "rename", "reverse", "rex", "sort", "spath", "stats",
    "table", "timechart", "top", "trendline", "where",
))  # fmt: skip
_JOINS = frozenset(("join", "inner", "cross", "left", "right", "full", "semi", "anti", "outer"))

# The marks that a list of fields may contain.
_FIELD_MARKS = frozenset(",^.*-")

# Bounds the recursion: each subquery takes a few nested calls.
_MAX_DEPTH = 16

_AFTER_INDEX = "the query has something unknown after an index name"


def indices_of_ppl(query: str) -> list[str]:
    """The index expressions of a PPL query, as written. Raises `Unresolved`."""
    cursor = TokenCursor(query)
    _check_depth(cursor.tokens)
    found: list[str] = []
    _read_pipeline(cursor, found)
    if cursor.current is not None:
        raise Unresolved("the query's brackets don't match")
    return found


def _check_depth(tokens: list[Token]) -> None:
    depth = 0
    for token in tokens:
        if token.is_mark("[", "]"):
            depth += 1 if token.text == "[" else -1
            if depth > _MAX_DEPTH:
                raise Unresolved(f"the query's subqueries are nested deeper than {_MAX_DEPTH}")


def _read_pipeline(cursor: TokenCursor, found: list[str]) -> None:
    """Reads up to the end of the query, or up to the bracket that ends a subquery."""
    _read_search(cursor, found)
    while cursor.accept("|"):
        token = cursor.advance()
        if token is None or not token.is_word():
            raise Unresolved("the query has no command after `|`")
        # `lookup <index> <fields>`: the index comes first.
        if token.text == "lookup":
            found.append(cursor.expect_name())
            # A mark could continue the name, or begin a list of several.
            if cursor.current is None or cursor.current.kind is Kind.MARK:
                raise Unresolved(_AFTER_INDEX)
            _read_rest(cursor, found)
        elif token.text in _JOINS:
            _read_join(cursor, found)
        elif token.text in _COMMANDS:
            _read_rest(cursor, found)
        else:
            raise Unresolved(f"the command `{token.text[:32]}` is not supported")


def _read_search(cursor: TokenCursor, found: list[str]) -> None:
    cursor.accept("search")
    if not cursor.accept("source", "=") and not cursor.accept("index", "="):
        raise Unresolved("the query doesn't begin with `source=` or `index=`")
    # A subquery may take the place of an index.
    if cursor.is_mark("["):
        _read_rest(cursor, found, in_search=True)
        return
    found.append(cursor.expect_name())
    while cursor.accept(","):
        found.append(cursor.expect_name())
    if cursor.accept("as"):
        cursor.expect_word()
    token = cursor.current
    # An alias or a condition may follow; another mark could continue the name.
    if token is not None and token.kind is Kind.MARK and not token.is_mark("|", "(", "]"):
        raise Unresolved(_AFTER_INDEX)
    _read_rest(cursor, found, in_search=True)


def _read_rest(cursor: TokenCursor, found: list[str], *, in_search: bool = False) -> None:
    """Reads the rest of a command, including subqueries."""
    while (token := cursor.current) is not None:
        if token.is_mark("|", "]"):
            return
        # A search may state its source anywhere, so a second one may follow.
        if in_search and (cursor.accept("source", "=") or cursor.accept("index", "=")):
            raise Unresolved("the query names its source twice")
        cursor.advance()
        if token.is_mark(";"):
            raise Unresolved("the query has more than one statement")
        if token.is_mark("["):
            _read_bracket(cursor, found)


def _read_bracket(cursor: TokenCursor, found: list[str]) -> None:
    """Reads what follows a `[`: a subquery, or a list of fields."""
    if cursor.is_word("search", "source", "index"):
        _read_pipeline(cursor, found)
    else:
        while (token := cursor.current) is not None and _part_of_fields(token):
            cursor.advance()
    if not cursor.accept("]"):
        raise Unresolved("the query has brackets with neither a subquery nor a list of fields")


def _part_of_fields(token: Token) -> bool:
    return token.kind is not Kind.MARK or token.text in _FIELD_MARKS


def _read_join(cursor: TokenCursor, found: list[str]) -> None:
    """Reads a join. Its tables come last, after a condition that may contain anything except a
    pipe."""
    tokens: list[Token] = []
    while (token := cursor.current) is not None and not _at_command_end(cursor):
        before = len(found)
        cursor.advance()
        tokens.append(token)
        if token.is_mark("["):
            _read_bracket(cursor, found)
            if len(found) > before:
                # The subquery itself is joined, so no list of tables follows it.
                tokens = []
                if cursor.accept("as"):
                    cursor.expect_word()
                break
    if cursor.current is not None and not _at_command_end(cursor):
        raise Unresolved("the query has something unknown after a subquery")
    if tokens:
        found.extend(last_tables(cursor.text, tokens))


def _at_command_end(cursor: TokenCursor) -> bool:
    return cursor.is_mark("|", "]")
