"""What one request may cost: every unit up to its limit, and not one more."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from policies.ground.errors import Malformed
from sidecar.protocols import strict_body
from sidecar.protocols.opensearch.query_filter import can_filter
from sidecar.protocols.opensearch.request_parts import names_in_query, names_in_search
from sidecar.protocols.s3.lists import keys_to_delete
from sidecar.protocols.strict_body import (
    MAX_BRACKETS,
    MAX_GRAPHQL_TOKENS,
    MAX_KEYS,
    MAX_LOOKUPS,
    MAX_MEMBERS,
    MAX_PARTS,
    MAX_SOURCES,
    Budget,
    OverBudget,
    has_too_many_brackets,
    json_lines,
    json_object,
)


def test_the_limits_are_those_of_the_contract() -> None:
    assert MAX_KEYS == 1_000
    assert (MAX_SOURCES, MAX_PARTS, MAX_LOOKUPS, MAX_GRAPHQL_TOKENS) == (64, 1_000, 64, 2_000)


def test_a_source_is_counted_once_however_often_it_is_named() -> None:
    budget = Budget()
    names = [f"chroma://kb/{number}" for number in range(MAX_SOURCES)]
    for _ in range(3):
        budget.charge_sources(names)
    with pytest.raises(OverBudget, match="more than 64 sources"):
        budget.charge_sources(["chroma://kb/one-more"])


def test_no_name_is_read_after_the_budget_is_spent() -> None:
    read = []

    def names() -> Iterator[str]:
        for number in range(20_000):
            read.append(number)
            yield str(number)

    with pytest.raises(OverBudget):
        Budget().charge_sources(names())
    assert len(read) == MAX_SOURCES + 1


def test_lines_and_sub_requests_share_one_limit() -> None:
    budget = Budget()
    budget.charge_parts(600)
    budget.charge_parts(400)
    with pytest.raises(OverBudget, match="1000 lines or sub-requests"):
        budget.charge_parts(1)


def test_the_number_of_look_ups_is_limited() -> None:
    budget = Budget()
    for _ in range(MAX_LOOKUPS):
        budget.charge_lookup()
    with pytest.raises(OverBudget, match="64 look-ups"):
        budget.charge_lookup()


def test_graphql_tokens_are_limited_over_all_documents() -> None:
    budget = Budget()
    budget.charge_graphql_tokens(1_500)
    assert budget.graphql_tokens == 500
    with pytest.raises(OverBudget, match="2000 tokens"):
        budget.charge_graphql_tokens(501)


def test_a_request_over_budget_is_unreadable() -> None:
    assert issubclass(OverBudget, Malformed)


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_body_of_lines_is_read_up_to_the_limit(end: bytes) -> None:
    lines = json_lines(b"\n".join([b"{}"] * MAX_PARTS) + end, None, Budget())
    assert len(lines) == MAX_PARTS


def test_lines_are_counted_before_they_are_parsed() -> None:
    # The first line is not JSON: a reader that parsed before counting would stop there.
    with pytest.raises(OverBudget):
        json_lines(b"nonsense\n" + b"{}\n" * MAX_PARTS, None, Budget())


def test_the_lines_of_a_body_share_the_limit_of_brackets() -> None:
    line = b'{"a":[' + b"{}," * 1_000 + b"{}]}\n"
    assert len(json_lines(line * 90, None, Budget())) == 90
    with pytest.raises(OverBudget, match="brackets"):
        json_lines(b"nonsense\n" + line * 100, None, Budget())


CHARGES: dict[str, Callable[[Budget], object]] = {
    "sources": lambda budget: budget.charge_sources(["a"]),
    "parts": lambda budget: budget.charge_parts(1),
    "look-ups": lambda budget: budget.charge_lookup(),
    "tokens": lambda budget: budget.charge_graphql_tokens(1),
    "arguments": lambda budget: budget.charge_arguments(1),
    "nothing": lambda budget: budget.check(),
    "lines": lambda budget: json_lines(b"{}", None, budget),
    "an object": lambda budget: json_object(b"{}", None, budget),
}


@pytest.mark.parametrize("charge", CHARGES.values(), ids=CHARGES)
def test_a_request_that_has_ended_has_no_budget(charge: Callable[[Budget], object]) -> None:
    budget = Budget()
    charge(budget)
    budget.end()
    with pytest.raises(OverBudget, match="the request has ended"):
        charge(budget)


@pytest.mark.parametrize("start", [b"", b" \n", b"\xef\xbb\xbf"])
def test_brackets_are_counted_before_the_parser_runs(start: bytes) -> None:
    for element in (b"[],", b"{},"):
        assert not has_too_many_brackets(start + element * MAX_BRACKETS)
        assert has_too_many_brackets(start + element * MAX_BRACKETS + b"[")
    assert has_too_many_brackets(start + b"<a/>" * (MAX_BRACKETS + 1))
    # In a JSON string `<` is only a character.
    assert not has_too_many_brackets(b'{"a":"' + b"<" * (MAX_BRACKETS + 1) + b'"}')


def test_a_body_with_too_many_brackets_is_not_parsed() -> None:
    with pytest.raises(OverBudget, match="brackets"):
        json_object(b'{"a":' + b"[" * MAX_BRACKETS, None)
    with pytest.raises(OverBudget, match="tags"):
        keys_to_delete(b"<Delete>" + b"<Object>" * MAX_BRACKETS, None, Budget())


def members(count: int) -> bytes:
    return b"{%b}" % b",".join(b'"%x":0' % number for number in range(count))


def test_a_body_with_too_many_members_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 1_000
    monkeypatch.setattr(strict_body, "MAX_MEMBERS", most)
    assert len(json_object(members(most), None)) == most
    with pytest.raises(OverBudget, match="more than 1000 members"):
        json_object(members(most + 1), None)
    # The lines of a body are parsed one by one.
    lines = (members(most // 2) + b"\n") * 3
    assert len(json_lines(lines, None, Budget())) == 3


@pytest.mark.parametrize("text", [b":" * 3 * MAX_MEMBERS, b'\\"' * 3 * MAX_MEMBERS])
def test_the_text_of_a_document_is_not_taken_for_members(text: bytes) -> None:
    assert json_object(b'{"a":"%b"}' % text, None)


class EndsAfter(Budget):
    """Of a request whose client leaves when this was checked so often."""

    def __init__(self, checks: int) -> None:
        self.left = checks

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.end()
        super().check()


OBJECTS = b'{"query":{"bool":{"must":[%b]}}}'
WALKED: dict[str, tuple[bytes, Callable[[dict[str, Any], Budget], object]]] = {
    "objects": (OBJECTS % b",".join([b'{"a":1}'] * 2_000), names_in_query),
    "names": (
        b'{"query":{"index":[%b],"id":1}}' % b",".join([b'"a"'] * 2_000),
        names_in_query,
    ),
    "boosts": (b'{"indices_boost":[%b]}' % b",".join([b'{"a":1}'] * 2_000), names_in_search),
    "filtered": (
        OBJECTS % b",".join([b'{"a":1}'] * 2_000),
        lambda body, budget: can_filter(body, {}, "level", budget),
    ),
}


@pytest.mark.parametrize(("raw", "walk"), WALKED.values(), ids=WALKED)
def test_a_walk_over_a_body_ends_with_its_request(
    raw: bytes, walk: Callable[[dict[str, Any], Budget], object]
) -> None:
    body = json_object(raw, None)
    walk(body, Budget())
    with pytest.raises(OverBudget, match="the request has ended"):
        walk(body, EndsAfter(1_000))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":[%b]}' % b",".join([b'{"a":":"}'] * 50),
        b'{"a":[[],%b0]}' % (b"0," * 100_000),
        b'{"a":":","a":"\\u0022"}',
    ],
    ids=["objects", "numbers", "equal keys"],
)
def test_reading_a_body_ends_with_its_request(raw: bytes) -> None:
    """At whatever stage, of which there are at least three."""
    for checks in range(3):
        with pytest.raises(OverBudget, match="the request has ended"):
            json_object(raw, None, EndsAfter(checks))
