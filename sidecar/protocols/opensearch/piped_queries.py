"""The indices of a query in commands with `|` between: PPL of OpenSearch, ES|QL of Elasticsearch.

Strict rather than complete: a command that is not listed here may read an index in a way of its
own, so it is `Unresolved`, and so is a word of those that do where it is not expected. Pure.
"""

from sidecar.protocols.messages import Unresolved
from sidecar.protocols.opensearch.join_tables import last_tables
from sidecar.protocols.opensearch.lexer import (
    MARK,
    NUMBER,
    QUOTED,
    WORD,
    Token,
    TokenCursor,
    tokens,
)

# Commands that work on what comes through the pipe, and read nothing else.
_PPL = frozenset(
    (
        "bin",
        "dedup",
        "eval",
        "eventstats",
        "expand",
        "fields",
        "fillnull",
        "flatten",
        "grok",
        "head",
        "parse",
        "patterns",
        "rare",
        "regex",
        "rename",
        "reverse",
        "rex",
        "sort",
        "spath",
        "stats",
        "table",
        "timechart",
        "top",
        "trendline",
        "where",
    )
)
_PPL_JOINS = frozenset(("join", "inner", "cross", "left", "right", "full", "semi", "anti", "outer"))

_ESQL = frozenset(
    (
        "change_point",
        "dissect",
        "drop",
        "eval",
        "grok",
        "inlinestats",
        "keep",
        "limit",
        "mv_expand",
        "rename",
        "sample",
        "sort",
        "stats",
        "where",
    )
)
_ESQL_READS = frozenset(("from", "ts", "lookup", "join", "enrich", "fork", "promql", "metrics"))

# Each subquery is read by a few calls within those of the one around it.
_DEEPEST = 16


def indices_of_ppl(query: object) -> list[str]:
    """The index expressions of a PPL query, as written. Raises `Unresolved`."""
    pieces = tokens(query)
    assert isinstance(query, str)
    _check_depth(pieces)
    found: list[str] = []
    cursor = TokenCursor(query, pieces)
    _pipeline(cursor, found)
    if cursor.now is not None:
        raise Unresolved("the query's brackets don't match")
    return found


def _check_depth(pieces: list[Token]) -> None:
    depth = 0
    for piece in pieces:
        if piece.kind == MARK and piece.text in ("[", "]"):
            depth += 1 if piece.text == "[" else -1
            if depth > _DEEPEST:
                raise Unresolved(f"subqueries are nested deeper than {_DEEPEST}")


def _pipeline(cursor: TokenCursor, found: list[str]) -> None:
    """Up to the end, or the bracket that ends a subquery."""
    _search(cursor, found)
    while cursor.skip("|"):
        piece = cursor.next()
        if piece is None or piece.kind != WORD:
            raise Unresolved("the query has no command where one is due")
        if piece.text == "lookup":
            found.append(cursor.name())
            if cursor.now is None or cursor.now.kind == MARK:
                raise Unresolved("what stands behind an index can't be told")
            _rest(cursor, found)
        elif piece.text in _PPL_JOINS:
            _joined(cursor, found)
        elif piece.text in _PPL:
            _rest(cursor, found)
        else:
            raise Unresolved(f"what the command `{piece.text[:32]}` reads is not told here")


def _search(cursor: TokenCursor, found: list[str]) -> None:
    cursor.skip("search")
    if not cursor.skip("source", "=") and not cursor.skip("index", "="):
        raise Unresolved("the query does not begin with its source")
    if cursor.is_mark("["):
        _rest(cursor, found, searching=True)
        return
    found.append(cursor.name())
    while cursor.skip(","):
        found.append(cursor.name())
    if cursor.skip("as"):
        cursor.word()
    piece = cursor.now
    if piece is not None and piece.kind == MARK and piece.text not in ("|", "(", "]"):
        raise Unresolved("what stands behind an index can't be told")
    _rest(cursor, found, searching=True)


def _rest(cursor: TokenCursor, found: list[str], *, searching: bool = False) -> None:
    """The rest of a command, subqueries included. A search takes its source in any place."""
    while (piece := cursor.now) is not None:
        if piece.kind == MARK and piece.text in ("|", "]"):
            return
        if searching and (cursor.skip("source", "=") or cursor.skip("index", "=")):
            raise Unresolved("the query states a source twice")
        cursor.next()
        if piece.kind == MARK and piece.text == ";":
            raise Unresolved("the query is more than one")
        if piece.kind == MARK and piece.text == "[":
            _bracket(cursor, found)


def _bracket(cursor: TokenCursor, found: list[str]) -> None:
    """Behind a `[`: a subquery, or a list of fields."""
    if cursor.is_word("search", "source", "index"):
        _pipeline(cursor, found)
    else:
        while (piece := cursor.now) is not None and _is_field(piece):
            cursor.next()
    if not cursor.skip("]"):
        raise Unresolved("what stands in brackets can't be told")


def _is_field(piece: Token) -> bool:
    return piece.kind in (WORD, QUOTED, NUMBER) or piece.text in (",", "^", ".", "*", "-")


def _joined(cursor: TokenCursor, found: list[str]) -> None:
    """A join's table stands last, behind a condition that may hold anything but a pipe."""
    said: list[Token] = []
    while (piece := cursor.now) is not None and not (cursor.is_mark("|") or cursor.is_mark("]")):
        before = len(found)
        cursor.next()
        said.append(piece)
        if piece.kind == MARK and piece.text == "[":
            _bracket(cursor, found)
            if len(found) > before:
                said = []
                if not cursor.skip("as"):
                    break
                cursor.word()
                break
    if cursor.now is not None and not (cursor.is_mark("|") or cursor.is_mark("]")):
        raise Unresolved("what stands behind a subquery can't be told")
    if not said:
        return
    found.extend(last_tables(cursor.text, said))


def indices_of_esql(query: object) -> tuple[list[str], list[str]]:
    """The index expressions of an ES|QL query, and the enrich policies it uses. Raises
    `Unresolved`."""
    pieces = tokens(query)
    assert isinstance(query, str)
    # No quote of this language, but part of a name in some places; three open another string.
    single = any(piece.kind == QUOTED and query[piece.start] == "'" for piece in pieces)
    if single or '"""' in query:
        raise Unresolved("the query holds quotes that can be read in more than one way")
    cursor = TokenCursor(query, pieces)
    found, policies = _sources(cursor), list[str]()
    while cursor.skip("|"):
        piece = cursor.next()
        if piece is None or piece.kind != WORD:
            raise Unresolved("the query has no command where one is due")
        if piece.text == "lookup" and cursor.skip("join"):
            found.append(_plain(cursor))
            if not cursor.skip("on"):
                raise Unresolved("what stands behind an index can't be told")
        elif piece.text == "enrich":
            policies.append(_plain(cursor))
            if not (cursor.now is None or cursor.is_word("on", "with") or cursor.is_mark("|")):
                raise Unresolved("what stands behind a policy can't be told")
        elif piece.text == "inline" and cursor.skip("stats"):
            pass
        elif piece.text not in _ESQL:
            raise Unresolved(f"what the command `{piece.text[:32]}` reads is not told here")
        _command(cursor)
    if cursor.now is not None:
        raise Unresolved("the query can't be told to its end")
    return found, policies


def _sources(cursor: TokenCursor) -> list[str]:
    if not cursor.skip("from"):
        raise Unresolved("the query does not begin with its source")
    found = [_plain(cursor)]
    while cursor.skip(","):
        found.append(_plain(cursor))
    if cursor.skip("metadata"):
        cursor.word()
        while cursor.skip(","):
            cursor.word()
    if cursor.now is not None and not cursor.is_mark("|"):
        raise Unresolved("what stands behind an index can't be told")
    return found


def _plain(cursor: TokenCursor) -> str:
    piece = cursor.now
    if piece is not None and piece.kind == QUOTED and cursor.text[piece.start] != '"':
        raise Unresolved("the query has no name where one is due")
    return cursor.name()


def _command(cursor: TokenCursor) -> None:
    while (piece := cursor.now) is not None and not cursor.is_mark("|"):
        if (piece.kind == WORD and piece.text in _ESQL_READS) or piece.text == ";":
            raise Unresolved(f"what `{piece.text}` does in this place is not told here")
        cursor.next()
