"""Splits a query into tokens that SQL, PPL and ES|QL agree on, or refuses it.

Each of these languages has its own comments, escapes and names, and versions differ. A text that
two of them could split differently is `Unresolved`. Pure. Knows no grammar.
"""

import re
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from sidecar.protocols.messages import Unresolved

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
"""A table's name, which may consist of several tokens. It doesn't end with a dot: another part of
the name could follow one."""

# A name ends before a character that can't be part of a name in any of the languages.
_NAME = re.compile(rf"(?:{UNQUOTED_NAME}|\*)(?=[\s,;)|\]]|\Z)")

# Each language has some of these comments. What one language skips, another would read as a part of
# the query, such as its FROM.
_COMMENTS = frozenset((("/", "*"), ("*", "/"), ("/", "/"), ("-", "-")))

_NAME_EXPECTED = "the query has no index name where one is expected"


class Kind(Enum):
    """The kind of a token."""

    WORD = "word"
    QUOTED = "quoted"
    NUMBER = "number"
    MARK = "mark"


class Token(NamedTuple):
    """One token, from `start` to `end`."""

    kind: Kind
    text: str
    """The text, in lower case except for the contents of quotes."""
    start: int
    end: int

    def is_word(self, *texts: str) -> bool:
        """Return whether this is one of the words `texts`, or any word if there are no `texts`."""
        return self.kind is Kind.WORD and (not texts or self.text in texts)

    def is_mark(self, *texts: str) -> bool:
        """Return whether this is one of the marks `texts`."""
        return self.kind is Kind.MARK and self.text in texts


def tokenize(text: str) -> list[Token]:
    """Return the tokens of `text`, without white space. Raises `Unresolved`."""
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
    """Walks the tokens of a text once. Raises `Unresolved` for a text that `tokenize` refuses."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self._at = 0

    @property
    def current(self) -> Token | None:
        return self.tokens[self._at] if self._at < len(self.tokens) else None

    def advance(self) -> Token | None:
        """Returns the current token, and moves to the next."""
        token = self.current
        self._at += 1
        return token

    def accept(self, *texts: str) -> bool:
        """Moves past the words or marks `texts`, if they come next."""
        here = self.tokens[self._at : self._at + len(texts)]
        if [token.text for token in here if token.kind in (Kind.WORD, Kind.MARK)] != list(texts):
            return False
        self._at += len(texts)
        return True

    def is_word(self, *texts: str) -> bool:
        token = self.current
        return token is not None and token.is_word(*texts)

    def is_mark(self, *texts: str) -> bool:
        token = self.current
        return token is not None and token.is_mark(*texts)

    def expect_word(self) -> None:
        """Moves past a word. Raises `Unresolved` at anything else."""
        token = self.advance()
        if token is None or not token.is_word():
            raise Unresolved("the query has no word where one is expected")

    def expect_name(self) -> str:
        """Moves past a table's name, quoted or not, and returns it as written. Raises
        `Unresolved` at anything else."""
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
