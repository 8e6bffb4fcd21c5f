"""The responses of gRPC, column by column: an entity that may not be seen leaves every column."""

import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from policies.ground.errors import UpstreamFailed
from sidecar.protocols.milvus.columns import query_filter, search_filter
from sidecar.protocols.milvus.grpc_schema import RESPONSES
from sidecar.protocols.protocol import FetchedResponse, ForwardedPart
from sidecar.protocols.shared.responses import DocumentLevels, to_json
from tests.support import properties

FLAT = DocumentLevels(("level",), ("low", "medium"))
NESTED = DocumentLevels(("acl", "level"), ("low", "medium"))
LEVELS = ("low", "high", "medium", "critical")
VARCHAR, JSON, INT64 = 21, 23, 5

Values = dict[str, Any]
Filter = Callable[..., Callable[[FetchedResponse], ForwardedPart]]


def floats(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def text(name: str, *values: str, **more: Any) -> Values:
    return {"type": VARCHAR, "field_name": name,
            "scalars": {"string_data": {"data": list(values)}}, **more}  # fmt: skip


def json_column(name: str, *values: bytes, **more: Any) -> Values:
    return {"type": JSON, "field_name": name,
            "scalars": {"json_data": {"data": list(values)}}, **more}  # fmt: skip


def numbers(name: str, *values: int) -> Values:
    return {"type": INT64, "field_name": name, "scalars": {"long_data": {"data": list(values)}}}


def filtered(
    made: Filter, message: str, values: Values, levels: DocumentLevels = FLAT, added: bool = False
) -> tuple[Values, int]:
    raw = RESPONSES[message].encode(values)
    part = made(levels, added=added)(FetchedResponse(200, "", [], raw))
    return RESPONSES[message].decode(part.body).values, part.withheld


def queried(*columns: Values, **more: Any) -> Values:
    found, _ = filtered(query_filter, "QueryResults", {"fields_data": list(columns)}, **more)
    return {each["field_name"]: each for each in found.get("fields_data", [])}


def test_a_hidden_entity_leaves_every_column_and_the_counts() -> None:
    vectors = {"dim": 2, "float_vector": {"data": floats(1, 1, 2, 2, 3, 3, 4, 4)}}
    results = {
        "num_queries": 2, "top_k": 3, "topks": [1, 3],
        "ids": {"int_id": {"data": [11, 12, 13, 14]}},
        "scores": floats(0.1, 0.2, 0.3, 0.4), "distances": floats(1, 2, 3, 4),
        "recalls": floats(0.9, 0.8), "all_search_count": 9,
        "output_fields": ["text", "level"],
        "group_by_field_value": numbers("year", 1, 2, 3, 4),
        "group_by_field_values": [numbers("year", 1, 2, 3, 4)],
        "fields_data": [
            text("level", *LEVELS), text("text", "a", "b", "c", "d"),
            {"type": 101, "field_name": "vector", "vectors": vectors},
        ],
    }  # fmt: skip
    found, withheld = filtered(search_filter, "SearchResults", {"results": results})
    assert withheld == 2
    shown = found["results"]
    assert shown["ids"] == {"int_id": {"data": [11, 13]}}
    assert (shown["topks"], shown["recalls"]) == ([1, 1], floats(0.9, 0.8))
    assert (shown["scores"], shown["distances"]) == (floats(0.1, 0.3), floats(1, 3))
    assert "all_search_count" not in shown
    assert shown["group_by_field_value"]["scalars"]["long_data"]["data"] == [1, 3]
    level, words, vector = shown["fields_data"]
    assert level["scalars"]["string_data"]["data"] == ["low", "medium"]
    assert words["scalars"]["string_data"]["data"] == ["a", "c"]
    assert vector["vectors"]["float_vector"]["data"] == floats(1, 1, 3, 3)
    # The level goes again if it was added.
    found, _ = filtered(search_filter, "SearchResults", {"results": results}, added=True)
    assert found["results"]["output_fields"] == ["text"]
    assert [each["field_name"] for each in found["results"]["fields_data"]] == ["text", "vector"]


COLUMNS: list[tuple[Values, Values]] = [
    ({"scalars": {"float_data": {"data": floats(1, 2, 3, 4)}}},
     {"scalars": {"float_data": {"data": floats(1, 3)}}}),
    ({"scalars": {"double_data": {"data": struct.pack("<4d", 1, 2, 3, 4)}}},
     {"scalars": {"double_data": {"data": struct.pack("<2d", 1, 3)}}}),
    ({"scalars": {"bool_data": {"data": [True, False, False, True]}}},
     {"scalars": {"bool_data": {"data": [True, False]}}}),
    ({"scalars": {"array_data": {"element_type": 5, "data": [
        {"long_data": {"data": [n]}} for n in range(4)]}}},
     {"scalars": {"array_data": {"element_type": 5, "data": [
         {"long_data": {"data": [0]}}, {"long_data": {"data": [2]}}]}}}),
    ({"vectors": {"dim": 16, "binary_vector": b"aabbccdd"}},
     {"vectors": {"dim": 16, "binary_vector": b"aacc"}}),
    ({"vectors": {"dim": 1, "float16_vector": b"aabbccdd"}},
     {"vectors": {"dim": 1, "float16_vector": b"aacc"}}),
    ({"vectors": {"dim": 2, "int8_vector": b"aabbccdd"}},
     {"vectors": {"dim": 2, "int8_vector": b"aacc"}}),
    ({"vectors": {"sparse_float_vector": {"dim": 9, "contents": [b"a", b"", b"c", b"d"]}}},
     {"vectors": {"sparse_float_vector": {"dim": 9, "contents": [b"a", b"c"]}}}),
    ({"vectors": {"vector_array": {"dim": 1, "data": [{"dim": n} for n in (1, 2, 3, 4)]}}},
     {"vectors": {"vector_array": {"dim": 1, "data": [{"dim": 1}, {"dim": 3}]}}}),
    ({"struct_arrays": {"fields": [text("inner", "a", "b", "c", "d")]}},
     {"struct_arrays": {"fields": [text("inner", "a", "c")]}}),
    # Of entities without a value, a column has a place or not.
    ({"valid_data": [True, False, False, True], **text("x", "a", "", "", "d")},
     {"valid_data": [True, False], **text("x", "a", "")}),
    ({"valid_data": [True, True, False, True],
      "scalars": {"float_data": {"data": floats(1, 2, 4)}}},
     {"valid_data": [True, False], "scalars": {"float_data": {"data": floats(1)}}}),
    ({"valid_data": [False, True, True, False], "vectors": {"dim": 2, "int8_vector": b"bbcc"}},
     {"valid_data": [False, True], "vectors": {"dim": 2, "int8_vector": b"cc"}}),
]  # fmt: skip


def test_every_kind_of_column_is_cut() -> None:
    for column, expected in COLUMNS:
        named = {"type": 1, "field_name": "x"}
        found = queried(numbers("id", 1, 2, 3, 4), text("level", *LEVELS), {**named, **column})
        assert found["x"] == {**named, **expected}, column
        assert found["id"]["scalars"]["long_data"]["data"] == [1, 3]


def test_the_level_may_stand_in_a_json_field_or_a_dynamic_one() -> None:
    acl = [b'{"level":"low"}', b'{"level":["low"]}', b"{", b'"low"']
    found = queried(numbers("id", 1, 2, 3, 4), json_column("acl", *acl), levels=NESTED)
    assert found["id"]["scalars"]["long_data"]["data"] == [1]
    meta = [b'{"level":"low","text":"a"}', b'{"text":"b"}', b'{"level":"medium"}', b"[]"]
    columns = numbers("id", 1, 2, 3, 4), json_column("$meta", *meta, is_dynamic=True)
    found = queried(*columns)
    assert found["id"]["scalars"]["long_data"]["data"] == [1, 3]
    found = queried(*columns, added=True)
    assert found["$meta"]["scalars"]["json_data"]["data"] == [b'{"text":"a"}', b"{}"]
    # What only the level made necessary goes as a whole.
    alone = json_column("$meta", b'{"level":"low"}', b'{"level":"high"}', is_dynamic=True)
    assert queried(numbers("id", 1, 2), alone, added=True).keys() == {"id"}
    # A field of the collection counts, whatever a dynamic one says.
    fields = text("level", "high", "low"), json_column("$meta", b"{}", b"{}", is_dynamic=True)
    assert queried(numbers("id", 1, 2), *fields)["id"]["scalars"]["long_data"]["data"] == [2]


def test_an_entity_without_a_level_is_hidden() -> None:
    for column in (
        numbers("level", 1, 2),
        numbers("other", 1, 2),
        text("level", "low", "low", valid_data=[False, False]),
        text("Level", "low", "low"),
    ):
        found, withheld = filtered(
            query_filter, "QueryResults", {"fields_data": [numbers("id", 1, 2), column]}
        )
        assert withheld == 2, column
        assert "data" not in found["fields_data"][0]["scalars"]["long_data"]


SEARCHED: list[Values] = [
    {"ids": {"int_id": {"data": [1]}}, "fields_data": [text("level", "low")]},
    {"topks": [2], "ids": {"int_id": {"data": [1]}}, "fields_data": [text("level", "low")]},
    # As many can't be in the response, and would not fit into memory.
    {"topks": [1 << 40], "fields_data": [numbers("level", 1)]},
    {"topks": [1], "ids": {"str_id": {"data": ["a"]}}, "scores": floats(1, 2)},
    {"topks": [1], "fields_data": [text("level", "low"), text("level", "low")]},
    {"topks": [1], "fields_data": [text("level", "low")], "highlight_results": [b""]},
    {"topks": [1], "fields_data": [text("level", "low")], "agg_buckets": [b""]},
    {"topks": [1], "fields_data": [text("level", "low")], "element_indices": {"data": [1]}},
    {"topks": [1], "fields_data": [text("level", "low"), text("x", "a", "b")]},
]
QUERIED: list[list[Values]] = [
    [text("level", "low"), text("x", "a", "b")],
    [{"type": 1, "field_name": "x", "vectors": {"dim": 2, "int8_vector": b"aa"}}],
    [text("level", "low"), {"type": 1, "field_name": "x",
                            "vectors": {"dim": 2, "int8_vector": b"aaa"}}],
    [text("level", "low"), {"type": 1, "field_name": "x", "vectors": {"binary_vector": b"aa"}}],
    [text("level", "low", valid_data=[True]), text("x", "a", valid_data=[True, True])],
]  # fmt: skip


def test_a_response_of_another_form_is_withheld() -> None:
    for results in SEARCHED:
        with pytest.raises(UpstreamFailed):
            filtered(search_filter, "SearchResults", {"results": results})
    for columns in QUERIED:
        with pytest.raises(UpstreamFailed):
            filtered(query_filter, "QueryResults", {"fields_data": columns})
    with pytest.raises(UpstreamFailed, match="unknown field 99"):
        query_filter(FLAT, added=False)(FetchedResponse(200, "", [], b"\x98\x06\x01"))


def drawn(chance: Random) -> tuple[list[str], list[Values], list[str]]:
    """The levels of a few entities, columns that hold a mark of each, and the marks."""
    levels = [chance.choice((*LEVELS, "")) for _ in range(chance.randint(0, 6))]
    marks = [f"mark {at} {level:8}" for at, level in enumerate(levels)]
    there = [chance.random() < 0.5 for _ in marks]
    held = [mark for mark, valid in zip(marks, there, strict=True) if valid]
    columns = [
        text("text", *marks),
        text("some", *held, valid_data=there),
        {"type": 101, "field_name": "vector",
         "vectors": {"dim": 15, "int8_vector": "".join(marks).encode()}},
        {"type": 1, "field_name": "inner", "struct_arrays": {"fields": [text("part", *marks)]}},
    ]  # fmt: skip
    if chance.random() < 0.5:
        columns.append(text("level", *levels))
    else:
        objects = [
            to_json({"level": level, "mark": mark})
            for level, mark in zip(levels, marks, strict=True)
        ]
        columns.append(json_column("$meta", *objects, is_dynamic=True))
    chance.shuffle(columns)
    return levels, columns, marks


def test_no_trace_of_a_hidden_entity_is_left() -> None:
    chance = properties.chance("columns of entities")
    for _ in range(properties.few(2_000, at_least=50)):
        levels, columns, marks = drawn(chance)
        values: Values = {"fields_data": columns}
        made: Filter = query_filter
        message = "QueryResults"
        if chance.random() < 0.5:
            first = chance.randint(0, len(marks))
            results = {
                "topks": [first, len(marks) - first], "fields_data": columns,
                "ids": {"str_id": {"data": marks}}, "scores": bytes(4 * len(marks)),
            }  # fmt: skip
            values, made, message = {"results": results}, search_filter, "SearchResults"
        raw = RESPONSES[message].encode(values)
        added = chance.random() < 0.5
        part = made(FLAT, added=added)(FetchedResponse(200, "", [], raw))
        for level, mark in zip(levels, marks, strict=True):
            assert (mark.encode() in part.body) is (level in FLAT.levels), (levels, columns)
        assert part.withheld == sum(each not in FLAT.levels for each in levels)


def test_a_response_without_hidden_entities_passes_byte_for_byte() -> None:
    # Not the canonical encoding, which has the fields in order.
    columns = RESPONSES["QueryResults"].encode({"fields_data": [text("level", "low")]})
    raw = RESPONSES["QueryResults"].encode({"collection_name": "open_docs"}) + columns
    made = query_filter(FLAT, added=False)(FetchedResponse(200, "", [], raw))
    assert made == (raw, 0)
    for message in ("SearchResults", "QueryResults"):
        # An error has no entities.
        read = search_filter if message == "SearchResults" else query_filter
        error = RESPONSES[message].encode({"status": b"\x08\x01"})
        assert read(FLAT, added=False)(FetchedResponse(200, "", [], error)) == (error, 0)
