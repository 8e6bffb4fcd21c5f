"""The indices of a query in ES|QL, Elasticsearch's language of commands with `|` between them.

Strict rather than complete: a command that isn't listed here may read an index in its own way, so
it is `Unresolved`. So is the name of a reading command in an unexpected place. Pure.
"""

from sidecar.protocols.messages import Unresolved
from sidecar.protocols.opensearch.languages.lexer import Kind, TokenCursor

# Commands that work on the piped documents, and read nothing else.
_COMMANDS = frozenset((
    "change_point", "dissect", "drop", "eval", "grok", "inlinestats", "keep", "limit", "mv_expand",
    "rename", "sample", "sort", "stats", "where",
))  # fmt: skip
_READING_WORDS = frozenset(("from", "ts", "lookup", "join", "enrich", "fork", "promql", "metrics"))

_AFTER_INDEX = "the query has something unknown after an index name"


def indices_of_esql(query: str) -> tuple[list[str], list[str]]:
    """The index expressions of an ES|QL query, and the enrich policies it uses. Raises
    `Unresolved`."""
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
        elif token.text not in _COMMANDS:
            raise Unresolved(f"the command `{token.text[:32]}` is not supported")
        _read_rest(cursor)
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


def _read_rest(cursor: TokenCursor) -> None:
    while (token := cursor.current) is not None and not cursor.is_mark("|"):
        # The word may begin a source in a subquery or branch, which this reader doesn't look for.
        if (token.kind is Kind.WORD and token.text in _READING_WORDS) or token.text == ";":
            raise Unresolved(f"`{token.text}` is not supported within a command")
        cursor.advance()
