"""The gate takes a stable part of a product, and one of two databases; the deep tier takes all."""

from __future__ import annotations

import itertools

import pytest

from tests import tiers

ROWS = [(page, check) for page in range(20) for check in "abcdef"]


def ids(row: object) -> str:
    return str(row)


def taken(by: list[str], rows: list[tuple[int, str]] = ROWS) -> list[tuple[int, str]]:
    mark = tiers.sampled("page, check", rows, by=by, ids=ids).mark
    return [tuple(row) for row in mark.args[1]]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_tier", [])


@pytest.mark.usefixtures("gate")
def test_each_value_of_each_named_argument_is_in_the_gate() -> None:
    assert [page for page, _ in taken(["page"])] == list(range(20))
    both = taken(["page", "check"])
    assert {page for page, _ in both} == set(range(20))
    assert {check for _, check in both} == set("abcdef")
    assert len(both) < 30


@pytest.mark.usefixtures("gate")
def test_a_new_row_moves_no_other() -> None:
    assert set(taken(["page"])) <= {*taken(["page"], [*ROWS, (20, "a")]), (20, "a")}


def test_the_deep_tier_takes_the_whole_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_tier", ["deep"])
    assert taken(["page"]) == ROWS
    assert tiers.one_of(["a", "b"], "test_x") == ["a", "b"]


@pytest.mark.usefixtures("gate")
def test_one_of_two_is_chosen_by_name_and_each_for_about_half() -> None:
    chosen = [tiers.one_of(["a", "b"], f"test_{n}") for n in range(200)]
    assert chosen == [tiers.one_of(["a", "b"], f"test_{n}") for n in range(200)]
    counts = [len(list(each)) for _, each in itertools.groupby(sorted(chosen))]
    assert all(60 < count < 140 for count in counts)
