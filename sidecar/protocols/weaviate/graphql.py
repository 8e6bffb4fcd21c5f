"""Parses a GraphQL request to Weaviate within its budget, and finds the collections that it reads.
The text that is forwarded is printed from the syntax tree that was judged. Long plain strings, such
as an image in base64, are replaced by placeholders before parsing and restored in the tree."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from graphql import GraphQLError, Lexer, Source, TokenKind, Visitor, parse, print_ast, visit
from graphql.language import ast

from policies.ground.errors import Malformed
from sidecar.protocols.protocol import Unresolved
from sidecar.protocols.shared.strict_queries import read_members
from sidecar.protocols.strict_body import Budget
from sidecar.protocols.weaviate.names import (
    CollectionName,
    References,
    parse_collection,
    parse_tenant,
)

# None of these characters can end the string or has a special meaning in it, and a `"` within a
# string has to be escaped. A match elsewhere, as in a comment, leaves its placeholder unused: then
# the query is refused.
_LONG_STRING = re.compile(r'"([0-9A-Za-z+/=_-]{512,})"')
_PLACEHOLDER = "sluice-set-aside-"

SelectionSet = ast.SelectionSetNode | None


def parse_text(text: str, budget: Budget) -> ast.DocumentNode:
    """Return the syntax tree of a GraphQL document, with block strings turned into plain ones.
    Raises `Malformed` for a text that is not GraphQL, or in which an argument occurs twice: parsers
    differ in which of the two they take."""
    strings: dict[str, str] = {}

    def set_aside(found: re.Match[str]) -> str:
        placeholder = f"{_PLACEHOLDER}{len(strings)}"
        strings[placeholder] = found[1]
        return f'"{placeholder}"'

    # The lexer spends as much time on a long string as on other text, but nothing in it matters
    # here. A text that contains the placeholder itself is parsed as it is, at full cost.
    if _PLACEHOLDER not in text:
        text = _LONG_STRING.sub(set_aside, text)
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
    if strings:
        raise Malformed("the query has a long string where GraphQL allows no string")
    return plain


class _Normalizer(Visitor):
    """Visits a syntax tree to restore long strings, turn block strings into plain ones, and refuse
    duplicate names."""

    def __init__(self, strings: dict[str, str]) -> None:
        super().__init__()
        self._strings = strings

    def enter_string_value(self, node: ast.StringValueNode, *_: Any) -> Any:
        long = self._strings.pop(node.value, None)
        if long is None and not node.block:
            return None
        return ast.StringValueNode(value=node.value if long is None else long, block=False)

    def enter_field(self, node: ast.FieldNode, *_: Any) -> None:
        _refuse_duplicates(node.arguments or ())

    def enter_object_value(self, node: ast.ObjectValueNode, *_: Any) -> None:
        _refuse_duplicates(node.fields)


def _refuse_duplicates(nodes: Iterable[Any]) -> None:
    names = [each.name.value for each in nodes]
    if len(set(names)) != len(names):
        raise Malformed("the query has an argument twice")


def _check_tokens(text: str, budget: Budget) -> None:
    """Raise `OverBudget` if a text that could not be parsed has more tokens than the budget has
    left: the parser reports both problems with the same error."""
    lexer, most = Lexer(Source(text)), budget.graphql_tokens
    count = 0
    try:
        while count <= most and lexer.advance().kind is not TokenKind.EOF:
            count += 1
    except GraphQLError:
        return
    budget.charge_graphql_tokens(count)


class Fragments:
    """The fragments of a GraphQL document, by name. Raises `Malformed` for fragments that GraphQL
    (October 2021) forbids and that parsers treat differently."""

    def __init__(self, definitions: Iterable[ast.FragmentDefinitionNode]) -> None:
        self._definitions: dict[str, ast.FragmentDefinitionNode] = {}
        for each in definitions:
            # Fragment Name Uniqueness (section 5.5.1.1): readers differ in which one they take.
            if each.name.value in self._definitions:
                raise Malformed(f"the fragment `{each.name.value}` is defined twice")
            self._definitions[each.name.value] = each
        self._types = self._resolve_types()

    def __len__(self) -> int:
        return len(self._definitions)

    def fields(self, selected: SelectionSet, visited: set[str]) -> list[ast.FieldNode]:
        """Return the selected fields, including those of fragments. Skips the fragments in
        `visited`, and adds those that it meets to `visited`: a fragment's fields are listed once,
        however often it is spread."""
        found: list[ast.FieldNode] = []
        pending = [selected]
        while pending:
            selection = pending.pop()
            for node in () if selection is None else selection.selections:
                if isinstance(node, ast.FieldNode):
                    found.append(node)
                elif isinstance(node, ast.InlineFragmentNode):
                    pending.append(node.selection_set)
                elif isinstance(node, ast.FragmentSpreadNode) and node.name.value not in visited:
                    visited.add(node.name.value)
                    pending.append(self._definition(node.name.value).selection_set)
        return found

    def types(self, selected: SelectionSet) -> list[str]:
        """Return the type conditions of all fragments in a selection, at any depth, without
        duplicates."""
        own, spread = _direct_types(selected)
        for name in spread:
            self._definition(name)
            own += self._types[name]
        return list(dict.fromkeys(own))

    def _definition(self, name: str) -> ast.FragmentDefinitionNode:
        found = self._definitions.get(name)
        if found is None:
            # Fragment spread target defined (5.5.2.1).
            raise Malformed(f"the fragment `{name}` is not defined")
        return found

    def _resolve_types(self) -> dict[str, list[str]]:
        """Return, for each fragment, its own type condition and those of the fragments within
        it."""
        # Inner fragments are resolved before those that spread them, each once: walking them again
        # at every spread would take exponential time. No recursion: the caller chooses the depth.
        direct = {k: _direct_types(each.selection_set) for k, each in self._definitions.items()}
        resolved: dict[str, list[str]] = {}
        open_fragments: set[str] = set()
        # Each fragment is visited twice: before and after those within it.
        pending = [(name, False) for name in direct]
        while pending:
            name, inner_done = pending.pop()
            definition = self._definition(name)
            types, spread = direct[name]
            if inner_done:
                open_fragments.remove(name)
                own = definition.type_condition.name.value
                inner = [each for one in spread for each in resolved[one]]
                resolved[name] = list(dict.fromkeys([own, *types, *inner]))
            elif name in open_fragments:
                # Fragment spreads must not form cycles (5.5.2.2).
                raise Malformed(f"the fragment `{name}` is spread within itself")
            elif name not in resolved:
                open_fragments.add(name)
                pending.append((name, True))
                pending += [(each, False) for each in spread]
        return resolved


def _direct_types(selected: SelectionSet) -> tuple[list[str], list[str]]:
    """Return the type conditions of the inline fragments in a selection, at any depth, and the
    names of the fragments that are spread there; both without duplicates."""
    types: dict[str, None] = {}
    spread: dict[str, None] = {}
    pending = [selected]
    while pending:
        selection = pending.pop()
        for node in () if selection is None else selection.selections:
            if isinstance(node, ast.FragmentSpreadNode):
                spread[node.name.value] = None
            elif isinstance(node, ast.FieldNode):
                pending.append(node.selection_set)
            elif isinstance(node, ast.InlineFragmentNode):
                pending.append(node.selection_set)
                if node.type_condition is not None:
                    types[node.type_condition.name.value] = None
    return list(types), list(spread)


class GraphqlQuery(NamedTuple):
    document: ast.DocumentNode
    variables: dict[str, Any]
    other_members: dict[str, Any]
    """The members `variables` and `operationName` of the body, as they are forwarded."""
    operation: ast.OperationDefinitionNode
    fragments: Fragments

    def to_body(self, document: ast.DocumentNode | None = None) -> dict[str, Any]:
        """Return the body to forward. `document` replaces the query's own document if given."""
        # Printed anew rather than passed on, without comments, block strings and escapes, which two
        # readers of GraphQL could understand differently.
        return {"query": print_ast(document or self.document), **self.other_members}


def parse_graphql_request(body: Any, budget: Budget) -> GraphqlQuery:
    """Parse the body of a GraphQL request. Raises `Malformed`."""
    if not isinstance(body, dict):
        raise Malformed("a GraphQL request must be an object")
    text, variables, name = read_members(body, "query", "variables", "operationName")
    if not isinstance(text, str):
        raise Malformed("`query` must be a string")
    if variables is not None and not isinstance(variables, dict):
        raise Malformed("`variables` must be an object")
    document = parse_text(text, budget)
    operation, fragments = _definitions(document)
    # There is one operation. Any other name would select something that was not judged.
    if name not in (None, "") and (operation.name is None or operation.name.value != name):
        raise Malformed("`operationName` is not the name of the query's operation")
    sent = {key: body[key] for key in ("variables", "operationName") if body.get(key) is not None}
    values = _variable_values(operation, variables or {})
    return GraphqlQuery(document, values, sent, operation, fragments)


class GraphqlSearch(NamedTuple):
    """A search in a GraphQL query: the field that reads a collection, the collection, and the
    field's arguments as JSON values."""

    field: ast.FieldNode
    collection: CollectionName
    arguments: dict[str, Any]


def searches(query: GraphqlQuery) -> Iterator[GraphqlSearch]:
    """Yield every search in a query, each once however often its fragment is spread. Raises
    `Unresolved` for a root field that reads all collections."""
    # By root field: one fragment may be spread under both, and is read under each.
    visited: dict[str, set[str]] = {"Get": set(), "Aggregate": set()}
    for root in query.fragments.fields(query.operation.selection_set, set()):
        kind = root.name.value
        if kind == "__typename":
            continue
        if kind not in visited:
            raise Unresolved(f"`{kind}` reads every collection: use `Get` or `Aggregate`")
        for field in query.fragments.fields(root.selection_set, visited[kind]):
            if field.name.value != "__typename":
                given = ((each.name.value, each.value) for each in field.arguments or ())
                arguments = {key: to_json_value(each, query.variables) for key, each in given}
                # The field's name, not its alias: `x: Secret { … }` reads `Secret`.
                name = parse_collection(field.name.value)
                collection = CollectionName(name, parse_tenant(arguments.get("tenant")))
                yield GraphqlSearch(field, collection, arguments)


def collections(query: GraphqlQuery, budget: Budget) -> Iterator[CollectionName]:
    """Yield every collection that a query reads: those that it searches, those that its filters
    cross into, and those to which references in the response lead."""
    # One object for all searches, so that a variable used by many of them is walked once.
    references = References(budget, query.variables.values())
    for search in searches(query):
        yield search.collection
        # `groupBy` of `Aggregate` is a path itself. A reference is followed by selecting a
        # fragment on its collection.
        grouped = references.in_path(search.arguments.get("groupBy"))
        followed = map(parse_collection, query.fragments.types(search.field.selection_set))
        named = references.in_arguments(search.arguments)
        for name in dict.fromkeys((*named, *grouped, *followed)):
            # The other collection may have the same tenants, or none: both are judged.
            yield CollectionName(name)
            yield CollectionName(name, search.collection.tenant)


def to_json_value(node: ast.ValueNode, variables: dict[str, Any]) -> Any:
    """Return a GraphQL value in its JSON form, with variables replaced by their values. Raises
    `Unresolved` for a variable without a value."""
    match node:
        case ast.VariableNode():
            if node.name.value not in variables:
                raise Unresolved(f"the variable `${node.name.value}` has no value")
            # The value itself, not a copy: `References` recognises it by its identity.
            return variables[node.name.value]
        case ast.ListValueNode():
            return [to_json_value(each, variables) for each in node.values]
        case ast.ObjectValueNode():
            return {each.name.value: to_json_value(each.value, variables) for each in node.fields}
        case ast.NullValueNode():
            return None
        case ast.IntValueNode() | ast.FloatValueNode():
            return float(node.value)
        case ast.StringValueNode() | ast.EnumValueNode() | ast.BooleanValueNode():
            return node.value
    raise Malformed("the query has a value of an unknown kind")


def _definitions(document: ast.DocumentNode) -> tuple[ast.OperationDefinitionNode, Fragments]:
    nodes = document.definitions
    fragments = [each for each in nodes if isinstance(each, ast.FragmentDefinitionNode)]
    operations = [each for each in nodes if isinstance(each, ast.OperationDefinitionNode)]
    if len(fragments) + len(operations) != len(nodes):
        raise Malformed("the document defines something other than a query or a fragment")
    # With several, the one that runs would depend on `operationName`.
    if len(operations) != 1 or operations[0].operation is not ast.OperationType.QUERY:
        raise Malformed("the document must have exactly one operation, a query")
    return operations[0], Fragments(fragments)


def _variable_values(
    operation: ast.OperationDefinitionNode, given: dict[str, Any]
) -> dict[str, Any]:
    values = dict(given)
    declared = set()
    for definition in operation.variable_definitions or ():
        name = definition.variable.name.value
        if name in declared:
            raise Malformed(f"the variable `${name}` is declared twice")
        declared.add(name)
        if definition.default_value is None:
            continue
        if name not in given:
            # GraphQL allows no variables in a default (October 2021, section 2.10).
            values[name] = to_json_value(definition.default_value, {})
        elif given[name] is None:
            # Some readers use null here, others the default.
            raise Malformed(f"the variable `${name}` is null but has a default: leave it out")
    return values
