"""A GraphQL request to Weaviate: which collections it reads, and the one form in which it goes on.

What is forwarded is printed anew from the tree that was judged: comments, block strings and
escapes, which two readers of GraphQL could take in two ways, don't get through. Knows GraphQL's
syntax and what Weaviate makes of a query; knows no route.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from graphql import print_ast
from graphql.language import ast

from policies.ground.errors import Malformed
from sidecar.protocols.budget import Budget
from sidecar.protocols.messages import Unresolved
from sidecar.protocols.shared.strict_members import read_members
from sidecar.protocols.weaviate import graphql_text
from sidecar.protocols.weaviate.fragments import Fragments
from sidecar.protocols.weaviate.names import CollectionName, collection, tenant
from sidecar.protocols.weaviate.references import References


class GraphqlQuery(NamedTuple):
    """A request that was read. Its one operation's fields stand at `root`."""

    document: ast.DocumentNode
    variables: dict[str, Any]
    sent: dict[str, Any]
    """The body's other members, as they are forwarded."""
    operation: ast.OperationDefinitionNode
    fragments: Fragments

    def printed(self, document: ast.DocumentNode | None = None) -> dict[str, Any]:
        """The body that is forwarded."""
        return {"query": print_ast(document or self.document), **self.sent}


def read(body: Any, budget: Budget) -> GraphqlQuery:
    """Reads a request's body. Raises `Malformed`."""
    if not isinstance(body, dict):
        raise Malformed("a query is not an object")
    text, variables, name = read_members(body, "query", "variables", "operationName")
    if not isinstance(text, str):
        raise Malformed("`query` is not a text")
    if variables is not None and not isinstance(variables, dict):
        raise Malformed("`variables` is not an object")
    document = graphql_text.read(text, budget)
    operation, fragments = _definitions(document)
    if name not in (None, "") and (operation.name is None or operation.name.value != name):
        raise Malformed("`operationName` is not the operation's")
    sent = {key: body[key] for key in ("variables", "operationName") if body.get(key) is not None}
    values = _variables(operation, variables or {})
    return GraphqlQuery(document, values, sent, operation, fragments)


class GraphqlSearch(NamedTuple):
    """One collection that is read: by which field, for which arguments."""

    kind: str
    """`Get` or `Aggregate`."""
    field: ast.FieldNode
    named: CollectionName
    arguments: dict[str, Any]


def searches(query: GraphqlQuery) -> Iterator[GraphqlSearch]:
    """Every search of a request, each once however often its fragment is spread. Raises
    `Unresolved` for what reads all collections."""
    spread: dict[str, set[str]] = {"Get": set(), "Aggregate": set()}
    for root in query.fragments.fields(query.operation.selection_set, set()):
        kind = root.name.value
        if kind == "__typename":
            continue
        if kind not in spread:
            raise Unresolved(f"`{kind}` concerns every collection at once")
        for field in query.fragments.fields(root.selection_set, spread[kind]):
            if field.name.value != "__typename":
                given = {
                    each.name.value: value(each.value, query) for each in field.arguments or ()
                }
                found = CollectionName(collection(field.name.value), tenant(given.get("tenant")))
                yield GraphqlSearch(kind, field, found, given)


def sources(query: GraphqlQuery, budget: Budget) -> Iterator[CollectionName]:
    """Every collection of a request: those searched, those a filter goes through, and those that
    references in the answer lead to."""
    references = References(budget, query.variables.values())
    for search in searches(query):
        yield search.named
        # `groupBy` of `Aggregate` is a path by itself. What a reference leads to is selected by a
        # fragment on its collection.
        on_the_way = references.of_path(search.arguments.get("groupBy"))
        crossed = map(collection, query.fragments.types(search.field.selection_set))
        for name in dict.fromkeys((*references.of(search.arguments), *on_the_way, *crossed)):
            # A tenant's object may refer to one of a collection that has no tenants.
            yield CollectionName(name)
            yield CollectionName(name, search.named.tenant)


def value(node: ast.ValueNode, query: GraphqlQuery) -> Any:
    """A value as JSON has it. Raises `Unresolved` for a variable without one."""
    match node:
        case ast.VariableNode():
            if node.name.value not in query.variables:
                raise Unresolved(f"the variable `${node.name.value}` has no value")
            return query.variables[node.name.value]
        case ast.ListValueNode():
            return [value(each, query) for each in node.values]
        case ast.ObjectValueNode():
            return {each.name.value: value(each.value, query) for each in node.fields}
        case ast.NullValueNode():
            return None
        case ast.IntValueNode() | ast.FloatValueNode():
            return float(node.value)
        case ast.StringValueNode() | ast.EnumValueNode() | ast.BooleanValueNode():
            return node.value
    raise Malformed("the query holds a value of a kind not known here")


def _definitions(
    document: ast.DocumentNode,
) -> tuple[ast.OperationDefinitionNode, Fragments]:
    operations = []
    fragments = []
    for definition in document.definitions:
        if isinstance(definition, ast.FragmentDefinitionNode):
            fragments.append(definition)
        elif isinstance(definition, ast.OperationDefinitionNode):
            operations.append(definition)
        else:
            raise Malformed("the document holds something else than a query")
    if len(operations) != 1 or operations[0].operation is not ast.OperationType.QUERY:
        raise Malformed("the document is not one query")
    return operations[0], Fragments(fragments)


def _variables(operation: ast.OperationDefinitionNode, given: dict[str, Any]) -> dict[str, Any]:
    values = dict(given)
    seen = set()
    for definition in operation.variable_definitions or ():
        name = definition.variable.name.value
        if name in seen:
            raise Malformed(f"the variable `${name}` stands twice")
        seen.add(name)
        if definition.default_value is None:
            continue
        if name in given:
            # A null beside a default is null to some readers, and the default to others.
            if given[name] is None:
                raise Malformed(f"the variable `${name}` is null and has a default")
            continue
        constant = GraphqlQuery(ast.DocumentNode(), {}, {}, operation, Fragments(()))
        values[name] = value(definition.default_value, constant)
    return values
