"""Plans how requests are forwarded to Weaviate and how their responses are filtered, so that
objects are withheld by their own level: a GraphQL search gets a condition in addition to the
caller's `where`.

Only plain searches are filtered. Searches that group, generate, follow references or start from
another object combine objects in ways that the response doesn't show.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from graphql import parse_value
from graphql.language import ast

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.protocol import (
    FORWARD_UNCHANGED,
    FetchedResponse,
    ForwardedPart,
    ForwardPlan,
    RoutedRequest,
    Visibility,
)
from sidecar.protocols.shared.responses import (
    DocumentLevels,
    expect_list,
    expect_object,
    levels_of,
    response_json,
    to_json,
)
from sidecar.protocols.strict_body import Budget, json_object
from sidecar.protocols.weaviate.graphql import GraphqlQuery, parse_graphql_request, searches
from sidecar.protocols.weaviate.names import (
    ResponseFilter,
    json_array,
    node_filter,
    object_filter,
    parse_collection,
    tenant_filter,
)
from sidecar.protocols.weaviate.sources import WeaviateSources
from sidecar.settings.model import Source

_PLAIN_ARGUMENTS = frozenset((
    "where", "limit", "offset", "sort", "autocut", "tenant", "consistencyLevel", "nearVector",
    "nearText", "nearImage", "nearAudio", "nearVideo", "nearDepth", "nearThermal", "nearIMU",
    "bm25", "hybrid",
))  # fmt: skip
# Members of a search argument that start from another object, or from another search.
_COMBINING = frozenset(("moveTo", "moveAwayFrom", "searches", "nearText"))
_PLAIN_ADDITIONAL = frozenset((
    "id", "distance", "certainty", "score", "explainScore", "vector", "vectors",
    "creationTimeUnix", "lastUpdateTimeUnix", "isConsistent", "rerank",
))  # fmt: skip
PLAIN_NAME = re.compile(r"[_A-Za-z][_0-9A-Za-z]*\Z")


class FilteredBody(NamedTuple):
    body: dict[str, Any]
    level_added: dict[str, bool]
    """For each search, by its key in the response: True if the sidecar added the level's field,
    which has to be removed again."""


def can_filter(query: GraphqlQuery, field: str) -> bool:
    """Return whether objects can be withheld from the response to this query by their levels in
    `field`."""
    roots = query.operation.selection_set.selections
    if not PLAIN_NAME.match(field) or query.fragments or len(roots) != 1:
        return False
    [root] = roots
    # `Aggregate` counts objects that it doesn't show. An alias of `Get` would change its key in the
    # response, where `_filter_answer` looks for it.
    if not isinstance(root, ast.FieldNode) or _key(root) != "Get" or root.name.value != "Get":
        return False
    found = list(searches(query))
    keys = {_key(each.field) for each in found}
    selected = root.selection_set.selections if root.selection_set is not None else ()
    # GraphQL merges fields with the same key, which would mix the results of two searches.
    return len(keys) == len(selected) and all(
        _is_plain(each.field, each.arguments, field) for each in found
    )


def add_filter(query: GraphqlQuery, levels: DocumentLevels) -> FilteredBody:
    """Return the body of `query` with the condition and the level's field added to each search.
    Call it only for a query for which `can_filter` is true."""
    [root] = query.operation.selection_set.selections
    assert isinstance(root, ast.FieldNode)
    assert root.selection_set is not None
    level_added: dict[str, bool] = {}
    filtered = []
    for node in root.selection_set.selections:
        assert isinstance(node, ast.FieldNode)
        search, added = _filter_search(node, levels)
        filtered.append(search)
        level_added[_key(node)] = added
    root = _replace(root, selection_set=ast.SelectionSetNode(selections=tuple(filtered)))
    selection = ast.SelectionSetNode(selections=(root,))
    operation = _replace(query.operation, selection_set=selection)
    return FilteredBody(query.to_body(ast.DocumentNode(definitions=(operation,))), level_added)


def graphql_filter(
    levels: DocumentLevels, requests: list[FilteredBody], *, batch: bool
) -> ResponseFilter:
    """Return the function that filters the response to `requests`: to one request, or to a batch of
    them."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        whole = response_json(response)
        answers = expect_list(whole, "answer") if batch else [whole]
        # Answers belong to requests by their order alone, so a missing one would shift the rest.
        if len(answers) != len(requests):
            reason = f"the data source answered {len(answers)} requests instead of {len(requests)}"
            raise UpstreamFailed(reason)
        pairs = zip(answers, requests, strict=True)
        withheld = sum(_filter_answer(*pair, levels) for pair in pairs)
        changed = any(added for each in requests for added in each.level_added.values())
        return ForwardedPart(to_json(whole) if withheld or changed else response.body, withheld)

    return filter_response


def _filter_answer(answer: Any, request: FilteredBody, levels: DocumentLevels) -> int:
    """Remove hidden objects from the answer to one query, in place, and return their number."""
    if expect_object(answer, "answer").keys() - {"data", "errors"}:
        raise UpstreamFailed("the data source's answer has members other than `data` and `errors`")
    data = expect_object({} if answer.get("data") is None else answer["data"], "data")
    results = expect_object({} if data.get("Get") is None else data["Get"], "result")
    if data.keys() - {"Get"} or results.keys() - request.level_added.keys():
        raise UpstreamFailed("the data source's answer has results that were not requested")
    withheld = 0
    for key, found in results.items():
        # The search failed, for the reason in `errors`.
        if found is None:
            continue
        objects = [expect_object(each, "object") for each in expect_list(found, "result")]
        visible = [each for each in objects if levels.may_see(each)]
        # Only now: the check above needs the level.
        if request.level_added[key]:
            for each in visible:
                each.pop(levels.path[0], None)
        withheld += len(found) - len(visible)
        results[key] = visible
    return withheld


def _is_plain(field: ast.FieldNode, arguments: dict[str, Any], level: str) -> bool:
    if field.selection_set is None or arguments.keys() - _PLAIN_ARGUMENTS:
        return False
    for name in arguments.keys() & {"nearText", "hybrid"}:
        given = arguments[name]
        if not isinstance(given, dict) or given.keys() & _COMBINING - {name}:
            return False
    # A search whose whole `where` is a variable is not filtered: the condition is put around the
    # caller's own in the text, where its form must be visible.
    wheres = [each.value for each in field.arguments or () if each.name.value == "where"]
    if not all(isinstance(each, ast.ObjectValueNode) for each in wheres):
        return False
    return all(_is_plain_selection(node, level) for node in field.selection_set.selections)


def _is_plain_selection(node: ast.SelectionNode, level: str) -> bool:
    if not isinstance(node, ast.FieldNode):
        return False
    if node.name.value == "_additional" and node.selection_set is not None:
        return _key(node) != level and all(
            isinstance(each, ast.FieldNode) and each.name.value in _PLAIN_ADDITIONAL
            for each in node.selection_set.selections
        )
    # An alias could make another property look like the level.
    return node.selection_set is None and (_key(node) != level or node.name.value == level)


def _filter_search(field: ast.FieldNode, levels: DocumentLevels) -> tuple[ast.FieldNode, bool]:
    """Return the search with the condition and the level's field added. Also returns whether the
    field had to be added, because the caller did not select it."""
    # One element: `can_filter` has checked that the field is a plain name.
    [level] = levels.path
    assert field.selection_set is not None
    selected = field.selection_set.selections
    present = any(
        isinstance(node, ast.FieldNode)
        and node.name.value == _key(node) == level
        # A directive such as `@skip` could leave the level out.
        and not node.directives
        for node in selected
    )
    if not present:
        level_field = ast.FieldNode(name=ast.NameNode(value=level), arguments=(), directives=())
        selected = (*selected, level_field)
    arguments = field.arguments or ()
    if levels.filterable:
        arguments = _with_condition(arguments, levels)
    selection = ast.SelectionSetNode(selections=selected)
    return _replace(field, arguments=arguments, selection_set=selection), not present


def _with_condition(
    arguments: tuple[ast.ArgumentNode, ...], levels: DocumentLevels
) -> tuple[ast.ArgumentNode, ...]:
    condition: ast.ValueNode = _level_condition(levels)
    own = [each.value for each in arguments if each.name.value == "where"]
    if own:
        both = parse_value("{operator: And, operands: []}", no_location=True)
        assert isinstance(both, ast.ObjectValueNode)
        operator, operands = both.fields
        operands = _replace(operands, value=ast.ListValueNode(values=(condition, *own)))
        condition = _replace(both, fields=(operator, operands))
    where = ast.ArgumentNode(name=ast.NameNode(value="where"), value=condition)
    return (*(each for each in arguments if each.name.value != "where"), where)


@lru_cache(maxsize=64)
def _level_condition(levels: DocumentLevels) -> ast.ValueNode:
    """Return a `where` condition that matches objects with one of the levels."""
    # Safe as text, since nothing of the request is in it: the field is configured, and a plain name
    # (`can_filter`); the levels are words of our own.
    equal = f'{{path: ["{levels.path[0]}"], operator: Equal, valueText: "%s"}}'
    operands = ", ".join(equal % level for level in levels.levels)
    return parse_value(f"{{operator: Or, operands: [{operands}]}}", no_location=True)


def _key(field: ast.FieldNode) -> str:
    """Return the key that a GraphQL field has in the response: its alias, or else its name."""
    return field.name.value if field.alias is None else field.alias.value


def _replace(node: Any, **changes: Any) -> Any:
    # graphql-core's nodes have no `replace` of their own.
    members = {key: getattr(node, key) for key in node.keys if key != "loc"}
    return type(node)(**{**members, **changes})


class WeaviateForwarding(WeaviateSources):
    def __init__(self, source: Source, monotonic: Callable[[], float]) -> None:
        super().__init__(source, monotonic)
        self._level_field = source.sensitivity_field

    def can_filter(self, queries: list[GraphqlQuery]) -> bool:
        """Return whether objects can be withheld from all these queries. If not, the queries are
        judged at `critical`, as if they returned everything."""
        field = self._level_field
        return field is not None and all(can_filter(each, field) for each in queries)

    def forward_queries(
        self, request: RoutedRequest, _sources: object, _visibility: Visibility
    ) -> ForwardPlan:
        """Return the plan that forwards the queries in the form in which they were judged."""
        return ForwardPlan(_to_bytes(request, [each.to_body() for each in request.body]))

    def filter_queries(
        self, request: RoutedRequest, sources: object, visibility: Visibility
    ) -> ForwardPlan:
        """Return the plan that forwards the queries with a condition, so that only visible objects
        come back, and that filters the response."""
        levels = levels_of(visibility)
        if levels is None:
            return self.forward_queries(request, sources, visibility)
        filtered = [add_filter(each, levels) for each in request.body]
        body = _to_bytes(request, [each.body for each in filtered])
        return ForwardPlan(body, graphql_filter(levels, filtered, batch=_is_batch(request)))

    def filter_objects(
        self, _request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        levels = levels_of(visibility)
        if levels is None:
            return FORWARD_UNCHANGED
        # A REST list takes no condition, so its objects are only checked, and a page may be shorter
        # than the agent asked for.
        return ForwardPlan(filter_response=object_filter(levels))

    def filter_tenants(
        self, request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        # `of_path` has just fetched the aliases, so they are cached.
        name = self._cached_target(parse_collection(request.path_params[0]), request)
        return ForwardPlan(filter_response=tenant_filter(name, self.source_names, visibility))

    def filter_nodes(
        self, _request: RoutedRequest, _sources: object, visibility: Visibility
    ) -> ForwardPlan:
        return ForwardPlan(filter_response=node_filter(self.source_names, visibility))


def parse_graphql(raw: bytes, media_type: str | None, budget: Budget) -> list[GraphqlQuery]:
    return [parse_graphql_request(json_object(raw, media_type), budget)]


def parse_graphql_batch(raw: bytes, media_type: str | None, budget: Budget) -> list[GraphqlQuery]:
    return [parse_graphql_request(each, budget) for each in json_array(raw, media_type, budget)]


def _is_batch(request: RoutedRequest) -> bool:
    # A batch of one is answered with a list of one, so only the path tells it from a single query.
    return request.target.segments[-1] == "batch"


def _to_bytes(request: RoutedRequest, bodies: list[dict[str, Any]]) -> bytes:
    return orjson.dumps(bodies if _is_batch(request) else bodies[0])
