"""Finds the indices that a query in PPL (OpenSearch) or ES|QL (Elasticsearch) names. In both
languages, a query is a sequence of commands with `|` between them.

Strict rather than complete: a command that isn't listed here may read an index in its own way, so
it raises `Unresolved`. So does a PPL source or an ES|QL command that reads, in an unexpected place.
"""

import re
from collections.abc import Sequence
from functools import partial

from sidecar.protocols.opensearch.languages.sql import UNQUOTED_NAME, Kind, Token, TokenCursor
from sidecar.protocols.protocol import Unresolved

_unreadable = partial(Unresolved, "the query has a join that doesn't clearly end in index names")
_UNQUOTED = re.compile(UNQUOTED_NAME).fullmatch


def last_tables(text: str, tokens: Sequence[Token]) -> list[str]:
    """Return the index expressions, as written, at the end of a `join`. `tokens` are the tokens of
    `text` that follow `join`. Raises `Unresolved` if they don't end in a list of tables."""
    # Read from the right, since the condition may contain almost anything, and no mark ends it.
    end = len(tokens)
    if end > 2 and _is_alias(tokens[-3:]):
        end -= 2
    names: list[str] = []
    while True:
        begin = _name_begin(tokens, end)
        names.append(_name(text, tokens[begin:end]))
        if begin == 0 or not tokens[begin - 1].is_mark(","):
            break
        end = begin - 1
    # The condition comes before the list. Its last token must not be readable as part of a name.
    if begin > 0:
        before = tokens[begin - 1]
        apart = before.end < tokens[begin].start or before.text == "]"
        # After one of these, a larger expression continues, and no list of tables can begin.
        if not apart or before.is_mark(".", ",", ":", "=", "-") or before.is_word("as"):
            raise _unreadable()
    return names[::-1]


def _is_alias(last: Sequence[Token]) -> bool:
    table, word, alias = last
    # White space on both sides: without it, `as` could be the end of a name such as `a-as`.
    if not word.is_word("as") or not table.end < word.start < word.end < alias.start:
        return False
    return alias.is_word() or (alias.kind is Kind.NUMBER and "." not in alias.text)


def _name_begin(tokens: Sequence[Token], end: int) -> int:
    """Return the index of the first token of the name that ends before the token `end`. The name is
    a quoted token, or several adjacent tokens that may form an unquoted name."""
    if end == 0:
        raise _unreadable()
    begin = end - 1
    if tokens[begin].kind is Kind.QUOTED:
        return begin
    while begin > 0:
        before = tokens[begin - 1]
        apart = before.end < tokens[begin].start or before.kind is Kind.QUOTED
        if apart or (before.kind is Kind.MARK and before.text not in ".@*-"):
            break
        begin -= 1
    return begin


def _name(text: str, tokens: Sequence[Token]) -> str:
    name = text[tokens[0].start : tokens[-1].end]
    quoted = tokens[0].kind is Kind.QUOTED
    # In quotes other than backticks it is a string, which belongs to the condition.
    if not (name.startswith("`") and tokens[0].text if quoted else _UNQUOTED(name)):
        raise _unreadable()
    return tokens[0].text if quoted else name


# Commands that work on the piped documents, and read nothing else.
_PPL_COMMANDS = frozenset((
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
    """Return the index expressions of a PPL query, as written. Raises `Unresolved` if they can't be
    found reliably."""
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
    """Read commands up to the end of the query, or up to the bracket that ends a subquery, and add
    the indices to `found`."""
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
            _read_ppl_rest(cursor, found)
        elif token.text in _JOINS:
            _read_join(cursor, found)
        elif token.text in _PPL_COMMANDS:
            _read_ppl_rest(cursor, found)
        else:
            raise Unresolved(f"the command `{token.text[:32]}` is not supported")


def _read_search(cursor: TokenCursor, found: list[str]) -> None:
    cursor.accept("search")
    if not cursor.accept("source", "=") and not cursor.accept("index", "="):
        raise Unresolved("the query doesn't begin with `source=` or `index=`")
    # A subquery may take the place of an index.
    if cursor.is_mark("["):
        _read_ppl_rest(cursor, found, in_search=True)
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
    _read_ppl_rest(cursor, found, in_search=True)


def _read_ppl_rest(cursor: TokenCursor, found: list[str], *, in_search: bool = False) -> None:
    """Read the rest of a command, including its subqueries, and add their indices to `found`."""
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
    """Read the content of a `[…]`, whose `[` has been read: a subquery, or a list of fields."""
    if cursor.is_word("search", "source", "index"):
        _read_pipeline(cursor, found)
    else:
        while (token := cursor.current) and (
            token.kind is not Kind.MARK or token.text in _FIELD_MARKS
        ):
            cursor.advance()
    if not cursor.accept("]"):
        raise Unresolved("the query has brackets with neither a subquery nor a list of fields")


def _read_join(cursor: TokenCursor, found: list[str]) -> None:
    """Read a join. The tables come last, after a condition that may contain anything except a
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


# Commands that work on the piped documents, and read nothing else.
_ESQL_COMMANDS = frozenset((
    "change_point", "dissect", "drop", "eval", "grok", "inlinestats", "keep", "limit", "mv_expand",
    "rename", "sample", "sort", "stats", "where",
))  # fmt: skip
_READING_WORDS = frozenset(("from", "ts", "lookup", "join", "enrich", "fork", "promql", "metrics"))


def indices_of_esql(query: str) -> tuple[list[str], list[str]]:
    """Return the index expressions of an ES|QL query, and the names of the enrich policies that it
    uses. Raises `Unresolved` if they can't be found reliably."""
    cursor = TokenCursor(query)
    # ES|QL has no single quotes, but a name may contain them; three double quotes begin another
    # kind of string.
    single = any(token.kind is Kind.QUOTED and query[token.start] == "'" for token in cursor.tokens)
    if single or '"""' in query:
        raise Unresolved("the query has single or triple quotes: use double quotes")
    found, policies = _read_sources(cursor), list[str]()
    # Commands can't be nested: where one can hold another, `_read_rest` refuses it.
    while cursor.accept("|"):
        token = cursor.advance()
        if token is None or not token.is_word():
            raise Unresolved("the query has no command after `|`")
        if token.text == "lookup" and cursor.accept("join"):
            found.append(_read_name(cursor))
            if not cursor.accept("on"):
                raise Unresolved(_AFTER_INDEX)
        elif token.text == "enrich":
            # A policy reads a copy of other indices. `query_languages` asks the server for them.
            policies.append(_read_name(cursor))
            if not (cursor.current is None or cursor.is_word("on", "with") or cursor.is_mark("|")):
                raise Unresolved("the query has something unknown after an enrich policy")
        elif token.text == "inline" and cursor.accept("stats"):
            pass
        elif token.text not in _ESQL_COMMANDS:
            raise Unresolved(f"the command `{token.text[:32]}` is not supported")
        _read_esql_rest(cursor)
    if cursor.current is not None:
        raise Unresolved("the query has something unknown at its end")
    return found, policies


def _read_sources(cursor: TokenCursor) -> list[str]:
    if not cursor.accept("from"):
        raise Unresolved("the query doesn't begin with FROM")
    found = [_read_name(cursor)]
    while cursor.accept(","):
        found.append(_read_name(cursor))
    # The words after METADATA are fields (`_id`, `_index`), and not indices.
    if cursor.accept("metadata"):
        cursor.expect_word()
        while cursor.accept(","):
            cursor.expect_word()
    if cursor.current is not None and not cursor.is_mark("|"):
        raise Unresolved(_AFTER_INDEX)
    return found


def _read_name(cursor: TokenCursor) -> str:
    token = cursor.current
    if token is not None and token.kind is Kind.QUOTED and cursor.text[token.start] != '"':
        raise Unresolved("the query has a name in quotes other than double quotes")
    return cursor.expect_name()


def _read_esql_rest(cursor: TokenCursor) -> None:
    while (token := cursor.current) is not None and not cursor.is_mark("|"):
        # The word may begin a source in a subquery or branch, which this reader doesn't look for.
        if (token.kind is Kind.WORD and token.text in _READING_WORDS) or token.text == ";":
            raise Unresolved(f"`{token.text}` is not supported within a command")
        cursor.advance()
