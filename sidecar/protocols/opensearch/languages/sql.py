"""Finds the indices of a SQL query, in the dialects of OpenSearch (both engines) and Elasticsearch:
the names after FROM, after JOIN, and after a comma among tables, at any depth. Also has the
tokenizer, which splits a query into tokens on which SQL, PPL and ES|QL agree.

Strict rather than complete: it accepts one SELECT with its subqueries, and after a table only what
the grammar allows there. Anything else raises `Unresolved`, and so does a text that two of the
languages could split differently.
"""

import re
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from sidecar.protocols.protocol import Unresolved

_MAX_CHARACTERS = 16_384

# No letters outside ASCII except in quotes: a server that upper-cases reads `ſource` as `SOURCE`.
# No number that runs into a word, which could be one token or two. No backslash, which escapes a
# quote in some languages only; a doubled quote does in all. `(?!')` keeps the match from ending at
# the first half of a doubled quote.
_TOKEN = re.compile(
    r"""(?P<white>[ \t\r\n]+)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>[0-9]+(?:\.[0-9]+)*)(?![A-Za-z0-9_.@])
      | '(?P<single>(?:[^'\\\r\n]|'')*)'(?!')
      | "(?P<double>(?:[^"\\\r\n]|"")*)"(?!")
      | `(?P<back>[A-Za-z0-9_ .,:@*-]*)`
      | (?P<mark>[][(){}|,.;:=<>!+*/%@?^~&-])
    """,
    re.VERBOSE,
)

UNQUOTED_NAME = r"[A-Za-z0-9_.@](?:[A-Za-z0-9_.@*-]*[A-Za-z0-9_@*-])?"
"""A pattern for the unquoted name of a table, which may consist of several tokens. It has no dot at
its end, because the name could continue after it."""

# A name ends before a character that can't be part of a name in any of the languages.
_NAME = re.compile(rf"(?:{UNQUOTED_NAME}|\*)(?=[\s,;)|\]]|\Z)")

# Each language has some of these comments. What one language skips, another would read as a part of
# the query, such as its FROM.
_COMMENTS = frozenset((("/", "*"), ("*", "/"), ("/", "/"), ("-", "-")))

_NAME_EXPECTED = "the query has no index name where one is expected"


class Kind(Enum):
    WORD = "word"
    QUOTED = "quoted"
    NUMBER = "number"
    MARK = "mark"


class Token(NamedTuple):
    kind: Kind
    text: str
    """The text of the token, in lower case except for the contents of quotes."""
    start: int
    end: int

    def is_word(self, *texts: str) -> bool:
        """Return whether the token is one of the words `texts`; or, without `texts`, any word."""
        return self.kind is Kind.WORD and (not texts or self.text in texts)

    def is_mark(self, *texts: str) -> bool:
        return self.kind is Kind.MARK and self.text in texts


def tokenize(text: str) -> list[Token]:
    """Return the tokens of `text`, without white space. Raises `Unresolved` for a text that the
    languages could split differently."""
    if len(text) > _MAX_CHARACTERS:
        raise Unresolved(f"the query is longer than {_MAX_CHARACTERS} characters")
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        # Every character must be part of a token, so that nothing goes unread.
        if match is None:
            raise Unresolved(f"the query can't be read reliably at `{text[at : at + 16]}`")
        kind = match.lastgroup or ""
        if kind in ("single", "double", "back"):
            found.append(Token(Kind.QUOTED, match[kind], at, match.end()))
        elif kind != "white":
            found.append(Token(Kind(kind), match[kind].lower(), at, match.end()))
        at = match.end()
    # Only adjacent marks begin a comment: `a - -b` has none.
    for one, other in pairwise(found):
        if one.end == other.start and (one.text, other.text) in _COMMENTS:
            raise Unresolved("the query contains a comment: remove it")
    return found


class TokenCursor:
    """Walks over the tokens of a text, once and forward. Raises `Unresolved` for a text that
    `tokenize` refuses."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self._at = 0

    @property
    def current(self) -> Token | None:
        return self.tokens[self._at] if self._at < len(self.tokens) else None

    def advance(self) -> Token | None:
        token = self.current
        self._at += 1
        return token

    def accept(self, *texts: str) -> bool:
        """Move past the words or marks `texts`, if they come next. Returns whether they did."""
        here = self.tokens[self._at : self._at + len(texts)]
        if [token.text for token in here if token.kind in (Kind.WORD, Kind.MARK)] != list(texts):
            return False
        self._at += len(texts)
        return True

    def is_word(self, *texts: str) -> bool:
        return self.current is not None and self.current.is_word(*texts)

    def is_mark(self, *texts: str) -> bool:
        return self.current is not None and self.current.is_mark(*texts)

    def expect_word(self) -> None:
        """Move past a word. Raises `Unresolved` if something else comes next."""
        token = self.advance()
        if token is None or not token.is_word():
            raise Unresolved("the query has no word where one is expected")

    def expect_name(self) -> str:
        """Move past the name of a table, quoted or not, and return it as written. Raises
        `Unresolved` if something else comes next."""
        token = self.advance()
        if token is None:
            raise Unresolved("the query ends where an index name is expected")
        if token.kind is Kind.QUOTED:
            return token.text
        # Read the text, since a name may consist of several tokens: `logs-2024.01`.
        found = _NAME.match(self.text, token.start)
        if found is None:
            raise Unresolved(_NAME_EXPECTED)
        # Move past the other tokens of the name.
        while self.current is not None and self.current.start < found.end():
            if self.current.kind is Kind.QUOTED:
                raise Unresolved(_NAME_EXPECTED)
            self._at += 1
        return found.group()


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
    """Return the index expressions of a SQL query, as written. Raises `Unresolved` if they can't be
    found reliably."""
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
    """Read consecutive tables, with commas between them, and add their names to `found`."""
    while True:
        # `_find_tables` reads the subquery like any other part of the query.
        if cursor.accept("(", "select"):
            among_tables.append(False)
            return
        if cursor.is_word(*_ENDS_TABLES, *_JOINS, *_NO_ALIAS):
            raise Unresolved(_NAME_EXPECTED)
        found.append(cursor.expect_name())
        _read_alias(cursor)
        if not cursor.accept(","):
            break
    ended = cursor.current is None or cursor.is_word(*_ENDS_TABLES, *_JOINS)
    if not ended and not cursor.is_mark(")", ";"):
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
