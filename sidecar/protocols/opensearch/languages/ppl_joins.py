"""The tables at the end of a PPL join: `join <condition> <table>[, <table>…] [as <alias>]`.
Pure.
"""

import re
from collections.abc import Sequence

from sidecar.protocols.messages import Unresolved
from sidecar.protocols.opensearch.languages.lexer import UNQUOTED_NAME, Kind, Token

_UNQUOTED = re.compile(UNQUOTED_NAME).fullmatch


def last_tables(text: str, tokens: Sequence[Token]) -> list[str]:
    """The index expressions, as written, at the end of `tokens`: the tokens of `text` after `join`.
    Raises `Unresolved` if they don't end in a list of tables."""
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
        if not apart or _continues(before):
            raise _unreadable()
    return names[::-1]


def _is_alias(last: Sequence[Token]) -> bool:
    table, word, alias = last
    # White space on both sides: without it, `as` could be the end of a name such as `a-as`.
    if not word.is_word("as") or not table.end < word.start < word.end < alias.start:
        return False
    return alias.is_word() or (alias.kind is Kind.NUMBER and "." not in alias.text)


def _name_begin(tokens: Sequence[Token], end: int) -> int:
    """The index of the first token of the name that ends before `end`: a quoted token, or the first
    of several adjacent tokens that may form an unquoted name."""
    if end == 0:
        raise _unreadable()
    begin = end - 1
    if tokens[begin].kind is Kind.QUOTED:
        return begin
    while begin > 0:
        before = tokens[begin - 1]
        if before.end < tokens[begin].start or not _part_of_name(before):
            break
        begin -= 1
    return begin


def _name(text: str, tokens: Sequence[Token]) -> str:
    name = text[tokens[0].start : tokens[-1].end]
    if tokens[0].kind is Kind.QUOTED:
        # In quotes other than backticks it is a string, which belongs to the condition.
        if not name.startswith("`") or not tokens[0].text:
            raise _unreadable()
        return tokens[0].text
    if not _UNQUOTED(name):
        raise _unreadable()
    return name


def _part_of_name(token: Token) -> bool:
    return token.kind is not Kind.QUOTED and (token.kind is not Kind.MARK or token.text in ".@*-")


def _continues(token: Token) -> bool:
    """Whether what follows this token is part of a larger expression, so that no list of tables can
    begin there."""
    return token.is_mark(".", ",", ":", "=", "-") or token.is_word("as")


def _unreadable() -> Unresolved:
    return Unresolved("the query has a join that doesn't clearly end in index names")
