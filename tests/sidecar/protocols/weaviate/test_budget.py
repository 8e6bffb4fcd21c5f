"""What one GraphQL request may cost: its work is linear in its size, and its size is bounded."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.ground.errors import Malformed
from sidecar.protocols.protocol import Unresolved
from sidecar.protocols.strict_body import Budget, OverBudget
from sidecar.protocols.weaviate.graphql import collections, parse_graphql_request
from sidecar.protocols.weaviate.names import References, references_in
from tests.sidecar.protocols.minimal import denied, minimal, scripted
from tests.sidecar.protocols.weaviate.server import Server
from tests.support.proxy import policy


def _named(*bodies: dict[str, Any]) -> set[str]:
    budget = Budget()
    return {
        each.collection
        for body in bodies
        for each in collections(parse_graphql_request(body, budget), budget)
    }


def _fields(count: int) -> str:
    return "{Get{" + "A{b}" * count + "}}"


def _crossed(count: int) -> dict[str, Any]:
    """As many searches as fragments; each fragment spreads the next."""
    fragments = [f"fragment f{at} on F{at}{{...f{at + 1}}}" for at in range(count)]
    searches = "A{...f0}" * count
    return {"query": f"{{Get{{{searches}}}}}{' '.join(fragments)} fragment f{count} on Z{{b}}"}


def _roots(count: int) -> dict[str, Any]:
    """As many roots that spread a fragment as it has searches."""
    roots = "a:Get{...F}" * count
    return {"query": f"{{{roots}}} fragment F on X{{{'A{b}' * count}}}"}


def _variables(count: int) -> dict[str, Any]:
    """As many searches that take a variable as it has conditions."""
    conditions = [{"path": ["a", "B", "c"]}] * count
    searches = "A(where: $w){b}" * count
    return {
        "query": f"query($w: W){{Get{{{searches}}}}}",
        "variables": {"w": {"operands": conditions}},
    }


def _steps(body: dict[str, Any]) -> int:
    steps = 0

    def step(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        found = _named(body)
    finally:
        sys.settrace(before)
    assert "A" in found
    return steps


@pytest.mark.parametrize("request_of", [_roots, _variables])
def test_the_work_is_linear_in_the_size_of_the_request(request_of: Any) -> None:
    assert _steps(request_of(100)) < 4.4 * _steps(request_of(25))


def test_the_work_for_crossed_fragments_is_that_of_their_names() -> None:
    # The largest that is accepted: 100 searches, each through 100 fragments on other collections.
    assert len(_named(_crossed(100))) == 102
    assert _steps(_crossed(100)) < 16 * _steps(_crossed(25))
    assert _steps(_crossed(100)) < 400_000


def test_a_batch_has_one_budget_of_tokens() -> None:
    body = {"query": _fields(20)}
    assert _named(*[body] * 20) == {"A"}
    with pytest.raises(OverBudget, match="more than 2000 tokens"):
        _named(*[body] * 30)
    with pytest.raises(OverBudget, match="more than 2000 tokens"):
        _named({"query": _fields(600)})
    with pytest.raises(OverBudget, match="more than 2000 tokens"):
        _named({"query": "{" * 20_000})


def test_a_batch_has_one_budget_of_characters() -> None:
    body = {"query": f'{{Get{{A(q: "{"x " * 5000}"){{b}}}}}}'}
    assert _named(*[body] * 6) == {"A"}
    with pytest.raises(OverBudget, match="more than 65536 characters"):
        _named(*[body] * 7)


def test_a_long_image_uses_no_budget_and_is_forwarded_unchanged() -> None:
    image = "iVBORw0KGgo+/w==" * 100_000
    for quote in ('"', '"""'):
        body = {"query": f"{{Get{{A(nearImage: {{image: {quote}{image}{quote}}}){{b}}}}}}"}
        budget = Budget()
        query = parse_graphql_request(body, budget)
        assert f'"{image}"' in query.to_body()["query"]
        budget.charge_graphql_characters(65_000)


@pytest.mark.parametrize(
    "text",
    [
        '{Get{A(a: "%s"){b}}} # "%s"',
        '{Get{A(a: ["x"%s"y"]){b}}}',
        '{Get{A(a: """ x "%s" """){b}}}',
    ],
)
def test_a_long_string_in_a_wrong_place_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse_graphql_request({"query": text.replace("%s", "x" * 600)}, Budget())


def test_a_query_may_contain_the_placeholder() -> None:
    text = '{Get{A(a: "sluice-set-aside-0", b: "' + "x" * 600 + '"){b}}}'
    printed = parse_graphql_request({"query": text}, Budget()).to_body()["query"]
    assert "sluice-set-aside-0" in printed
    assert "x" * 600 in printed


@pytest.mark.parametrize(
    "text",
    [
        "{Get{A{...F}}} fragment F on X{...G} fragment G on X{c{...F}}",
        "{Get{A{...F}}} fragment F on X{...on Y{...F}}",
        "{Get{A{b}}} fragment F on X{...F}",
        "{Get{A{b}}} fragment F on X{...G}",
        "{Get{A{...F}}}",
    ],
)
def test_fragments_that_cannot_be_resolved_are_refused(text: str) -> None:
    with pytest.raises(Malformed):
        _named({"query": text})


def test_a_fragment_is_counted_wherever_it_is_used() -> None:
    text = (
        "{Get{A{...F} B{c{...on C{...G}}}} Aggregate{...H}}"
        "fragment F on D{...G} fragment G on E{x} fragment H on Y{I{...G}}"
    )
    assert _named({"query": text}) == {"A", "B", "C", "D", "E", "I"}


def test_the_number_of_arguments_is_limited() -> None:
    conditions = [{"path": ["a", "B", "c"]}] * 5000
    with pytest.raises(OverBudget, match="4096 values"):
        references_in({"operands": conditions}, Budget())
    with pytest.raises(OverBudget, match="4096 values"):
        references_in({f"a{at}": 1 for at in range(5000)}, Budget())
    with pytest.raises(OverBudget, match="more than 128 collections"):
        references_in([{"path": ["a", f"B{at}", "c"]} for at in range(200)], Budget())
    with pytest.raises(Malformed, match="path is too long"):
        references_in({"path": ["a", "B"] * 100}, Budget())
    with pytest.raises(Malformed, match="longer than a name may be"):
        references_in({"p" + "_" * 1000: 1}, Budget())
    assert references_in({"vector": [0.5] * 100_000}, Budget()) == ()


_NAMES = st.sampled_from(("A", "B", "C"))
_BEACONS = _NAMES.map(lambda name: {"beacon": f"weaviate://localhost/{name}/{'0' * 36}"})
_VALUES = st.recursive(
    st.lists(_NAMES, max_size=4) | _BEACONS | st.integers(0, 3) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("path", "operands", "moveTo", "objects", "x")), inner, max_size=3
        )
    ),
    max_leaves=8,
)
_AROUND = st.sampled_from(("where", "path", "moveTo", "objects", "list", "moved"))


@given(_VALUES, _AROUND)
def test_a_shared_value_is_judged_as_if_repeated_in_its_place(value: Any, around: str) -> None:
    whole: Any = {around: value}
    if around == "list":
        whole = {"operands": [value]}
    elif around == "moved":
        whole = {"moveTo": {"objects": value}}

    def found(references: References) -> set[str] | str:
        try:
            # Twice: the second time from the cache.
            return {*references.in_arguments(whole), *references.in_arguments([whole])}
        except (Malformed, Unresolved) as error:
            return repr(error)

    assert found(References(Budget(), [value])) == found(References(Budget()))


async def test_too_many_tokens_are_one_recorded_denial(tmp_path: Path) -> None:
    readers = policy(allowed_sources=("weaviate://kb/*",))
    async with minimal(tmp_path, "weaviate", scripted(Server("low").answer), readers) as front:
        batch = [{"query": _fields(20)}] * 30
        denied(await front.ask("POST", "/v1/graphql/batch", batch), "unreadable_request", 400)
        assert await front.sources() == [("DENY", "weaviate://kb")]
        assert front.lines == []
