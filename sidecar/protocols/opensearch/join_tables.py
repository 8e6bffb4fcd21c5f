"""The tables that a PPL join ends in: `join <condition> <table>[, <table>…] [as <alias>]`.

The condition may hold almost anything, so the list is read from the right: token by token, each
once. Pure.
"""

import re
from collections.abc import Sequence

from sidecar.protocols.messages import Unresolved
from sidecar.protocols.opensearch.lexer import BARE, MARK, NUMBER, QUOTED, WORD, Token

_BARE = re.compile(BARE).fullmatch

_IN_NAMES = frozenset(".@*-")
# A list can't begin behind one of these: it would be part of something else.
_OPEN = frozenset(".,:=-")


def last_tables(text: str, said: Sequence[Token]) -> list[str]:
    """The index expressions, as written, that `said` ends in: the tokens of `text` behind `join`.
    Raises `Unresolved` where it does not end in a list of tables."""
    end = len(said)
    if end > 2 and _is_alias(said[-3:]):
        end -= 2
    names: list[str] = []
    while True:
        begin = _begin_of_name(said, end)
        names.append(_name(text, said[begin:end]))
        if begin == 0 or said[begin - 1].text != "," or said[begin - 1].kind != MARK:
            break
        end = begin - 1
    if begin > 0:
        before = said[begin - 1]
        apart = before.end < said[begin].start or before.text == "]"
        if not apart or _leaves_open(before):
            raise _untold()
    return names[::-1]


def _is_alias(last: Sequence[Token]) -> bool:
    table, word, alias = last
    if (
        word.kind != WORD
        or word.text != "as"
        or not table.end < word.start < word.end < alias.start
    ):
        return False
    return alias.kind == WORD or (alias.kind == NUMBER and "." not in alias.text)


def _begin_of_name(said: Sequence[Token], end: int) -> int:
    """Where the name begins of which the last token stands before `end`: a quoted one by itself,
    or all that it touches and that may stand in a bare name."""
    if end == 0:
        raise _untold()
    begin = end - 1
    if said[begin].kind == QUOTED:
        return begin
    while begin > 0:
        before = said[begin - 1]
        if before.end < said[begin].start or not _in_names(before):
            break
        begin -= 1
    return begin


def _name(text: str, tokens: Sequence[Token]) -> str:
    name = text[tokens[0].start : tokens[-1].end]
    if tokens[0].kind == QUOTED:
        if not name.startswith("`") or not tokens[0].text:
            raise _untold()
        return tokens[0].text
    if not _BARE(name):
        raise _untold()
    return name


def _in_names(token: Token) -> bool:
    return token.kind in (WORD, NUMBER) or (token.kind == MARK and token.text in _IN_NAMES)


def _leaves_open(token: Token) -> bool:
    return (token.kind == MARK and token.text in _OPEN) or (
        token.kind == WORD and token.text == "as"
    )


def _untold() -> Unresolved:
    return Unresolved("the query has no index to join that can be told")
