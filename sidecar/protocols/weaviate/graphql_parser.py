"""Parses a GraphQL text within the request's budget.

Long plain strings, such as an image in base64, are replaced by placeholders before parsing and
restored in the tree. Pure.
"""

import re
from typing import Any

from graphql import GraphQLError, Lexer, Source, TokenKind, Visitor, parse, visit
from graphql.language import ast

from policies.ground.errors import Malformed
from sidecar.protocols.budget import Budget

# None of these characters can end the string or has a special meaning in it, and a `"` within a
# string has to be escaped. A match elsewhere, as in a comment, leaves its placeholder unused: then
# the query is refused.
_LONG_STRING = re.compile(r'"([0-9A-Za-z+/=_-]{512,})"')
_PLACEHOLDER = "sluice-set-aside-"


def parse_text(text: str, budget: Budget) -> ast.DocumentNode:
    """The tree, with block strings turned into plain ones. Raises `Malformed` for a text that is
    not GraphQL, or has an argument twice: readers differ in which of the two they take."""
    strings = _LongStrings()
    # The lexer spends as much time on a long string as on other text, but nothing in it matters
    # here. A text that contains the placeholder itself is parsed as it is, at full cost.
    if _PLACEHOLDER not in text:
        text = _LONG_STRING.sub(strings.replace, text)
    # graphql-core's lexer takes a Python step for each character. A limit on tokens alone would not
    # bound that: a single token can have any length.
    budget.charge_graphql_characters(len(text))
    try:
        document = parse(text, no_location=True, max_tokens=budget.graphql_tokens)
        budget.charge_graphql_tokens(document.token_count)
        plain: ast.DocumentNode = visit(document, _Normalizer(strings))
    except GraphQLError as error:
        _check_tokens(text, budget)
        raise Malformed(f"the query is not GraphQL: {error.message[:200]}") from None
    except RecursionError:
        # The parser is recursive, and the caller chooses the depth.
        raise Malformed("the query is nested too deeply") from None
    if strings.by_placeholder:
        raise Malformed("the query has a long string where GraphQL allows no string")
    return plain


class _LongStrings:
    """The strings that were replaced, by placeholder."""

    def __init__(self) -> None:
        self.by_placeholder: dict[str, str] = {}

    def replace(self, found: re.Match[str]) -> str:
        placeholder = f"{_PLACEHOLDER}{len(self.by_placeholder)}"
        self.by_placeholder[placeholder] = found[1]
        return f'"{placeholder}"'


class _Normalizer(Visitor):
    """Restores long strings, turns block strings into plain ones, and refuses duplicate names."""

    def __init__(self, strings: _LongStrings) -> None:
        super().__init__()
        self._strings = strings

    def enter_string_value(self, node: ast.StringValueNode, *_: Any) -> Any:
        long = self._strings.by_placeholder.pop(node.value, None)
        if long is None and not node.block:
            return None
        return ast.StringValueNode(value=node.value if long is None else long, block=False)

    def enter_field(self, node: ast.FieldNode, *_: Any) -> None:
        _refuse_duplicates([each.name.value for each in node.arguments or ()])

    def enter_object_value(self, node: ast.ObjectValueNode, *_: Any) -> None:
        _refuse_duplicates([each.name.value for each in node.fields])


def _refuse_duplicates(names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise Malformed("the query has an argument twice")


def _check_tokens(text: str, budget: Budget) -> None:
    """Raises `OverBudget` if a text that could not be parsed has more tokens than are left: the
    parser reports both with the same error."""
    lexer, most = Lexer(Source(text)), budget.graphql_tokens
    count = 0
    try:
        while count <= most and lexer.advance().kind is not TokenKind.EOF:
            count += 1
    except GraphQLError:
        return
    budget.charge_graphql_tokens(count)
