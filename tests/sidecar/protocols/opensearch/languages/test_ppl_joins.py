"""The tables at the end of a PPL join, as in the grammar, in linear time for a hostile query."""

import re
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.protocols.opensearch.languages.piped import indices_of_ppl, last_tables
from sidecar.protocols.opensearch.languages.sql import UNQUOTED_NAME, tokenize
from sidecar.protocols.opensearch.request_parts import names_in_query
from sidecar.protocols.protocol import Unresolved
from sidecar.protocols.strict_body import Budget

_TABLE = rf"(?:`[^`]+`|{UNQUOTED_NAME})"
_LAST = re.compile(
    rf"(?:.*?[\s\]])??({_TABLE}(?:\s*,\s*{_TABLE})*)(?:\s+as\s+\w+)?\s*", re.I | re.S
)
_ENDS_OPEN = re.compile(r"(?:[.,:=-]|\bas)\s*\Z", re.I)

_QUERIES = st.lists(
    st.sampled_from(
        ("a", "b1", "as", "AS", " ", " ", ",", ",", ".", "-", "*", "@", "=", "]", "`x`", "`x,y`",
         "``", "'q'", '"d"', "1", "1.2", ":", "(")
    ),
    max_size=14,
).map("".join)  # fmt: skip


def _meaning(text: str) -> list[str] | None:
    """The first position after which there are only tables, by a regular expression that would
    backtrack for seconds over a query of a few KB."""
    found = _LAST.fullmatch(text)
    if found is None or _ENDS_OPEN.search(text[: found.start(1)]):
        return None
    return [name.strip().strip("`") for name in found[1].split(",")]


@example("x = 1 a , `x`,b as b1")
@example("as as a")
@example("a = b as a")
@given(_QUERIES)
def test_the_tables_are_those_of_the_grammar(text: str) -> None:
    try:
        tokens = tokenize(text)
    except Unresolved:
        return
    if not tokens:
        return
    text = text[: tokens[-1].end]
    try:
        found = [name for each in last_tables(text, tokens) for name in each.split(",")]
    except Unresolved:
        assert _meaning(text[tokens[0].start :]) is None
    else:
        assert found == _meaning(text[tokens[0].start :])


def _steps(query: str) -> int:
    steps = 0

    def step(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal steps
        steps += 1
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        with pytest.raises(Unresolved):
            indices_of_ppl(query)
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.parametrize("piece", ["a ", "a, ", "a,", "`a`, ", "a as ", "a-", "] ", "[a] "])
def test_a_hostile_join_takes_linear_time(piece: str) -> None:
    short, long = (_steps("source=a | join " + piece * count + " (") for count in (250, 1000))
    assert long < 4.2 * short


def test_subqueries_nested_too_deeply_are_denied() -> None:
    for command in ("where x in ", "join "):
        deep = "source=a" + f" | {command}[source=b" * 600 + "]" * 600
        with pytest.raises(Unresolved, match="nested deeper"):
            indices_of_ppl(deep)
    fine = "source=a" + " | where x in [source=b" * 16 + "]" * 16
    assert indices_of_ppl(fine) == ["a", *["b"] * 16]


def test_a_reference_in_deeply_nested_lists_is_found() -> None:
    name: Any = "b"
    for _ in range(1000):
        name = [name]
    assert names_in_query({"index": name, "id": 1}, Budget()) == {"b"}
