"""From a GraphQL text to its tree, within a request's budget.

The lexer of graphql-core takes a step of Python for each character, so texts are bounded by their
length too, not by their tokens alone. Long plain strings, such as an image in base64, cost it as
much and tell nothing: they are set aside before the text is read, and put back into the tree. Pure.
"""

import re
from typing import Any

from graphql import GraphQLError, Lexer, Source, TokenKind, Visitor, parse, visit
from graphql.language import ast

from policies.ground.errors import Malformed
from sidecar.protocols.budget import Budget

# Nothing in it can end the string, or means something else than itself.
_LONG = re.compile(r'"([0-9A-Za-z+/=_-]{512,})"')
_MARK = "sluice-set-aside-"


def read(text: str, budget: Budget) -> ast.DocumentNode:
    """The tree, with block strings written as plain ones. Raises `Malformed` for what is not
    GraphQL, and where an argument stands twice: of two, readers differ in which they take."""
    aside = _Aside()
    if _MARK not in text:
        text = _LONG.sub(aside.keep, text)
    budget.charge_graphql_characters(len(text))
    try:
        document = parse(text, no_location=True, max_tokens=budget.graphql_tokens)
        budget.charge_graphql_tokens(document.token_count)
        plain: ast.DocumentNode = visit(document, _Plain(aside))
    except GraphQLError as error:
        _check_tokens(text, budget)
        raise Malformed(f"the query is not GraphQL: {error.message[:200]}") from None
    except RecursionError:
        raise Malformed("the query is nested too deeply") from None
    if aside.kept:
        raise Malformed("the query holds a long string where none may stand")
    return plain


class _Aside:
    """Strings that were set aside, by what stands in their place."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def keep(self, found: re.Match[str]) -> str:
        mark = f"{_MARK}{len(self.kept)}"
        self.kept[mark] = found[1]
        return f'"{mark}"'


class _Plain(Visitor):
    """Puts back what was set aside, writes block strings as plain ones, and refuses what stands
    twice."""

    def __init__(self, aside: _Aside) -> None:
        super().__init__()
        self._aside = aside

    def enter_string_value(self, node: ast.StringValueNode, *_: Any) -> Any:
        kept = self._aside.kept.pop(node.value, None)
        if kept is None and not node.block:
            return None
        return ast.StringValueNode(value=node.value if kept is None else kept, block=False)

    def enter_field(self, node: ast.FieldNode, *_: Any) -> None:
        _once([each.name.value for each in node.arguments or ()])

    def enter_object_value(self, node: ast.ObjectValueNode, *_: Any) -> None:
        _once([each.name.value for each in node.fields])


def _once(names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise Malformed("an argument stands twice")


def _check_tokens(text: str, budget: Budget) -> None:
    """Raises `OverBudget` where a text that could not be parsed has more tokens than are left."""
    lexer, most = Lexer(Source(text)), budget.graphql_tokens
    count = 0
    try:
        while count <= most and lexer.advance().kind is not TokenKind.EOF:
            count += 1
    except GraphQLError:
        return
    budget.charge_graphql_tokens(count)
