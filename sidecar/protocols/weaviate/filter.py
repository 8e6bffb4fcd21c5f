"""Leaves out of Weaviate's answers the objects that may not be seen by their own mark: in GraphQL
by a condition beside the caller's `where` and by the mark in the answer, in REST by the answer.

Only searches of a plain form are narrowed: what groups, generates, follows references or starts
from another object mixes objects in ways that no answer proves. Knows no route.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson
from graphql.language import ast

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.messages import FetchedResponse, ForwardedPart
from sidecar.protocols.shared.document_levels import (
    DocumentLevels,
    expect_list,
    expect_object,
    to_json,
)
from sidecar.protocols.weaviate.graphql import GraphqlQuery, searches

_PLAIN_ARGUMENTS = frozenset((
    "where", "limit", "offset", "sort", "autocut", "tenant", "consistencyLevel", "nearVector",
    "nearText", "nearImage", "nearAudio", "nearVideo", "nearDepth", "nearThermal", "nearIMU",
    "bm25", "hybrid",
))  # fmt: skip
_MIXING = frozenset(("moveTo", "moveAwayFrom", "searches", "nearText"))
_PLAIN_ADDITIONAL = frozenset((
    "id", "distance", "certainty", "score", "explainScore", "vector", "vectors",
    "creationTimeUnix", "lastUpdateTimeUnix", "isConsistent", "rerank",
))  # fmt: skip
_NAME = re.compile(r"[_A-Za-z][_0-9A-Za-z]*\Z")


class FilteredBody(NamedTuple):
    """A request's body as it is forwarded. `searched` are the keys under which collections stand in
    the answer, and whether the mark is to be taken out again there."""

    body: dict[str, Any]
    searched: dict[str, bool]


def plain(query: GraphqlQuery, field: str) -> bool:
    """Whether a request can be narrowed where `field` holds the mark."""
    roots = query.operation.selection_set.selections
    if not _NAME.match(field) or query.fragments or len(roots) != 1:
        return False
    found = list(searches(query))
    [root] = roots
    if not isinstance(root, ast.FieldNode) or _key(root) != "Get" or root.name.value != "Get":
        return False
    keys = [_key(each.field) for each in found]
    # A field that is selected twice under one key is merged into one.
    selected = root.selection_set.selections if root.selection_set is not None else ()
    return len(set(keys)) == len(selected) and all(
        _plain_search(each.field, each.arguments, field) for each in found
    )


def narrowed(query: GraphqlQuery, marks: DocumentLevels) -> FilteredBody:
    """`query`, which is plain, so that it asks for what may be seen, and for the marks."""
    [root] = query.operation.selection_set.selections
    assert isinstance(root, ast.FieldNode)
    assert root.selection_set is not None
    searched: dict[str, bool] = {}
    made = []
    for node in root.selection_set.selections:
        assert isinstance(node, ast.FieldNode)
        field, added = _narrow(node, marks)
        made.append(field)
        searched[_key(node)] = added
    root = _with(root, selection_set=ast.SelectionSetNode(selections=tuple(made)))
    operation = _with(query.operation, selection_set=ast.SelectionSetNode(selections=(root,)))
    return FilteredBody(query.printed(ast.DocumentNode(definitions=(operation,))), searched)


def reading(
    marks: DocumentLevels, asked: list[FilteredBody], *, batch: bool
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Reads the answer to one request, or to a batch of them."""

    def read(answer: FetchedResponse) -> ForwardedPart:
        whole = _parsed(answer)
        answers = expect_list(whole, "answer") if batch else [whole]
        if len(answers) != len(asked):
            raise UpstreamFailed("the data source answers another number of requests")
        withheld = sum(_sift(*pair, marks) for pair in zip(answers, asked, strict=True))
        taken = any(each for one in asked for each in one.searched.values())
        return ForwardedPart(to_json(whole) if withheld or taken else answer.body, withheld)

    return read


def reading_objects(marks: DocumentLevels) -> Callable[[FetchedResponse], ForwardedPart]:
    """Reads `{"objects": [{"properties"}], "totalResults"}`."""

    def read(answer: FetchedResponse) -> ForwardedPart:
        whole = expect_object(_parsed(answer), "answer")
        found = expect_list(whole.get("objects"), "list of objects")
        seen = [
            each for each in found if marks.may_see(expect_object(each, "object").get("properties"))
        ]
        if len(seen) == len(found):
            return ForwardedPart(answer.body)
        whole["objects"] = seen
        if "totalResults" in whole:
            whole["totalResults"] = len(seen)
        return ForwardedPart(to_json(whole), len(found) - len(seen))

    return read


def _parsed(answer: FetchedResponse) -> Any:
    try:
        return orjson.loads(answer.body)
    except orjson.JSONDecodeError as error:
        raise UpstreamFailed("the data source's answer is not JSON") from error


def _sift(answer: Any, asked: FilteredBody, marks: DocumentLevels) -> int:
    """How many objects were taken out of one answer."""
    if expect_object(answer, "answer").keys() - {"data", "errors"}:
        raise UpstreamFailed("the data source's answer is not of a form known here")
    if answer.get("data") is None:
        return 0
    data = expect_object(answer["data"], "data")
    if data.get("Get") is None and not data.keys() - {"Get"}:
        return 0
    got = expect_object(data.get("Get"), "result")
    if data.keys() - {"Get"} or got.keys() - asked.searched.keys():
        raise UpstreamFailed("the data source answers what was not asked for")
    withheld = 0
    for key, found in got.items():
        if found is None:
            continue
        seen = [
            each
            for each in expect_list(found, "result")
            if marks.may_see(expect_object(each, "object"))
        ]
        if asked.searched[key]:
            for each in seen:
                each.pop(marks.path[0], None)
        withheld += len(found) - len(seen)
        got[key] = seen
    return withheld


def _plain_search(field: ast.FieldNode, arguments: dict[str, Any], mark: str) -> bool:
    if field.selection_set is None or arguments.keys() - _PLAIN_ARGUMENTS:
        return False
    for name, given in arguments.items():
        if name in ("nearText", "hybrid") and not _unmixed(given, name):
            return False
    wheres = [each.value for each in field.arguments or () if each.name.value == "where"]
    if not all(isinstance(each, ast.ObjectValueNode) for each in wheres):
        return False
    return all(_plain_selection(node, mark) for node in field.selection_set.selections)


def _unmixed(given: Any, name: str) -> bool:
    return isinstance(given, dict) and not (given.keys() & _MIXING - {name})


def _plain_selection(node: ast.SelectionNode, mark: str) -> bool:
    if not isinstance(node, ast.FieldNode):
        return False
    if node.name.value == "_additional" and node.selection_set is not None:
        return _key(node) != mark and all(
            isinstance(each, ast.FieldNode) and each.name.value in _PLAIN_ADDITIONAL
            for each in node.selection_set.selections
        )
    # Another property under the mark's name would be taken for the mark.
    return node.selection_set is None and (_key(node) != mark or node.name.value == mark)


def _narrow(field: ast.FieldNode, marks: DocumentLevels) -> tuple[ast.FieldNode, bool]:
    [mark] = marks.path
    assert field.selection_set is not None
    selected = field.selection_set.selections
    there = any(
        isinstance(node, ast.FieldNode)
        and node.name.value == _key(node) == mark
        and not node.directives
        for node in selected
    )
    if not there:
        own = ast.FieldNode(name=ast.NameNode(value=mark), arguments=(), directives=())
        selected = (*selected, own)
    arguments = field.arguments or ()
    if marks.filterable:
        arguments = _filtered(arguments, marks)
    selection = ast.SelectionSetNode(selections=selected)
    return _with(field, arguments=arguments, selection_set=selection), not there


def _filtered(
    arguments: tuple[ast.ArgumentNode, ...], marks: DocumentLevels
) -> tuple[ast.ArgumentNode, ...]:
    mine: ast.ValueNode = _object(
        operator=_enum("Or"),
        operands=_values(
            _object(
                path=_values([_text(marks.path[0])]),
                operator=_enum("Equal"),
                valueText=_text(level),
            )
            for level in marks.levels
        ),
    )
    theirs = [each.value for each in arguments if each.name.value == "where"]
    if theirs:
        mine = _object(operator=_enum("And"), operands=_values((mine, *theirs)))
    where = ast.ArgumentNode(name=ast.NameNode(value="where"), value=mine)
    return (*(each for each in arguments if each.name.value != "where"), where)


def _key(field: ast.FieldNode) -> str:
    """The name under which a field stands in the answer."""
    return field.name.value if field.alias is None else field.alias.value


def _with(node: Any, **changes: Any) -> Any:
    kept = {key: getattr(node, key) for key in node.keys if key != "loc"}
    return type(node)(**{**kept, **changes})


def _object(**members: ast.ValueNode) -> ast.ObjectValueNode:
    return ast.ObjectValueNode(
        fields=tuple(
            ast.ObjectFieldNode(name=ast.NameNode(value=name), value=value)
            for name, value in members.items()
        )
    )


def _values(values: Any) -> ast.ListValueNode:
    return ast.ListValueNode(values=tuple(values))


def _enum(name: str) -> ast.EnumValueNode:
    return ast.EnumValueNode(value=name)


def _text(text: str) -> ast.StringValueNode:
    return ast.StringValueNode(value=text, block=False)
