"""Parses a GraphQL request to Weaviate: the collections it reads, and the form that is forwarded.

The forwarded text is printed from the tree that was judged. Knows GraphQL's syntax and what
Weaviate makes of a query. Knows no routes.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from graphql import print_ast
from graphql.language import ast

from policies.ground.errors import Malformed
from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import Unresolved
from sidecar.protocols.shared.strict_queries import read_members
from sidecar.protocols.weaviate.graphql_parser import Fragments, parse_text
from sidecar.protocols.weaviate.names import (
    CollectionName,
    References,
    parse_collection,
    parse_tenant,
)


class GraphqlQuery(NamedTuple):
    """A request with one operation."""

    document: ast.DocumentNode
    variables: dict[str, Any]
    other_members: dict[str, Any]
    """`variables` and `operationName` of the body, as they are forwarded."""
    operation: ast.OperationDefinitionNode
    fragments: Fragments

    def to_body(self, document: ast.DocumentNode | None = None) -> dict[str, Any]:
        """Return the body to forward, with `document` instead of the query's own if given."""
        # Printed anew rather than passed on, without comments, block strings and escapes, which two
        # readers of GraphQL could understand differently.
        return {"query": print_ast(document or self.document), **self.other_members}


def parse_query(body: Any, budget: Budget) -> GraphqlQuery:
    """Parses a request's body. Raises `Malformed`."""
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
    """A collection that is read, the field that reads it, and the field's arguments."""

    field: ast.FieldNode
    collection: CollectionName
    arguments: dict[str, Any]


def searches(query: GraphqlQuery) -> Iterator[GraphqlSearch]:
    """Yield every search of a request, each once however often its fragment is spread. Raises
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
                arguments = {
                    each.name.value: to_json_value(each.value, query.variables)
                    for each in field.arguments or ()
                }
                # The field's name, not its alias: `x: Secret { … }` reads `Secret`.
                name = parse_collection(field.name.value)
                collection = CollectionName(name, parse_tenant(arguments.get("tenant")))
                yield GraphqlSearch(field, collection, arguments)


def collections(query: GraphqlQuery, budget: Budget) -> Iterator[CollectionName]:
    """Yield every collection of a request: those searched, those that filters cross, and those that
    references in the response lead to."""
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
    """Return a value in its JSON form. Raises `Unresolved` for a variable without a value."""
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
    operations = []
    fragments = []
    for definition in document.definitions:
        if isinstance(definition, ast.FragmentDefinitionNode):
            fragments.append(definition)
        elif isinstance(definition, ast.OperationDefinitionNode):
            operations.append(definition)
        else:
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
