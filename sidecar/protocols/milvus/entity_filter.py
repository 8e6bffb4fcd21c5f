"""Filters Milvus' entities by their own level: adds a condition to the caller's expression,
requests the level's field, and checks every entity of the response.

Only plain searches and queries are filtered. Counts, aggregations and searches that start from
stored entities combine entities in ways that the response doesn't show.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson

from policies.ground.errors import Malformed, UpstreamFailed
from sidecar.protocols.protocol import FetchedResponse, ForwardedPart
from sidecar.protocols.shared.responses import (
    DocumentLevels,
    expect_list,
    expect_object,
    response_object,
    to_json,
)
from sidecar.protocols.shared.strict_queries import read_members
from sidecar.protocols.strict_body import MAX_PARTS, OverBudget

Body = dict[str, Any]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_OPENING.values())
# What decides where an expression's strings and brackets begin and end.
_MARKS = re.compile(r"""[\\"'()\[\]{}]""")
_MARK_CHARACTERS = "\\\"'()[]{}"
_MAX_MARKS = 100_000
"""The most of these in one request: each is a step of Python."""


def is_nameable(field: str) -> bool:
    """Return whether a level's field can be named in an expression: a plain name, or a path of them
    into a JSON field."""
    return all(map(_NAME.match, field.split(".")))


def are_closed(expressions: Iterable[str]) -> bool:
    """Return whether all expressions of a request are closed, and not too long to tell."""
    found = list(expressions)
    marks = sum(each.count(mark) for each in found for mark in _MARK_CHARACTERS)
    return marks <= _MAX_MARKS and all(map(is_closed, found))


def is_closed(expression: str) -> bool:
    """Return whether an expression is certainly whole, so that nothing in it can end the brackets
    that are put around it: `true) or (true` would be two expressions."""
    pending: list[str] = []
    quote, at = "", 0
    while (found := _MARKS.search(expression, at)) is not None:
        mark, at = found[0], found.end()
        if mark == "\\":
            # Where a reader knows raw strings, a quotation mark behind a backslash ends the string.
            if not quote or expression[at : at + 1] in ("", '"', "'"):
                return False
            at += 1
        elif quote:
            quote = "" if mark == quote else quote
        elif mark in ('"', "'"):
            quote = mark
        elif mark in _OPENING:
            pending.append(_OPENING[mark])
        elif not pending or pending.pop() != mark:
            return False
    return not quote and not pending


def with_condition(expression: str, levels: DocumentLevels) -> str:
    """Return an expression that holds for those entities alone for which `expression` holds and
    whose level is visible. Call it only if `is_closed` and `is_nameable` are true."""
    if not levels.filterable:
        # Entities without a level are visible, and would meet no condition on it.
        return expression
    field, *inner = levels.path
    place = field + "".join(f'["{each}"]' for each in inner)
    words = [f'"{level}"' for level in levels.levels]
    condition = f"{place} in [{', '.join(words)}]"
    if inner:
        # Milvus Lite has no `in` for a JSON field.
        condition = "(" + " or ".join(f"{place} == {word}" for word in words) + ")"
    return f"({expression}) and {condition}" if expression.strip() else condition


def are_plain_fields(names: Iterable[str]) -> bool:
    """Return whether these are names of fields: `count(*)` and other functions are not."""
    return not any("(" in each for each in names)


class OutputFields(NamedTuple):
    """The fields that are requested so that the response has the level."""

    requested: list[str]
    added: bool
    """True if the agent didn't request the level, so that it is removed again."""


def requesting_level(names: list[str], levels: DocumentLevels) -> OutputFields:
    if "*" in names or levels.path[0] in names:
        return OutputFields(names, added=False)
    return OutputFields([*names, levels.path[0]], added=True)


_PLAIN_MEMBERS = frozenset((
    "dbName", "collectionName", "partitionName", "partitionNames", "data", "annsField", "filter",
    "limit", "offset", "outputFields", "searchParams", "consistencyLevel", "exprParams", "params",
    "groupingField", "groupSize", "strictGroupSize", "id", "search", "rerank", "metricType",
))  # fmt: skip


class Form(NamedTuple):
    """Where one kind of a REST request has its expressions, and what its response is."""

    hybrid: bool = False
    """True if the expressions are in the searches of `search`."""
    all_by_default: bool = False
    """True if a request without `outputFields` requests every field."""
    by_id: bool = False
    """True if entities are named by their ids, and no expression can be added."""


SEARCH = Form()
HYBRID = Form(hybrid=True)
QUERY = Form(all_by_default=True)
GET = Form(all_by_default=True, by_id=True)


def can_filter(body: Body, form: Form) -> bool:
    """Return whether entities can be withheld from the response to this request. If not, it is
    judged as if it returned everything. Raises `Malformed` for a member that Milvus could read in
    another way, and `OverBudget`."""
    parts = [body, *_searches(body)] if form.hybrid else [body]
    for each in parts:
        _check(each)
    plain = all(each.keys() <= _PLAIN_MEMBERS for each in parts)
    expressions = (each.get("filter") or "" for each in parts)
    return plain and are_plain_fields(body.get("outputFields") or ()) and are_closed(expressions)


def _searches(body: Body) -> list[Body]:
    found = body.get("search")
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Malformed("`search` must be a list of objects")
    if len(found) > MAX_PARTS:
        raise OverBudget(f"`search` has more than {MAX_PARTS} searches")
    return found


def _check(part: Body) -> None:
    expression, fields = read_members(part, "filter", "outputFields", *_PLAIN_MEMBERS)[:2]
    if not isinstance(expression, str | None):
        raise Malformed("`filter` must be a string")
    if fields is not None and not (
        isinstance(fields, list) and all(isinstance(each, str) for each in fields)
    ):
        raise Malformed("`outputFields` must be a list of strings")


class NarrowedBody(NamedTuple):
    body: Body
    added: bool
    """True if the level's field was added, and has to be removed from each entity again."""


def narrow(body: Body, levels: DocumentLevels, form: Form) -> NarrowedBody:
    """Return a request with a condition on levels, and with the level among its fields. Call it
    only if `can_filter` is true."""
    narrowed = dict(body)
    if form.hybrid:
        narrowed["search"] = [_narrowed_filter(each, levels) for each in _searches(body)]
    elif not form.by_id:
        narrowed = _narrowed_filter(body, levels)
    if form.all_by_default and "outputFields" not in body:
        return NarrowedBody(narrowed, added=False)
    fields = requesting_level(body.get("outputFields") or [], levels)
    narrowed["outputFields"] = fields.requested
    return NarrowedBody(narrowed, fields.added)


def _narrowed_filter(part: Body, levels: DocumentLevels) -> Body:
    return {**part, "filter": with_condition(part.get("filter") or "", levels)}


def response_filter(
    levels: DocumentLevels, narrowed: NarrowedBody
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Return the function that filters a response `{"code", "data": [entity], "topks": [count]}`:
    `topks` has the number of entities for each vector of a search."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        whole = response_object(response)
        _check_form(whole)
        found = expect_list(whole.get("data") or [], "list of entities")
        entities = [expect_object(each, "entity") for each in found]
        seen = [levels.may_see(_with_json(each, levels)) for each in entities]
        pairs = list(zip(entities, seen, strict=True))
        visible = [each for each, shown in pairs if shown]
        if narrowed.added:
            for each in visible:
                each.pop(levels.path[0], None)
        withheld = len(entities) - len(visible)
        if not withheld and not narrowed.added:
            return ForwardedPart(response.body)
        if "data" in whole:
            whole["data"] = visible
        if withheld and whole.get("topks"):
            whole["topks"] = counted(expect_list(whole["topks"], "list of counts"), seen)
        return ForwardedPart(to_json(whole), withheld)

    return filter_response


def counted(counts: list[Any], seen: list[bool]) -> list[int]:
    """Return how many of each run of entities are visible. `counts` are the lengths of the runs.
    Raises `UpstreamFailed` if they are not those of `seen`."""
    if not all(isinstance(each, int) and each >= 0 for each in counts) or sum(counts) != len(seen):
        raise UpstreamFailed("the data source's counts are not those of its entities")
    found, at = [], 0
    for count in counts:
        found.append(sum(seen[at : at + count]))
        at += count
    return found


def _check_form(whole: Body) -> None:
    """Raise `UpstreamFailed` if a response has a list or object that is unknown and not empty: it
    may hold entities, which would pass unchecked."""
    for name, value in whole.items():
        known = name in ("data", "topks", "recalls")
        if not known and isinstance(value, (list, dict)) and value:
            raise UpstreamFailed(f"the data source's response has the unknown member `{name[:64]}`")


def _with_json(entity: Body, levels: DocumentLevels) -> Body:
    """Return an entity in which the JSON field that holds the level is an object. Milvus writes
    such a field as a string."""
    [field, *inner] = levels.path
    value = entity.get(field)
    if not inner or not isinstance(value, str):
        return entity
    return {**entity, field: json_value(value)}


def json_value(text: str | bytes) -> Any:
    """Return the value of a JSON field. One that can't be read has no level."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
