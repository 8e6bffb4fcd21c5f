"""Whatever bytes a call to Qdrant has: it is refused, or Google's own reader finds no collection in
what is forwarded that wasn't judged."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import Message as ClientMessage
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.errors import Malformed
from tests.sidecar.protocols.qdrant.calls import ALIASES, judged_call, message_of, protocol
from tests.support.properties import examples

pytestmark = pytest.mark.deep(
    stands_in="tests/sidecar/protocols/qdrant/test_grpc_schema.py::test_every_string_that_could_name_a_collection_is_judged"
)
NAMES = st.sampled_from(["open_docs", "shut_docs", "other", "", *ALIASES])
V = {"nearest": {"dense": {"data": [1.0, 0.1]}}}


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


LOCATION = some(collection_name=NAMES, vector_name=NAMES)
LOOKUP = some(collection=NAMES)
PREFETCH = st.recursive(
    some(lookup_from=LOCATION, query=st.just(V)),
    lambda inner: some(lookup_from=LOCATION, prefetch=st.lists(inner, max_size=2)),
    max_leaves=5,
)
QUERY = some(collection_name=NAMES, lookup_from=LOCATION, prefetch=st.lists(PREFETCH, max_size=2))
CALLS = st.one_of(
    st.tuples(st.just("Points/Query"), QUERY),
    st.tuples(
        st.just("Points/QueryBatch"),
        some(collection_name=NAMES, query_points=st.lists(QUERY, max_size=3)),
    ),
    st.tuples(
        st.just("Points/QueryGroups"),
        st.builds(lambda one, two: {**one, **two}, QUERY, some(with_lookup=LOOKUP)),
    ),
    st.tuples(st.just("Points/Upsert"), some(collection_name=NAMES, points=st.just([{}]))),
)
# Where a message is changed, how, and what is written there.
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.sampled_from(["insert", "replace", "cut", "twice"]),
        st.binary(max_size=6),
    ),
    max_size=2,
)


def changed(raw: bytes, at: int, how: str, data: bytes) -> bytes:
    at = min(at, len(raw))
    if how == "insert":
        return raw[:at] + data + raw[at:]
    if how == "replace":
        return raw[:at] + data + raw[at + len(data) :]
    return raw[:at] if how == "cut" else raw + raw[:at]


def named(message: ClientMessage) -> Iterator[str]:
    """Every collection that a message names, as its own classes read it."""
    for field, value in message.ListFields():
        if field.name in ("collection_name", "collection"):
            yield value
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else [value]:
                yield from named(each)


@given(CALLS, CHANGES)
@examples(2000)
def test_no_spelling_of_a_call_hides_a_collection(
    call: tuple[str, dict[str, Any]], changes: list[tuple[int, str, bytes]]
) -> None:
    name, values = call
    message = message_of(name, values)
    raw = message.SerializeToString()
    for change in changes:
        raw = changed(raw, *change)
    qdrant = protocol()
    try:
        _, request, sources = judged_call(f"qdrant.{name}", raw, qdrant)
    except Malformed:
        return
    read = type(message).FromString(request.body.data)
    meant = {ALIASES.get(each, each) for each in named(read)}
    assert {qdrant.source_names.of(each).source_id for each in meant} == {*sources}
    # Nothing was lost on the way, either.
    assert read == type(message).FromString(raw)
