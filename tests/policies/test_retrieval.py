"""Which retrievals are valid, and the complaint about every other."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.errors import Invalid
from policies.retrieval import MAX_QUERY, Retrieval, parse_retrieval
from tests.policies.strategies import RETRIEVALS

GOOD = {
    "agent_role": "analyst",
    "user_id": "ann@example.com",
    "source_id": "contracts",
    "sensitivity_level": "low",
}


def complaints(**changes: object) -> list[str]:
    with pytest.raises(Invalid) as raised:
        parse_retrieval(GOOD | changes)
    assert raised.value.details is not None
    return raised.value.details.split("\n")


def test_the_required_fields_are_enough() -> None:
    required = Retrieval("analyst", "ann@example.com", "contracts", "low")
    assert parse_retrieval(GOOD) == required
    # No caller can say that a statement reads the source: only what executes it sees that.
    stated = {"id": "x", "digest": "0f" * 32}
    assert parse_retrieval(GOOD | {"statement": stated, "parameters": "[]"}) == required


@given(RETRIEVALS)
def test_a_request_is_parsed_unchanged(call: Retrieval) -> None:
    assert parse_retrieval(call._asdict()) == call


@given(RETRIEVALS)
def test_null_is_the_same_as_absent(call: Retrieval) -> None:
    given_ = {key: value for key, value in call._asdict().items() if value is not None}
    assert parse_retrieval(given_) == parse_retrieval(call._asdict())


def test_every_fault_is_reported_at_once() -> None:
    with pytest.raises(Invalid) as raised:
        parse_retrieval({"session_id": "", "query": 1, "source_type": "A", "context_hash": "x"})
    error = raised.value
    assert error.status == 422
    assert error.message == "8 fields are not valid in the body"
    assert (error.details or "").split("\n") == [
        "agent_role: is required",
        "user_id: is required",
        "source_id: is required",
        "sensitivity_level: is required: one of `low`, `medium`, `high`, `critical`",
        "session_id: must have 1 to 256 characters, has 0",
        "query: must be a string of at most 65536 bytes",
        "source_type: must have the form [a-z0-9_-]{1,32}",
        "context_hash: must be 64 lower-case hex digits",
    ]


IDENTIFIERS = ["agent_role", "user_id", "source_id", "session_id", "task_type", "agent_id"]


@pytest.mark.parametrize("field", IDENTIFIERS)
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "must have 1 to 256 characters, has 0"),
        ("x" * 257, "must have 1 to 256 characters, has 257"),
        ("a\nb", "must not contain control characters"),
        ("a\x00", "must not contain control characters"),
        ("\x85", "must not contain control characters"),
        (1, "must be a string"),
        (False, "must be a string"),
        (["a"], "must be a string"),
        ({"a": 1}, "must be a string"),
        (0.5, "must be a string"),
    ],
)
def test_an_invalid_identifier_is_reported_by_its_field(
    field: str, value: object, fault: str
) -> None:
    assert complaints(**{field: value}) == [f"{field}: {fault}"]


@pytest.mark.parametrize("field", IDENTIFIERS)
@pytest.mark.parametrize("value", [" ", "x" * 256, "😀" * 256, "a/b", "'\"\\", "\u2028", "\ufeff"])
def test_an_identifier_is_kept_byte_for_byte(field: str, value: str) -> None:
    assert getattr(parse_retrieval(GOOD | {field: value}), field) == value


@pytest.mark.parametrize("level", ["", "LOW", "Low", "low ", "severe", 1, 0, True, ["low"], {}])
def test_a_sensitivity_is_one_of_four(level: object) -> None:
    assert complaints(sensitivity_level=level) == [
        "sensitivity_level: must be one of `low`, `medium`, `high`, `critical`"
    ]


@pytest.mark.parametrize("query", ["x" * MAX_QUERY, "é" * (MAX_QUERY // 2), "", "\x00\n", "😀"])
def test_a_query_of_the_greatest_length_is_read(query: str) -> None:
    assert parse_retrieval(GOOD | {"query": query}).query == query


@pytest.mark.parametrize(
    "query", ["x" * (MAX_QUERY + 1), "é" * (MAX_QUERY // 2 + 1), "😀" * (MAX_QUERY // 4 + 1), 1, []]
)
def test_a_longer_query_or_none_is_refused(query: object) -> None:
    assert complaints(query=query) == ["query: must be a string of at most 65536 bytes"]


@pytest.mark.parametrize("source_type", ["sdk", "api", "langchain", "bedrock", "rest", "a-b_9"])
def test_a_source_type_of_the_form_is_read(source_type: str) -> None:
    assert parse_retrieval(GOOD | {"source_type": source_type}).source_type == source_type


@pytest.mark.parametrize("source_type", ["", "API", "a b", "x" * 33, "a\n", "é", 1, ["api"]])
def test_a_source_type_of_another_form_is_refused(source_type: object) -> None:
    assert complaints(source_type=source_type) == [
        "source_type: must have the form [a-z0-9_-]{1,32}"
    ]


@pytest.mark.parametrize("hash_", ["", "0" * 63, "0" * 65, "A" * 64, "g" * 64, "0" * 64 + "\n", 1])
def test_a_context_hash_of_another_form_is_refused(hash_: object) -> None:
    assert complaints(context_hash=hash_) == ["context_hash: must be 64 lower-case hex digits"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
)


@pytest.mark.deep(stands_in="test_a_field_of_any_type_is_read_or_invalid")
@given(st.dictionaries(st.sampled_from([*Retrieval._fields, "other"]), JSON))
def test_any_object_is_a_retrieval_or_invalid(body: dict[str, object]) -> None:
    with suppress(Invalid):
        assert parse_retrieval(body).agent_role == body["agent_role"]


@pytest.mark.parametrize("field", [*Retrieval._fields, "other"])
def test_a_field_of_any_type_is_read_or_invalid(field: str) -> None:
    values: list[object] = [
        None,
        True,
        1,
        -(2**70),
        0.5,
        "",
        "low",
        "\x00",
        [],
        [[]],
        {},
        {"low": []},
    ]
    for value in values:
        for body in ({field: value}, GOOD | {field: value}):
            with suppress(Invalid):
                assert parse_retrieval(body).agent_role == body["agent_role"]
