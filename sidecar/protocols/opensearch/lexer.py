"""A query text in pieces that SQL, PPL and ES|QL cut alike, or no pieces at all.

Each of these languages has its own comments, escapes and names, and versions differ: a text that
two of them might cut in two ways is `Unresolved`. So no comments, no backslash, no letters beyond
ASCII outside quotes (`ſource` is `SOURCE` to a server that upper-cases), no number that runs into a
word. Pure. Knows no grammar.
"""

import re
from itertools import pairwise
from typing import NamedTuple

from sidecar.protocols.messages import Unresolved

WORD, QUOTED, NUMBER, MARK = "word", "quoted", "number", "mark"

_LONGEST = 16_384

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

BARE = r"[A-Za-z0-9_.@](?:[A-Za-z0-9_.@*-]*[A-Za-z0-9_@*-])?"
"""A table's name where one is due: more than a word. It does not end with a dot, behind which
another piece of it may stand."""

# Up to what can't be part of one anywhere.
_NAME = re.compile(rf"(?:{BARE}|\*)(?=[\s,;)|\]]|\Z)")


class Token(NamedTuple):
    """One piece. `text` is a word in lower case, or what stands between quotes; `start` and `end`
    are where it stands."""

    kind: str
    text: str
    start: int
    end: int


def tokens(text: object) -> list[Token]:
    """The pieces of `text` without white space."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise Unresolved("the query is no text, or too long to be told")
    found: list[Token] = []
    at = 0
    while at < len(text):
        piece = _TOKEN.match(text, at)
        if piece is None:
            raise Unresolved("the query holds what can be read in more than one way")
        kind = piece.lastgroup or ""
        if kind in ("single", "double", "back"):
            found.append(Token(QUOTED, piece[kind], at, piece.end()))
        elif kind != "white":
            found.append(Token(kind, piece[kind].lower(), at, piece.end()))
        at = piece.end()
    for one, other in pairwise(found):
        if one.end == other.start and (one.text, other.text) in _COMMENTS:
            raise Unresolved("the query holds a comment")
    return found


_COMMENTS = frozenset((("/", "*"), ("*", "/"), ("/", "/"), ("-", "-")))


class TokenCursor:
    """Goes through the pieces of a text once."""

    def __init__(self, text: str, pieces: list[Token]) -> None:
        self.text = text
        self._pieces = pieces
        self._at = 0

    @property
    def now(self) -> Token | None:
        return self._pieces[self._at] if self._at < len(self._pieces) else None

    def next(self) -> Token | None:
        """The piece here, and on to the one after it."""
        piece = self.now
        self._at += 1
        return piece

    def skip(self, *texts: str) -> bool:
        """Past the words or marks `texts`, if they are what comes."""
        here = self._pieces[self._at : self._at + len(texts)]
        if [piece.text for piece in here if piece.kind in (WORD, MARK)] != list(texts):
            return False
        self._at += len(texts)
        return True

    def is_word(self, *texts: str) -> bool:
        piece = self.now
        return piece is not None and piece.kind == WORD and piece.text in texts

    def is_mark(self, text: str) -> bool:
        piece = self.now
        return piece is not None and piece.kind == MARK and piece.text == text

    def word(self) -> None:
        """Past a word that must come here."""
        piece = self.next()
        if piece is None or piece.kind != WORD:
            raise Unresolved("the query has no word where one is due")

    def name(self) -> str:
        """A table's name, quoted or not, with the letters' case as written."""
        piece = self.next()
        if piece is None:
            raise Unresolved("the query ends where a name is due")
        if piece.kind == QUOTED:
            return piece.text
        found = _NAME.match(self.text, piece.start)
        if found is None:
            raise Unresolved("the query has no name where one is due")
        while self.now is not None and self.now.start < found.end():
            if self.now.kind == QUOTED:
                raise Unresolved("the query has no name where one is due")
            self._at += 1
        return found.group()
