"""Filters the entities of a response of gRPC by their own level. They come column by column: each
field has the values of all entities, and so have the ids and the scores. An entity that may not be
seen is removed from each of them.
"""

from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any

from policies.ground.errors import UpstreamFailed
from sidecar.http.grpc.protobuf import MAX_FIELDS
from sidecar.protocols.milvus.entity_filter import counted, json_value
from sidecar.protocols.milvus.grpc_schema import RESPONSES
from sidecar.protocols.milvus.sources import grpc_values
from sidecar.protocols.protocol import FetchedResponse, ForwardedPart
from sidecar.protocols.shared.responses import DocumentLevels, to_json

Values = dict[str, Any]

# These tell of entities without a place in the columns, or cut out what an entity holds.
_UNFILTERED = ("highlight_results", "element_indices", "agg_buckets", "agg_topks")
# Bytes for each value.
_SIZES = {"float_data": 4, "double_data": 8}
_SIZES_OF_DIMENSIONS = {
    "float_vector": 4.0, "float16_vector": 2.0, "bfloat16_vector": 2.0, "int8_vector": 1.0,
    "binary_vector": 0.125,
}  # fmt: skip


def search_filter(
    levels: DocumentLevels, *, added: bool
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Return the function that filters `SearchResults`. `added` says that the level's field was
    requested in addition, so that it is removed again."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        values = grpc_values("SearchResults", response)
        results = values.get("results", {})
        _refuse(results, *_UNFILTERED)
        counts = results.get("topks", [])
        columns = results.get("fields_data", [])
        seen = _seen(columns, sum(counts), levels)
        # Even if all are visible: it shows that every column has that many.
        _keep_each(columns, seen)
        _keep_each(results.get("group_by_field_values", []), seen)
        if "group_by_field_value" in results:
            _keep_column(results["group_by_field_value"], seen)
        for name in ("scores", "distances"):
            if name in results:
                results[name] = _kept(results[name], 4, (seen,))
        for ids in results.get("ids", {}).values():
            ids["data"] = _kept(ids.get("data", []), 0, (seen,))
        if all(seen) and not added:
            return ForwardedPart(response.body)
        if not all(seen):
            results["topks"] = counted(counts, seen)
            # It counts hidden entities too.
            results.pop("all_search_count", None)
        if added:
            _strip_level(results, levels)
        return ForwardedPart(RESPONSES["SearchResults"].encode(values), seen.count(False))

    return filter_response


def query_filter(
    levels: DocumentLevels, *, added: bool
) -> Callable[[FetchedResponse], ForwardedPart]:
    """Return the function that filters `QueryResults`, as `search_filter` does."""

    def filter_response(response: FetchedResponse) -> ForwardedPart:
        values = grpc_values("QueryResults", response)
        _refuse(values, "element_indices")
        columns = values.get("fields_data", [])
        seen = _seen(columns, _rows(columns), levels)
        _keep_each(columns, seen)
        if all(seen) and not added:
            return ForwardedPart(response.body)
        if added:
            _strip_level(values, levels)
        return ForwardedPart(RESPONSES["QueryResults"].encode(values), seen.count(False))

    return filter_response


def _refuse(values: Values, *names: str) -> None:
    for name in names:
        if values.get(name):
            raise UpstreamFailed(
                f"the data source's response has `{name}`, which can't be filtered"
            )


def _rows(columns: list[Values]) -> int:
    """Return the number of entities, by the first column that shows it: every response has that of
    the primary key."""
    for column in columns:
        if "valid_data" in column:
            return len(column["valid_data"])
        for array in column.get("scalars", {}).values():
            data = array.get("data", [])
            if isinstance(data, list):
                return len(data)
    if columns:
        raise UpstreamFailed("the data source's response has no column that shows its length")
    return 0


def _seen(columns: list[Values], rows: int, levels: DocumentLevels) -> list[bool]:
    """Return for each entity whether its level is visible."""
    if rows > MAX_FIELDS:
        raise _uneven()  # the response would have more ids than it can have
    named = [each for each in columns if each.get("field_name") == levels.path[0]]
    dynamic = [each for each in columns if each.get("is_dynamic")]
    # A field of the collection hides a dynamic one of the same name.
    held = [each for each in named if not each.get("is_dynamic")] or dynamic
    if len(held) > 1:
        raise UpstreamFailed("the data source's response has two fields with the level")
    if not held:
        return [levels.may_see(None)] * rows
    [column] = held
    values = _values(column, rows)
    if column.get("is_dynamic"):
        return [levels.may_see(each) for each in values]
    return [levels.may_see({levels.path[0]: each}) for each in values]


def _values(column: Values, rows: int) -> list[Any]:
    """Return the values of a column of text or JSON; None in place of any other value."""
    scalars = column.get("scalars", {})
    data: list[Any] = scalars.get("string_data", {}).get("data", [])
    if "json_data" in scalars:
        data = [json_value(each) for each in scalars["json_data"].get("data", [])]
    valid = column.get("valid_data")
    if valid is not None and len(valid) == rows:
        if len(data) == valid.count(True):
            # Only the values that there are.
            rest = iter(data)
            data = [next(rest) if each else None for each in valid]
        elif len(data) == rows:
            data = [each if there else None for each, there in zip(data, valid, strict=True)]
    # A column of another type has no level, so all its entities count as `critical`.
    return data if len(data) == rows else [None] * rows


def _keep_each(columns: Iterable[Values], seen: list[bool]) -> None:
    for column in columns:
        _keep_column(column, seen)


def _keep_column(column: Values, seen: list[bool]) -> None:
    """Remove the values of hidden entities from a column, in place."""
    there = seen
    if valid := column.get("valid_data"):
        if len(valid) != len(seen):
            raise _uneven()
        column["valid_data"] = list(compress(valid, seen))
        # A column may hold a value for each entity, or only for those that have one.
        there = list(compress(seen, valid))
    for part in ("scalars", "vectors"):
        for name, value in column.get(part, {}).items():
            if name != "dim":
                column[part][name] = _kept_field(name, value, column[part], (seen, there))
    if "struct_arrays" in column:
        _keep_each(column["struct_arrays"].get("fields", []), seen)


def _kept_field(name: str, value: Any, field: Values, ways: tuple[list[bool], ...]) -> Any:
    size = _SIZES.get(name, 0) or int(field.get("dim", 0) * _SIZES_OF_DIMENSIONS.get(name, 0))
    if isinstance(value, bytes):
        return _kept(value, size, ways)
    kept = {key: each for key, each in value.items() if key not in ("data", "contents")}
    for key in value.keys() - kept.keys():
        kept[key] = _kept(value[key], size, ways)
    return kept


def _kept(data: Any, size: int, ways: tuple[list[bool], ...]) -> Any:
    """Return the values of visible entities, by that one of `ways` which has as many elements as
    there are values. `data` is a list, or bytes of values of `size`."""
    if isinstance(data, bytes):
        if not size or len(data) % size:
            raise UpstreamFailed("the data source's vectors don't have one length")
        if len(data) // size not in map(len, ways):
            raise _uneven()  # before each of them becomes an object
        values = [data[at : at + size] for at in range(0, len(data), size)]
        return b"".join(_kept(values, 0, ways))
    for seen in ways:
        if len(data) == len(seen):
            return list(compress(data, seen))
    raise _uneven()


def _uneven() -> UpstreamFailed:
    return UpstreamFailed("the data source's columns have different lengths")


def _strip_level(results: Values, levels: DocumentLevels) -> None:
    """Remove the level's field, which the agent didn't request."""
    name = levels.path[0]
    columns = results.get("fields_data", [])
    kept = [each for each in columns if each.get("is_dynamic") or each.get("field_name") != name]
    if len(kept) == len(columns):
        kept = [each for each in kept if not each.get("is_dynamic") or _strip_key(each, name)]
    results["fields_data"] = kept
    if "output_fields" in results:
        results["output_fields"] = [each for each in results["output_fields"] if each != name]


def _strip_key(column: Values, name: str) -> bool:
    """Remove a key from each object of a dynamic column, in place. Returns False if nothing is
    left, so that the agent wouldn't have got the column at all."""
    array = column.get("scalars", {}).get("json_data", {})
    objects = [json_value(each) for each in array.get("data", [])]
    for each in objects:
        if isinstance(each, dict):
            each.pop(name, None)
    array["data"] = [to_json(each) for each in objects]
    return any(objects)
