"""A GraphQL request to Weaviate: which collections it reads, and the one form in which it goes on.

What is forwarded is printed anew from the tree that was judged: comments, block strings and
escapes, which two readers of GraphQL could take in two ways, don't get through. Knows GraphQL's
syntax and what Weaviate makes of a query; knows no route.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from graphql import GraphQLError, Visitor, parse, print_ast, visit
from graphql.language import ast

from policies.ground.errors import Malformed
from sidecar.protocols.lenient import member
from sidecar.protocols.protocol import Unresolved
from sidecar.protocols.weaviate_names import Named, collection, referred, tenant

MOST_TOKENS = 20_000

Fields = list[ast.FieldNode]


class Query(NamedTuple):
    """A request that was read. Its one operation's fields stand at `root`."""

    document: ast.DocumentNode
    variables: dict[str, Any]
    sent: dict[str, Any]
    """The body's other members, as they are forwarded."""
    operation: ast.OperationDefinitionNode
    fragments: dict[str, ast.FragmentDefinitionNode]

    def printed(self, document: ast.DocumentNode | None = None) -> dict[str, Any]:
        """The body that is forwarded."""
        return {"query": print_ast(document or self.document), **self.sent}


def read(body: Any) -> Query:
    """Reads a request's body. Raises `Malformed`."""
    if not isinstance(body, dict):
        raise Malformed("a query is not an object")
    text, variables, name = member(body, "query", "variables", "operationName")
    if not isinstance(text, str):
        raise Malformed("`query` is not a text")
    if variables is not None and not isinstance(variables, dict):
        raise Malformed("`variables` is not an object")
    try:
        document = parse(text, no_location=True, max_tokens=MOST_TOKENS)
        document = visit(document, _Plain())
    except GraphQLError as error:
        raise Malformed(f"the query is not GraphQL: {error.message[:200]}") from None
    except RecursionError:
        raise Malformed("the query is nested too deeply") from None
    operation, fragments = _definitions(document)
    if name not in (None, "") and (operation.name is None or operation.name.value != name):
        raise Malformed("`operationName` is not the operation's")
    sent = {key: body[key] for key in ("variables", "operationName") if body.get(key) is not None}
    values = _variables(operation, variables or {})
    return Query(document, values, sent, operation, fragments)


class Search(NamedTuple):
    """One collection that is read: by which field, for which arguments."""

    kind: str
    """`Get` or `Aggregate`."""
    field: ast.FieldNode
    named: Named
    arguments: dict[str, Any]


def searches(query: Query) -> Iterator[Search]:
    """Every search of a request. Raises `Unresolved` for what reads all collections."""
    for root in fields(query, query.operation.selection_set):
        kind = root.name.value
        if kind == "__typename":
            continue
        if kind not in ("Get", "Aggregate"):
            raise Unresolved(f"`{kind}` concerns every collection at once")
        for field in fields(query, root.selection_set):
            if field.name.value != "__typename":
                given = {
                    each.name.value: value(each.value, query) for each in field.arguments or ()
                }
                found = Named(collection(field.name.value), tenant(given.get("tenant")))
                yield Search(kind, field, found, given)


def sources(query: Query) -> Iterator[Named]:
    """Every collection of a request: those searched, those a filter goes through, and those that
    references in the answer lead to."""
    for search in searches(query):
        yield search.named
        for name in (*referred(search.arguments), *_grouped(search), *_crossed(query, search)):
            # A tenant's object may refer to one of a collection that has no tenants.
            yield Named(name)
            yield Named(name, search.named.tenant)


def fields(query: Query, selected: ast.SelectionSetNode | None) -> Fields:
    """The fields selected, those of fragments among them."""
    found: Fields = []
    for node in _selections(query, selected):
        if isinstance(node, ast.FieldNode):
            found.append(node)
    return found


def _selections(
    query: Query, selected: ast.SelectionSetNode | None, *, deep: bool = False
) -> Iterator[ast.FieldNode | ast.InlineFragmentNode | ast.FragmentDefinitionNode]:
    """What is selected, and in fragments; with `deep` in fields too. Each fragment comes once."""
    pending = [selected]
    known = set()
    while pending:
        selection = pending.pop()
        for node in () if selection is None else selection.selections:
            if isinstance(node, ast.FragmentSpreadNode):
                name = node.name.value
                if name not in known:
                    known.add(name)
                    fragment = _fragment(query, name)
                    pending.append(fragment.selection_set)
                    yield fragment
            elif isinstance(node, (ast.FieldNode, ast.InlineFragmentNode)):
                if deep or isinstance(node, ast.InlineFragmentNode):
                    pending.append(node.selection_set)
                yield node


def value(node: ast.ValueNode, query: Query) -> Any:
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


def _grouped(search: Search) -> Iterator[str]:
    """The collections on the way of `groupBy`, which is a path by itself in `Aggregate`."""
    path = search.arguments.get("groupBy")
    if isinstance(path, list):
        yield from (collection(name) for name in path[1::2])


def _crossed(query: Query, search: Search) -> Iterator[str]:
    """The types that fragments in a collection's selection are on: what a reference leads to is
    selected by a fragment on its collection."""
    for node in _selections(query, search.field.selection_set, deep=True):
        if not isinstance(node, ast.FieldNode) and node.type_condition is not None:
            yield collection(node.type_condition.name.value)


def _fragment(query: Query, name: str) -> ast.FragmentDefinitionNode:
    found = query.fragments.get(name)
    if found is None:
        raise Malformed(f"there is no fragment `{name}`")
    return found


def _definitions(
    document: ast.DocumentNode,
) -> tuple[ast.OperationDefinitionNode, dict[str, ast.FragmentDefinitionNode]]:
    operations = []
    fragments: dict[str, ast.FragmentDefinitionNode] = {}
    for definition in document.definitions:
        if isinstance(definition, ast.FragmentDefinitionNode):
            if definition.name.value in fragments:
                raise Malformed(f"the fragment `{definition.name.value}` stands twice")
            fragments[definition.name.value] = definition
        elif isinstance(definition, ast.OperationDefinitionNode):
            operations.append(definition)
        else:
            raise Malformed("the document holds something else than a query")
    if len(operations) != 1 or operations[0].operation is not ast.OperationType.QUERY:
        raise Malformed("the document is not one query")
    return operations[0], fragments


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
        constant = Query(ast.DocumentNode(), {}, {}, operation, {})
        values[name] = value(definition.default_value, constant)
    return values


class _Plain(Visitor):
    """Writes block strings as plain ones, and refuses what stands twice: of two arguments of one
    name, readers differ in which they take."""

    def enter_string_value(self, node: ast.StringValueNode, *_: Any) -> Any:
        return ast.StringValueNode(value=node.value, block=False) if node.block else None

    def enter_field(self, node: ast.FieldNode, *_: Any) -> None:
        _once([each.name.value for each in node.arguments or ()])

    def enter_object_value(self, node: ast.ObjectValueNode, *_: Any) -> None:
        _once([each.name.value for each in node.fields])


def _once(names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise Malformed("an argument stands twice")
